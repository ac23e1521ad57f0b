"""lm-evaluation-harness: tasks show what training shows, filters are exact, rows are compared."""

import json
import os
import sys
from pathlib import Path

import compare_lm_eval
import pytest
from support.launching import run
from support.tiny_model import build_tiny_model
from transformers import AutoTokenizer

from recipes.common.data.recipe import import_recipe

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "recipes" / "gsm8k" / "lm_eval"
EXAMPLE = ["1 + 1?", "<reasoning>2</reasoning><answer>2</answer>"]
ITEMS = [
    {"question": "Ann has 3 eggs and eats 1.", "answer": "3 - 1 = <<3-1=2>>2\n#### 2"},
    {"question": "What are 1,000 and 80?", "answer": "#### 1,080"},
    {"question": "{{ 7 }} less 10 is?", "answer": "#### -3"},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gsm8k")
    (folder / "test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return str(folder)


@pytest.fixture(scope="module")
def load():
    """The two tasks with this metadata; without the extra `eval` a skip here, a failure on CI."""
    if os.environ.get("CI"):
        import lm_eval.tasks as found
    else:
        found = pytest.importorskip(
            "lm_eval.tasks", reason="pip install -e '.[eval]' -c constraints.txt"
        )
    names = ["gsm8k_recipe", "gsm8k_zeroshot"]
    return lambda **metadata: found.TaskManager(
        include_path=str(FOLDER), include_defaults=False, metadata=metadata
    ).load(names)["tasks"]


@pytest.fixture(scope="module")
def tasks(load, data):
    return load(data=data, example=EXAMPLE)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(build_tiny_model(tmp_path_factory.mktemp("tiny")))


def requests(task, tokenizer, **options):
    def template(messages, **_):
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    options = {"apply_chat_template": True, "fewshot_as_multiturn": True, **options}
    task.build_all_requests(chat_template=template, **options)
    return [instance.args[0] for instance in task.instances]


@pytest.mark.parametrize("example", [EXAMPLE, []], ids=["worked example", "none"])
def test_a_request_is_the_text_that_training_shows(load, data, tokenizer, example):
    recipe = import_recipe(FOLDER.parent / "train.py")
    prompts = [recipe.to_row(item, example)["prompt"] for item in ITEMS]
    shown = tokenizer.apply_chat_template(prompts, tokenize=False, add_generation_prompt=True)
    assert requests(load(data=data, example=example)["gsm8k_recipe"], tokenizer) == shown
    assert ("1 + 1?" in shown[0]) == bool(example) and recipe.SYSTEM_PROMPT in shown[0]


@pytest.mark.parametrize(
    "options", [{"apply_chat_template": False}, {"system_instruction": "Be brief."}]
)
def test_the_recipe_task_refuses_to_ask_something_else(tasks, tokenizer, options):
    with pytest.raises(ValueError, match="needs --apply_chat_template, and takes neither"):
        requests(tasks["gsm8k_recipe"], tokenizer, **options)


def test_a_template_without_the_system_prompt_and_a_folder_without_test_rows_are_refused(
    load, tasks, tmp_path
):
    with pytest.raises(ValueError, match="leaves the system prompt out"):
        tasks["gsm8k_recipe"].fewshot_context(
            ITEMS[0], 0, None, True, True, lambda messages: messages[-1]["content"]
        )
    with pytest.raises(ValueError, match=r"test\.jsonl in the folder .* cannot be loaded"):
        load(data=str(tmp_path))


def test_the_zeroshot_task_is_lm_evals_own_gsm8k_without_examples(tasks):
    import lm_eval.tasks
    from lm_eval.tasks._yaml_loader import load_yaml

    theirs = load_yaml(Path(lm_eval.tasks.__file__).parent / "gsm8k" / "gsm8k.yaml")
    ours = load_yaml(FOLDER / "gsm8k_zeroshot.yaml")
    for key in (
        "doc_to_text",
        "doc_to_target",
        "generation_kwargs",
        "filter_list",
        "metric_list",
        "test_split",
    ):
        assert ours[key] == theirs[key], key
    assert (ours["num_fewshot"], theirs["num_fewshot"]) == (0, 5)


@pytest.mark.parametrize(
    ("task", "response", "strict", "flexible"),
    [
        ("recipe", "<reasoning>\n3 - 1\n</reasoning>\n<answer>\n2\n</answer>", "2", "2"),
        ("recipe", "<answer>$1,080.50</answer>", "$1,080.50", "$1,080.50"),
        ("recipe", "<answer>-3.</answer>", "-3", "-3."),
        ("recipe", "<answer>1</answer> no: <answer>2</answer> or 5", "2", "5"),
        ("recipe", "<reasoning>\n3 - 1\n</reasoning>\n<answer>\n#### 2\n</answer>", "2", "2"),
        ("recipe", "<answer>2 eggs</answer>", "[invalid]", "2"),
        ("recipe", "<answer>1 + 1 = 2</answer>", "[invalid]", "2"),
        ("recipe", "<answer>2", "[invalid]", "2"),
        ("recipe", "#### 2", "[invalid]", "2"),
        ("recipe", "nothing", "[invalid]", "[invalid]"),
        ("zeroshot", "3 - 1 = 2\n#### 2", "2", "2"),
        ("zeroshot", "<reasoning>\n3 - 1\n</reasoning>\n<answer>\n#### 2\n</answer>", "2", "2"),
        ("zeroshot", "#### 2 or #### 3", "2", "3"),
        ("zeroshot", "so 2, that is it", "[invalid]", "2,"),
        ("zeroshot", "<answer>2</answer>", "[invalid]", "2"),
    ],
)
def test_the_filters_read(tasks, tokenizer, task, response, strict, flexible):
    task = tasks[f"gsm8k_{task}"]
    requests(task, tokenizer, limit=1)
    task.instances[0].resps = [response]
    task.apply_filters()
    assert task.instances[0].filtered_resps == {
        "strict-match": strict,
        "flexible-extract": flexible,
    }


def write_samples(
    folder, values, task="gsm8k_recipe", date="2026-11-21T23-51-25.170752", changed=None
):
    """Write what lm-eval 0.4.13 logs, as far as it is read here."""
    file = folder / "__models__m" / f"samples_{task}_{date}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    keys = {"filter": "strict-match", "metrics": ["exact_match"]}
    rows = [{"doc_id": i, "doc_hash": f"hash {i}", **keys, "exact_match": v} for i, v in values]
    file.write_text("".join(json.dumps(row | (changed or {})) + "\n" for row in rows))
    return folder


def test_rows_are_paired_by_what_they_are_and_the_test_is_exact(tmp_path):
    """Nine rows won and one lost."""
    before = write_samples(tmp_path / "before", [(i, float(i == 9)) for i in range(10)])
    after = write_samples(tmp_path / "after", [(i, float(i != 9)) for i in reversed(range(10))])
    assert compare_lm_eval.compare(before, after).splitlines()[1].split() == [
        *("gsm8k_recipe", "strict-match", "exact_match", "10", "10.0", "%", "90.0", "%"),
        *("+80.0", "pt", "(+24", "to", "+100)", "0.021"),
    ]


def test_samples_that_cannot_be_paired_are_refused(tmp_path):
    before = write_samples(tmp_path / "before", [(0, 1.0), (1, 0.0)])
    for name, options in (
        ("row", {"changed": {"doc_hash": "x"}}),
        ("task", {"task": "gsm8k_zeroshot"}),
    ):
        after = write_samples(tmp_path / f"other {name}", [(0, 1.0), (1, 0.0)], **options)
        with pytest.raises(
            ValueError, match=rf"not the same rows: 2 rows in .*before, [02] in .*other {name}"
        ):
            compare_lm_eval.compare(before, after)
    write_samples(before, [(0, 1.0)], date="2026-11-22T00-00-00.000000")
    for name in ("before", "none"):
        with pytest.raises(
            ValueError, match=f"{name} must hold one samples_TASK_DATE.jsonl for each task"
        ):
            compare_lm_eval.read_samples(tmp_path / name)


@pytest.mark.slow
def test_what_lm_eval_writes_is_what_the_comparison_reads(load, data, tmp_path):
    for seed, name in enumerate(("before", "after")):
        model = build_tiny_model(tmp_path / f"model-{name}", seed)
        words = f"run --model hf --model_args pretrained={model} --include_path {FOLDER}"
        words += " --apply_chat_template --tasks gsm8k_recipe --gen_kwargs max_gen_toks=8"
        words += " --device cpu --batch_size 1 --log_samples"
        words = [*words.split(), "--output_path", tmp_path / name]
        words += ["--metadata", json.dumps({"data": data})]
        run([sys.executable, "-m", "lm_eval", *map(str, words)])
    lines = compare_lm_eval.compare(tmp_path / "before", tmp_path / "after").splitlines()[1:]
    found = ["strict-match", *["exact_match", "3", "0.0", "%", "0.0", "%", "+0.0", "pt"]]
    assert [line.split()[1:10] for line in lines] == [["flexible-extract", *found[1:]], found]
