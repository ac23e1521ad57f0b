"""lm-evaluation-harness before and after: which models, one run of its tasks each, and the rows compared in pairs."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from recipes.common.cpu import make_head_input_contiguous
from recipes.common.intervals import mcnemar_p, paired_difference
from recipes.common.judged import read_rows
from recipes.common.recipe_file import load_recipe
from recipes.common.run_config import RECORD

RECIPE = Path(__file__).parents[1] / "gsm8k"
TASK_FILES = RECIPE / "lm_eval"
OURS = ("gsm8k_recipe", "gsm8k_zeroshot")


class Contender(NamedTuple):
    """A model to evaluate: the weights, an adapter on them, and the tokenizer (None: that of the weights)."""

    pretrained: str
    peft: str | None = None
    tokenizer: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        return f"{self.pretrained} + {self.peft}" if self.peft else self.pretrained


def contenders(model: str, adapter: str | None = None, against: str | None = None) -> list[Contender]:
    """Before and after, or the one model where nothing says what it started from.

    A run folder (or a checkpoint in it) names its base in run_config.json, a LoRA adapter in its own
    adapter_config.json. Base and adapter share the tokenizer that the run saved, so that both are asked alike.
    `against` may be a run as well.

    Raises:
        ValueError: the folder holds no weights.

    Example: `contenders("BASE", adapter="A") == [Contender("BASE"), Contender("BASE", "A")]`
    """
    named = contenders(against)[-1] if against else None
    if adapter is not None:
        return [named or Contender(model), Contender(model, adapter)]
    folder = Path(model)
    if folder.is_dir() and not any((folder / name).is_file() for name in ("adapter_config.json", "config.json")):
        raise ValueError(f"{model} holds no weights (neither adapter_config.json nor config.json): a finished run?")
    base = _base(folder)
    after = base._replace(peft=model) if (folder / "adapter_config.json").is_file() else Contender(model)
    before = named or base
    return [after] if before is None else [before, after]


def _base(folder: Path) -> Contender | None:
    """What a run, checkpoint or adapter in `folder` started from, with the tokenizer saved there; None: unknown."""
    config, adapter = run_config(str(folder)), folder / "adapter_config.json"
    if config is not None:
        name, revision = config["model_name_or_path"], config["model_revision"] or "main"
    elif adapter.is_file():
        name, revision = json.loads(adapter.read_text())["base_model_name_or_path"], "main"
    else:
        return None
    tokenizer = str(folder) if (folder / "tokenizer_config.json").is_file() else None
    return Contender(name, None, tokenizer, revision)


def run_config(model: str) -> dict[str, Any] | None:
    """What run_config.json says in a run folder, or one folder above it; None for any other model."""
    for folder in (Path(model), Path(model).parent):
        if Path(model).is_dir() and (folder / RECORD).is_file():
            return json.loads((folder / RECORD).read_text())
    return None


def asked_as(model: str, config: Path | None = None) -> dict[str, Any]:
    """How the recipe's prompt is asked: `example`, `chat_template_kwargs` and `max_gen_toks` (None: the task's own).

    From `config`, a YAML of the GSM8K recipe, or from the run folder `model` when that run showed this
    recipe's system prompt to its held-out rows. Otherwise no worked example.

    Raises:
        ValueError: `config` is not of that recipe.
    """
    if config is not None:
        if config.resolve().parent != RECIPE:
            raise ValueError(f"--config {config} is no YAML of {RECIPE.name}: its worked example is for another task.")
        values = yaml.safe_load(config.read_text())
    else:
        values = (run_config(model) if _is_gsm8k_run(Path(model)) else None) or {}
    return {
        "example": values.get("example") or [],
        "chat_template_kwargs": values.get("chat_template_kwargs"),
        "max_gen_toks": values.get("max_completion_length"),
    }


def _is_gsm8k_run(folder: Path) -> bool:
    """By what its held-out rows were asked: run_config.json does not name the recipe."""
    found = [path for path in (folder, folder.parent) if (path / "evaluation" / "before.jsonl").is_file()]
    if not found:
        return False
    prompt = read_rows(found[0] / "evaluation" / "before.jsonl")[0]["prompt"]
    return isinstance(prompt, list) and prompt[0]["content"] == load_recipe(RECIPE / "train.py").SYSTEM_PROMPT


def load_harness_model(
    contender: Contender,
    *,
    batch_size: int,
    device: str | None = None,
    dtype: str | torch.dtype = "auto",
    chat_template_kwargs: dict | None = None,
) -> HFLM:
    """lm-eval's own model class, on the accelerator if there is one.

    Raises:
        ValueError: it cannot be loaded.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    try:
        lm = HFLM(
            **contender._asdict(),
            device=device or (accelerator.type if accelerator else "cpu"),
            dtype=dtype,
            batch_size=batch_size,
            chat_template_args=chat_template_kwargs,
        )
    except (OSError, TypeError) as error:
        raise ValueError(f"model {contender} cannot be loaded: {error}") from error
    make_head_input_contiguous(lm.model)
    return lm


def task_manager(tasks: list[str], data: str | None, example: list[str]) -> TaskManager:
    """lm-eval's index of tasks: ours alone, unless another is asked for (reading all of its own takes a while).

    Raises:
        ValueError: no task of such a name.
    """
    known = {"data": data, "example": example}
    manager = TaskManager(include_path=str(TASK_FILES), include_defaults=not set(tasks) <= set(OURS), metadata=known)
    unknown = [task for task in tasks if task not in manager.all_tasks]
    if unknown:
        raise ValueError(f"no task {', '.join(unknown)}: give {', '.join(OURS)} or any of `lm_eval ls tasks`.")
    return manager


def run_tasks(
    lm: HFLM,
    tasks: list[str],
    manager: TaskManager,
    *,
    limit: int | None = None,
    lengths: dict[str, int] | None = None,
    apply_chat_template: bool = False,
) -> dict[str, dict[str, Any]]:
    """`simple_evaluate` of each task: task -> its `figures`, `version`, `generation_kwargs` and `samples`.

    `lengths` are the most tokens to generate, by task. The recipe's prompt always goes through the chat
    template, which writes the special tokens itself; the others when `apply_chat_template` says so.
    """
    found = {}
    for task in tasks:
        chat = apply_chat_template or task == "gsm8k_recipe"
        lm.add_bos_token = False if chat else None
        length = (lengths or {}).get(task)
        results = simple_evaluate(
            model=lm,
            tasks=[task],
            task_manager=manager,
            limit=limit,
            gen_kwargs={"max_gen_toks": length} if length else None,
            apply_chat_template=chat,
            fewshot_as_multiturn=chat,
        )
        for name, samples in results["samples"].items():
            found[name] = {
                "figures": results["results"][name],
                "version": results["versions"][name],
                "generation_kwargs": results["configs"][name].get("generation_kwargs"),
                "samples": samples,
            }
    return found


def figures(runs: list[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One line for each task, filter and metric: `before` (when there are two runs), `after`, standard errors,
    and with two runs the paired `difference`, `difference_stderr` and, where a row is right or wrong, `mcnemar_p`.

    Raises:
        ValueError: the runs are not of the same rows.
    """
    before, after = runs if len(runs) == 2 else (None, runs[0])
    lines = []
    for task, result in after.items():
        for (kind, metric), values in _by_row(result["samples"]).items():
            line = {"task": task, "filter": kind, "metric": metric, "n": len(values)}
            if before is not None:
                old = _by_row(before[task]["samples"])[kind, metric]
                line |= _figure("before", before[task]["figures"], kind, metric) | _paired(task, old, values)
            lines.append(line | _figure("after", result["figures"], kind, metric))
    return lines


def rows(runs: list[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One mapping for each task, filter and row: the request, the gold answer, and of each run the response, what the
    filter found in it, and the metrics."""
    listed = []
    for task in runs[-1]:
        for samples in zip(*(run[task]["samples"] for run in runs), strict=True):
            last = samples[-1]
            shared = {"task": task, "filter": last["filter"], "row": last["doc_id"], "target": last["target"]}
            answers = {name: _answer(sample) for name, sample in zip(names(runs), samples, strict=True)}
            listed.append(shared | {"request": last["arguments"][0][0]} | answers)
    return listed


def names(runs: list) -> list[str]:
    """`["before", "after"]`, or `["after"]` alone."""
    return ["before", "after"][-len(runs) :]


def table(lines: list[dict[str, Any]]) -> str:
    """`figures` for the screen: values and differences with their standard errors, as lm-eval prints them (0 to 1)."""
    paired = "before" in lines[0]
    head = f"  {'task':<16}{'filter':<18}{'metric':<13}{'rows':>5}"
    text = [head + (f"{'before':>18}{'after':>18}{'difference':>19}   McNemar p" if paired else f"{'value':>18}")]
    for line in lines:
        cells = f"  {line['task']:<16}{line['filter']:<18}{line['metric']:<13}{line['n']:>5}"
        cells += "".join(f"{_cell(line, name):>18}" for name in (("before", "after") if paired else ("after",)))
        if paired:
            p = line["mcnemar_p"]
            cells += f"{_cell(line, 'difference', '+'):>19}   " + ("-" if p is None else f"{p:.2g}")
        text.append(cells)
    return "\n".join(text)


def harness_version() -> str:
    """The installed lm-eval's."""
    return metadata.version("lm_eval")


def _by_row(samples: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """(filter, metric) -> hash of the row -> value; a metric that is no number of its own row is left out."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for sample in samples:
        for metric in sample["metrics"]:
            if not isinstance(sample[metric], tuple | list | dict):
                row = f"{sample['doc_id']} {sample['doc_hash']}"
                values.setdefault((sample["filter"], metric), {})[row] = float(sample[metric])
    return values


def _paired(task: str, before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    if before.keys() != after.keys():
        raise ValueError(f"{task}: before and after were not evaluated on the same rows")
    old, new = list(before.values()), [after[row] for row in before]
    mean, error = paired_difference(old, new)
    judged = set(old + new) <= {0.0, 1.0}
    p = mcnemar_p([value == 1.0 for value in old], [value == 1.0 for value in new]) if judged else None
    return {"difference": mean, "difference_stderr": error, "mcnemar_p": p}


def _figure(name: str, results: dict[str, Any], kind: str, metric: str) -> dict[str, float | None]:
    error = results.get(f"{metric}_stderr,{kind}")
    known = isinstance(error, int | float)
    return {name: float(results[f"{metric},{kind}"]), f"{name}_stderr": float(error) if known else None}


def _answer(sample: dict[str, Any]) -> dict[str, Any]:
    metrics = {name: float(sample[name]) for name in sample["metrics"] if not isinstance(sample[name], tuple | list)}
    return {"response": sample["resps"][0][0], "found": sample["filtered_resps"][0], **metrics}


def _cell(line: dict[str, Any], name: str, sign: str = "") -> str:
    error = line[f"{name}_stderr"]
    return f"{line[name]:{sign}.4f}" + (" ± -" if error is None else f" ± {error:.4f}")
