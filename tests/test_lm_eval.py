"""lm-evaluation-harness: its tasks show what training shows, and their filters read exactly."""

import json
import os
from pathlib import Path

import pytest
from support.launching import ROOT
from transformers import AutoTokenizer

from recipes.common.data.recipe import import_recipe

FOLDER = ROOT / "recipes" / "gsm8k" / "lm_eval"
EXAMPLE = ["1 + 1?", "<reasoning>2</reasoning><answer>2</answer>"]
ITEMS = [
    {"question": "Ann has 3 eggs and eats 1.", "answer": "3 - 1 = <<3-1=2>>2\n#### 2"},
    {"question": "{{ 7 }} less 10 is?", "answer": "#### -3"},
]


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """The two tasks with this metadata; without the extra `eval` a skip here, a failure on CI."""
    if not os.environ.get("CI"):
        pytest.importorskip("lm_eval.tasks", reason="pip install -e '.[eval]' -c constraints.txt")
    from lm_eval.tasks import TaskManager

    folder = tmp_path_factory.mktemp("gsm8k")
    (folder / "test.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))

    def tasks(**metadata):
        options = {"include_path": str(FOLDER), "include_defaults": False}
        manager = TaskManager(**options, metadata={"data": str(folder), **metadata})
        return manager.load(["gsm8k_recipe", "gsm8k_zeroshot"])["tasks"]

    return tasks


@pytest.fixture(scope="module")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


def requests(task, tokenizer, **options):
    def template(messages, **_):
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    options = {"apply_chat_template": True, "fewshot_as_multiturn": True, **options}
    task.build_all_requests(chat_template=template, **options)
    return [instance.args[0] for instance in task.instances]


@pytest.mark.parametrize("example", [EXAMPLE, []], ids=["worked example", "none"])
def test_a_request_is_the_text_that_training_shows(load, tokenizer, example):
    recipe = import_recipe(FOLDER.parent / "train.py")
    prompts = [recipe.to_row(item, example)["prompt"] for item in ITEMS]
    shown = tokenizer.apply_chat_template(prompts, tokenize=False, add_generation_prompt=True)
    assert requests(load(example=example)["gsm8k_recipe"], tokenizer) == shown
    assert ("1 + 1?" in shown[0]) == bool(example) and recipe.SYSTEM_PROMPT in shown[0]


@pytest.mark.parametrize(
    "options", [{"apply_chat_template": False}, {"system_instruction": "Be brief."}]
)
def test_the_recipe_task_refuses_to_ask_something_else(load, tokenizer, options):
    with pytest.raises(ValueError, match="needs --apply_chat_template, and takes neither"):
        requests(load()["gsm8k_recipe"], tokenizer, **options)


def test_a_template_without_the_system_prompt_is_refused(load):
    def last_message_alone(messages):
        return messages[-1]["content"]

    task = load()["gsm8k_recipe"]
    with pytest.raises(ValueError, match="leaves the system prompt out"):
        task.fewshot_context(ITEMS[0], 0, None, True, True, last_message_alone)


def test_the_zeroshot_task_is_lm_evals_own_gsm8k_without_examples(load):
    import lm_eval.tasks
    from lm_eval.tasks._yaml_loader import load_yaml

    theirs = load_yaml(Path(lm_eval.tasks.__file__).parent / "gsm8k" / "gsm8k.yaml")
    ours = load_yaml(FOLDER / "gsm8k_zeroshot.yaml")
    same = "doc_to_text doc_to_target generation_kwargs filter_list metric_list test_split"
    assert {key: ours[key] for key in same.split()} == {key: theirs[key] for key in same.split()}
    assert (ours["num_fewshot"], theirs["num_fewshot"]) == (0, 5)


@pytest.mark.parametrize(
    ("task", "response", "strict", "flexible"),
    [
        ("recipe", "<reasoning>\n3 - 1\n</reasoning>\n<answer>\n2\n</answer>", "2", "2"),
        ("recipe", "<answer>$1,080.50</answer>", "$1,080.50", "$1,080.50"),
        ("recipe", "<answer>-3.</answer>", "-3", "-3."),
        ("recipe", "<answer>1</answer> no: <answer>2</answer> or 5", "2", "5"),  # the last tag
        ("recipe", "<answer>\n#### 2\n</answer>", "2", "2"),
        ("recipe", "<answer>2 eggs</answer>", "[invalid]", "2"),  # a number alone
        ("recipe", "<answer>2", "[invalid]", "2"),  # not closed
        ("zeroshot", "<answer>\n#### 2\n</answer>", "2", "2"),  # as harness.yaml teaches it
    ],
)
def test_the_filters_read(load, tokenizer, task, response, strict, flexible):
    task = load()[f"gsm8k_{task}"]
    requests(task, tokenizer, limit=1)
    task.instances[0].resps = [response]
    task.apply_filters()
    read = task.instances[0].filtered_resps
    assert read == {"strict-match": strict, "flexible-extract": flexible}
