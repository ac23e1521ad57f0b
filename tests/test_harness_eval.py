"""lm-evaluation-harness: asked what training shows, read by exact filters, and compared row by row."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import harness_eval
import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from tiny_model import build_tiny_model
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from recipes.common.evaluation import generate, prompt_text
from recipes.common.judged import write_rows
from recipes.common.recipe_file import load_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[1]
EXAMPLE = ["1 + 1?", "<reasoning>2</reasoning><answer>2</answer>"]
ITEMS = [
    {"question": "Ann has 3 eggs and eats 1.", "answer": "3 - 1 = <<3-1=2>>2\n#### 2"},
    {"question": "What are 1,000 and 80?", "answer": "#### 1,080"},
    {"question": "{{ 7 }} less 10 is?", "answer": "#### -3"},
]


@pytest.fixture(scope="module")
def harness():
    """recipes.common.harness; without the extra `eval` a skip here, a failure on CI."""
    try:
        return importlib.import_module("recipes.common.harness")
    except ModuleNotFoundError as missing:
        if os.environ.get("CI"):
            pytest.fail(f"{missing}: CI installs the extra `eval`")
        pytest.skip(f"{missing}: pip install -e '.[eval]' -c constraints.txt")


@pytest.fixture
def quick(monkeypatch):
    """Without lm-eval's survey of the machine (pip, compilers, drivers), which takes seconds for each task."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)


@pytest.fixture(scope="module")
def recipe():
    return load_recipe(ROOT / "recipes/gsm8k/train.py")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gsm8k")
    (folder / "test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return str(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model that brings a repetition penalty of its own, as Qwen2.5-Instruct does; training uses none."""
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    GenerationConfig(repetition_penalty=2.0, eos_token_id=1, pad_token_id=0).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tasks(harness, data):
    return harness.task_manager(list(harness.OURS), data, EXAMPLE).load(list(harness.OURS))["tasks"]


@pytest.fixture(scope="module")
def lora_run(tiny, recipe, tmp_path_factory):
    """A finished LoRA run of the recipe, with an adapter that changes what the model writes."""
    folder = tmp_path_factory.mktemp("lora_run")
    torch.manual_seed(0)
    settings = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), settings).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    write_run(folder, tiny, recipe.SYSTEM_PROMPT)
    return folder


def write_run(folder, base, system_prompt):
    config = {"model_name_or_path": str(base), "model_revision": None, "example": EXAMPLE, "max_completion_length": 12}
    (folder / "run_config.json").write_text(json.dumps(config))
    prompt = [{"role": "system", "content": system_prompt}, {"role": "user", "content": "1 + 1?"}]
    write_rows(folder / "evaluation" / "before.jsonl", [{"prompt": prompt}])


def requests(task, lm, **options):
    options = {"apply_chat_template": True, "fewshot_as_multiturn": True, **options}
    task.build_all_requests(chat_template=lm.apply_chat_template, **options)
    return [instance.args[0] for instance in task.instances]


def found_by(task, response):
    """Filter -> what it reads in `response`."""
    task.build_all_requests(
        limit=1, apply_chat_template=True, chat_template=lambda messages, **_: "\n".join(m["content"] for m in messages)
    )
    task.instances[0].resps = [response]
    task.apply_filters()
    return task.instances[0].filtered_resps


def samples(values, kind="strict-match", hashes="abcdefghijkl"):
    """What lm-eval logs for one filter."""
    return [
        {"doc_id": i, "doc_hash": hashes[i], "filter": kind, "metrics": ["exact_match"], "exact_match": float(value)}
        for i, value in enumerate(values)
    ]


def result(values, **options):
    own = {"exact_match,strict-match": sum(values) / len(values), "exact_match_stderr,strict-match": 0.1}
    return {"gsm8k_recipe": {"figures": own, "samples": samples(values, **options)}}


def test_both_tasks_load_their_rows_from_a_folder_and_show_no_other_row(tasks):
    assert list(tasks) == ["gsm8k_recipe", "gsm8k_zeroshot"]
    for task in tasks.values():
        assert [dict(row) for row in task.eval_docs] == ITEMS
        assert task.config.num_fewshot == 0 and task.config.repeats == 1


def test_a_folder_without_test_rows_is_refused_with_what_to_do(harness, tmp_path):
    with pytest.raises(ValueError, match=r"test\.jsonl in the folder .* cannot be loaded.*--data FOLDER"):
        harness.task_manager(["gsm8k_zeroshot"], str(tmp_path), []).load(["gsm8k_zeroshot"])


def test_the_zeroshot_task_is_lm_evals_own_gsm8k_without_examples(harness):
    import lm_eval.tasks
    from lm_eval.tasks._yaml_loader import load_yaml

    theirs = load_yaml(Path(lm_eval.tasks.__file__).parent / "gsm8k" / "gsm8k.yaml")
    ours = load_yaml(harness.TASK_FILES / "gsm8k_zeroshot.yaml")
    for key in ("doc_to_text", "doc_to_target", "generation_kwargs", "filter_list", "metric_list", "test_split"):
        assert ours[key] == theirs[key], key
    assert (ours["num_fewshot"], theirs["num_fewshot"]) == (0, 5)


@pytest.mark.parametrize("example", [EXAMPLE, []], ids=["worked example", "none"])
def test_a_request_is_the_text_that_training_shows(harness, recipe, tiny, data, example):
    lm = harness.load_harness_model(harness.Contender(str(tiny)), batch_size=1, device="cpu")
    task = harness.task_manager(["gsm8k_recipe"], data, example).load(["gsm8k_recipe"])["tasks"]["gsm8k_recipe"]
    shown = [prompt_text(lm.tokenizer, recipe.to_row(item, example)["prompt"]) for item in ITEMS]
    assert requests(task, lm) == shown
    assert ("1 + 1?" in shown[0]) == bool(example) and recipe.SYSTEM_PROMPT in shown[0]


def test_the_chat_template_kwargs_of_the_run_reach_the_request(harness, tasks, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = "{{ mood }}" + tokenizer.chat_template
    tokenizer.save_pretrained(tmp_path)
    lm = harness.load_harness_model(
        harness.Contender(str(tmp_path)), batch_size=1, device="cpu", chat_template_kwargs={"mood": "calm"}
    )
    assert requests(tasks["gsm8k_recipe"], lm)[0].startswith("calm<|system|>")


def test_a_chat_request_gets_no_token_that_the_template_did_not_write(harness, quick, data, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    end = tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("<|end|> $A", None, [("<|end|>", end)])
    tokenizer.save_pretrained(tmp_path)
    lm = harness.load_harness_model(harness.Contender(str(tmp_path)), batch_size=1, device="cpu")
    seen = []
    lm._model_generate = lambda context, **rest: seen.append(context) or context
    harness.run_tasks(
        lm, list(harness.OURS), harness.task_manager(list(harness.OURS), data, []), limit=1, lengths={"gsm8k_recipe": 4}
    )
    recipe_ids, zeroshot_ids = (ids[0].tolist() for ids in seen)
    assert recipe_ids[0] != end and zeroshot_ids[0] == end  # the second is text: its tokens are the tokenizer's own


@pytest.mark.parametrize(
    "options",
    [{"apply_chat_template": False}, {"system_instruction": "Be brief."}],
    ids=["no chat template", "another system prompt"],
)
def test_the_recipe_task_refuses_to_ask_something_else(harness, tasks, tiny, options):
    lm = harness.load_harness_model(harness.Contender(str(tiny)), batch_size=1, device="cpu")
    with pytest.raises(ValueError, match="needs --apply_chat_template, and takes neither"):
        requests(tasks["gsm8k_recipe"], lm, **options)


def test_a_template_without_system_role_is_refused(harness, tasks, tiny):
    """lm-eval would leave the system prompt out with a warning, and measure another prompt."""
    lm = harness.load_harness_model(harness.Contender(str(tiny)), batch_size=1, device="cpu")
    lm.tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        + lm.tokenizer.chat_template
    )
    with pytest.raises(ValueError, match="leaves the system prompt out"):
        requests(tasks["gsm8k_recipe"], lm)


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        ("<reasoning>\n3 - 1\n</reasoning>\n<answer>\n2\n</answer>", "2", "2"),
        ("<answer>$1,080.50</answer>", "$1,080.50", "$1,080.50"),
        ("<answer>-3.</answer>", "-3", "-3."),
        ("<answer>1</answer> no: <answer>2</answer> or 5", "2", "5"),
        ("<answer>2 eggs</answer>", "[invalid]", "2"),
        ("<answer>1 + 1 = 2</answer>", "[invalid]", "2"),
        ("<answer>2", "[invalid]", "2"),
        ("#### 2", "[invalid]", "2"),
        ("nothing", "[invalid]", "[invalid]"),
    ],
)
def test_the_recipe_tasks_filters_read(tasks, response, strict, flexible):
    assert found_by(tasks["gsm8k_recipe"], response) == {"strict-match": strict, "flexible-extract": flexible}


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        ("3 - 1 = 2\n#### 2", "2", "2"),
        ("#### 2 or #### 3", "2", "3"),
        ("so 2, that is it", "[invalid]", "2,"),
        ("<answer>2</answer>", "[invalid]", "2"),
    ],
)
def test_the_zeroshot_tasks_filters_read(tasks, response, strict, flexible):
    assert found_by(tasks["gsm8k_zeroshot"], response) == {"strict-match": strict, "flexible-extract": flexible}


@pytest.mark.parametrize(
    ("item", "found", "right"),
    [(0, "2", 1.0), (0, "3", 0.0), (0, "[invalid]", 0.0), (0, "$2.", 1.0), (1, "1080", 1.0), (2, "3", 0.0)],
)
def test_what_was_found_is_matched_with_the_gold_number(tasks, item, found, right):
    for task in tasks.values():
        assert task.process_results(ITEMS[item], [found]) == {"exact_match": right}


def test_the_figures_of_two_runs_hold_the_exact_test(harness):
    before, after = [0] * 9 + [1], [1] * 9 + [0]  # nine rows won and one lost
    (line,) = harness.figures([result(before), result(after)])
    assert (line["task"], line["filter"], line["metric"], line["n"]) == (
        "gsm8k_recipe",
        "strict-match",
        "exact_match",
        10,
    )
    assert (line["before"], line["after"], line["difference"]) == (0.1, 0.9, pytest.approx(0.8))
    assert line["mcnemar_p"] == 0.021484375
    assert line["difference_stderr"] == pytest.approx(0.2)  # changes: nine 1, one -1; variance 0.4


def test_rows_are_paired_by_what_they_are_and_not_by_their_place(harness):
    before, after = result([1, 0]), result([1, 0])
    after["gsm8k_recipe"]["samples"].reverse()
    (line,) = harness.figures([before, after])
    assert (line["difference"], line["difference_stderr"]) == (0, 0)
    with pytest.raises(ValueError, match="not evaluated on the same rows"):
        harness.figures([result([1, 0]), result([1, 0], hashes="ax")])


def test_a_metric_that_is_not_right_or_wrong_has_no_mcnemar_p(harness):
    (line,) = harness.figures([result([0.25, 0.5]), result([0.5, 0.5])])
    assert line["difference"] == 0.125 and line["mcnemar_p"] is None
    assert re.search(r"\+0\.1250 ± 0\.1250   -$", harness.table([line]))


def test_one_run_has_one_column(harness):
    (line,) = harness.figures([result([1, 0])])
    assert set(line) == {"task", "filter", "metric", "n", "after", "after_stderr"}
    shown = ["gsm8k_recipe", "strict-match", "exact_match", "2", "0.5000", "±", "0.1000"]
    assert harness.table([line]).splitlines()[1].split() == shown


def test_a_run_folder_names_what_it_started_from(harness, lora_run, tiny, tmp_path):
    run, base, saved = str(lora_run), str(tiny), harness.Contender
    assert harness.contenders(run) == [saved(base, None, run), saved(base, run, run)]
    assert harness.contenders(run, against="other") == [saved("other"), saved(base, run, run)]
    full = shutil.copytree(tiny, tmp_path / "full")
    assert harness.contenders(str(full)) == [saved(str(full))]  # nothing says what it started from
    write_run(full, "org/base", "")
    assert harness.contenders(str(full)) == [saved("org/base", None, str(full)), saved(str(full))]
    checkpoint = shutil.copytree(tiny, full / "checkpoint-2")
    assert harness.contenders(str(checkpoint)) == [saved("org/base", None, str(checkpoint)), saved(str(checkpoint))]


def test_a_hub_id_is_one_column_and_an_adapter_or_another_model_makes_it_two(harness):
    saved = harness.Contender
    assert harness.contenders("org/m") == [saved("org/m")]
    assert harness.contenders("org/m", against="org/b") == [saved("org/b"), saved("org/m")]
    assert harness.contenders("org/m", adapter="org/a") == [saved("org/m"), saved("org/m", "org/a")]


def test_a_run_without_weights_is_refused(harness, tmp_path, tiny):
    write_run(tmp_path, tiny, "")
    with pytest.raises(ValueError, match="holds no weights"):
        harness.contenders(str(tmp_path))


def test_the_prompt_of_a_run_is_used_when_the_run_was_of_this_recipe(harness, lora_run, tiny, tmp_path):
    expected = {"example": EXAMPLE, "chat_template_kwargs": None, "max_gen_toks": 12}
    assert harness.asked_as(str(lora_run)) == expected
    nothing = {"example": [], "chat_template_kwargs": None, "max_gen_toks": None}
    write_run(tmp_path, tiny, "Another recipe's prompt.")
    assert harness.asked_as(str(tmp_path)) == harness.asked_as("org/model") == nothing
    given = harness.asked_as(str(tmp_path), ROOT / "recipes/gsm8k/smollm2-135m.yaml")
    assert given["max_gen_toks"] == 160 and given["example"][0].startswith("Tom buys 3 boxes")
    with pytest.raises(ValueError, match="no YAML of gsm8k"):
        harness.asked_as("org/model", ROOT / "recipes/arithmetic/quickstart.yaml")


def run_script(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["harness_eval.py", *map(str, words)])
    harness_eval.main()


@pytest.mark.slow
def test_a_run_is_evaluated_before_and_after_as_its_own_evaluation_would(
    harness, quick, recipe, lora_run, tiny, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    output = tmp_path / "harness.json"
    words = ["--model", lora_run, "--data", data, "--tasks", "gsm8k_recipe", "--batch_size", 1, "--device", "cpu"]
    run_script(monkeypatch, *words, "--output", output)
    found = json.loads(output.read_text())
    assert found["models"] == {"before": str(tiny), "after": f"{tiny} + {lora_run}"}
    assert found["versions"]["lm_eval"] == metadata.version("lm_eval")
    assert found["command"][1:] == ["harness_eval.py", *map(str, words), "--output", str(output)]
    assert [(line["filter"], line["n"]) for line in found["figures"]] == [("strict-match", 3), ("flexible-extract", 3)]
    table = capsys.readouterr().out
    assert "McNemar p" in table and len(re.findall(r"gsm8k_recipe +(strict-match|flexible-extract)", table)) == 2
    strict = [row for row in found["rows"] if row["filter"] == "strict-match"]
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    rows = [recipe.to_row(item, EXAMPLE) for item in ITEMS]
    assert [row["request"] for row in strict] == [prompt_text(tokenizer, row["prompt"]) for row in rows]
    for when, model in (("before", AutoModelForCausalLM), ("after", AutoPeftModelForCausalLM)):
        model = model.from_pretrained(tiny if when == "before" else lora_run).eval()
        told = {"max_new_tokens": 12, "decoding": {"repetition_penalty": 1.0}}
        ours = [generate(model, tokenizer, [row], **told)[0].text for row in rows]
        assert [row[when]["response"] for row in strict] == ours
    assert [row["before"]["response"] for row in strict] != [row["after"]["response"] for row in strict]


def test_a_wrong_name_is_named(harness, monkeypatch, tmp_path, data):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit, match=r"error: model .*/none cannot be loaded"):
        run_script(monkeypatch, "--model", tmp_path / "none", "--data", data, "--tasks", "gsm8k_recipe")


def test_under_a_launcher_it_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="start it with python"):
        run_script(monkeypatch, "--model", "org/model")


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(SystemExit, match=re.escape("pip install -e '.[eval]' -c constraints.txt")):
        run_script(monkeypatch, "--model", "org/model")


def test_help_answers_at_once():
    start = time.monotonic()
    words = [sys.executable, ROOT / "scripts/harness_eval.py", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert time.monotonic() - start < 2 and "--against" in done.stdout
