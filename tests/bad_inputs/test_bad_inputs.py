"""Each bad input is refused in words before a model loads, and leaves nothing behind."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from bad_inputs import cases
from safetensors.torch import load_file, save_file
from trl import ModelConfig

from recipes.common.checks.preflight import preflight
from recipes.common.data.questions import QuestionArguments
from recipes.common.data.recipe import import_recipe, load_parts, load_recipe
from recipes.common.limits import CHOICES, RANGE_OF
from recipes.common.settings import parse_arguments
from recipes.common.trainer import GRPOConfig

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "dataset_path": "data",
    "reward_funcs": ["xml_format", "gsm8k_correctness"],
    "num_generations": 2,
    "per_device_train_batch_size": 4,
    "max_steps": 4,
    "max_completion_length": 256,
    "output_dir": "run",
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
}
LINE = '{{"question": "{0} + 1 =", "answer": "so #### {1}"}}\n'
FILES = {"train": "".join(LINE.format(n, n + 1) for n in range(1, 5)), "test": LINE.format(90, 91)}
OF_ROWS = {"dataset_path", "dataset_config", "question_column"}
recipe_of = cache(lambda name: import_recipe(ROOT / "recipes" / name / "train.py"))


@cache
def sound_rows():
    """The rows of FILES, read once: a third of the time of a case whose settings are wrong."""
    recipe = recipe_of("gsm8k")
    return recipe.load_rows(recipe.RecipeArguments(dataset_path="data"), seed=0)


def write(file: str, content: str | bytes | None) -> None:
    if content is not None:
        Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch, model: Path) -> Callable[..., list[str]]:
    """The problems of a run that is sound but for what is changed."""
    monkeypatch.setenv("NETRC", os.devnull)  # without a login at W&B
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()

    def problems(recipe="gsm8k", settings=None, words=(), text=None, **files) -> list[str]:
        content = {"model_name_or_path": str(model), **SETTINGS, **(settings or {})}
        write("run.yaml", yaml.safe_dump(content) if text is None else text)
        for name, lines in ({} if recipe == "math" else FILES | files).items():
            write(f"data/{name}.jsonl", lines)
        module = recipe_of(recipe)
        args = parse_arguments(module.RecipeArguments, ["--config", "run.yaml", *words])
        is_read = recipe == "math" or files or OF_ROWS & (settings or {}).keys()
        load_rows = module.load_rows if is_read else lambda *_: sound_rows()
        preflight(args, load_parts(args, load_rows), module.reference_completion)
        assert sorted(os.listdir()) == ["data", "run.yaml"], "a refused run leaves nothing"
        return args.problems

    return problems


def assert_refused(problems: list[str], words: tuple[str, ...]) -> None:
    """One of the problems has all the words."""
    assert any(all(word in problem for word in words) for problem in problems), problems


def table(rows: list[tuple]) -> pytest.MarkDecorator:
    """Cases by their words, of which a test gets the input and the words."""
    pairs = [(row[0], row[1:]) for row in rows]
    return pytest.mark.parametrize(("given", "words"), pairs, ids=[row[1] for row in rows])


def test_the_run_without_a_change_is_sound(refusal):
    assert refusal() == []
    assert refusal(train="\ufeff" + FILES["train"]) == [], "a byte order mark"


@table(
    [
        ({name: value}, name, words)
        for words, settings in cases.VALUES.items()
        for name, values in settings.items()
        for value in values
    ]
    + cases.SETTINGS
)
def test_settings(given, words, refusal):
    assert_refused(refusal(settings=given), words)


@pytest.mark.parametrize(("engine", "settings"), [*cases.TOOLS_ON_TWO, ("ZeRO-2", {})])
def test_tools_on_two_processes(engine, settings, refusal, monkeypatch):
    monkeypatch.setattr("recipes.common.limits.asked_engine", lambda: engine)
    monkeypatch.setattr("recipes.common.limits.world_size", lambda: 2)
    problems = refusal(settings={"tools": [f"{cases.CALCULATOR}:value_of"], **settings})
    refused = any("Use DDP, ZeRO-1 or ZeRO-2, or one process." in problem for problem in problems)
    assert refused == (engine != "ZeRO-2")


def test_every_setting_with_a_range_or_with_choices_exists():
    kinds = (QuestionArguments, GRPOConfig, ModelConfig)
    fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert RANGE_OF.keys() | CHOICES.keys() <= fields


@table(cases.YAML)
def test_yaml(given, words, refusal):
    assert_refused(refusal(text=given), words)


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ({"reward_funcs": {"xml_format": 1.0}}, 1),
        ({"reward_funcs": None, "dataset_path": ["data"], "model_name_or_path": 5}, 3),
        ({"reward_kwargs": "{'a': 1"}, 1),
        ({"reward_gates": {"xml_format": 5}}, 1),
    ],
)
def test_what_is_refused_is_not_reported_in_other_words_as_well(settings, problems, refusal):
    assert len(refusal(settings=settings)) == problems


def test_a_pipe_is_refused_where_reading_it_would_wait_for_ever(refusal, tmp_path_factory):
    pipe = tmp_path_factory.mktemp("pipes") / "train.jsonl"
    os.mkfifo(pipe)
    args = parse_arguments(recipe_of("gsm8k").RecipeArguments, ["--config", str(pipe)])
    assert_refused(args.problems, ("it is not an ordinary file",))
    for settings in (
        {"dataset_path": str(pipe)},
        {"dataset_path": None, "only_rows": str(pipe)},
        {"chat_template_path": str(pipe)},
        {"reward_funcs": [f"{pipe}:mine", "xml_format"]},
    ):
        assert_refused(refusal(settings=settings), ("a pipe: give an ordinary file",))
    words = ("nor a folder that holds some",)
    assert_refused(refusal(settings={"dataset_path": str(pipe.parent)}), words)


def test_a_yaml_that_is_not_there_is_named_and_not_the_recipe_beside_it():
    with pytest.raises(ValueError, match=r"there is no file recipes/gsm8k/qwen\.yaml"):
        load_recipe(Path("recipes/gsm8k/qwen.yaml"), [])


@table(cases.WORDS)
def test_words_of_the_command_line(given, words, refusal):
    assert_refused(refusal(words=given), words)


@table(cases.ENV)
def test_the_environment(given, words, refusal, monkeypatch):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (problem,) = refusal()
    assert_refused([problem], words)


def test_more_processes_than_gpus(refusal, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    words = ("8 processes were started", "4 GPUs are visible: start one for each GPU")
    assert_refused(refusal(settings={"use_cpu": False}), words)


@table(
    [({"train": lines}, *words) for lines, *words in cases.TRAIN]
    + [({"test": lines}, *words) for lines, *words in cases.TEST]
)
def test_rows(given, words, refusal):
    assert_refused(refusal(**given), words)


@table(cases.FILES)
def test_files_of_questions(given, words, refusal):
    name, content, settings = given
    write(f"data/{name}", content)
    usual = {"dataset_path": f"data/{name}", "reward_funcs": ["boxed_math"]}
    assert_refused(refusal("math", usual | settings), words)


@table(cases.REWARDS)
def test_rewards(given, words, refusal):
    write("data/mine.py", given)
    names = ["gsm8k_correctness", "data/mine.py:mine"]
    settings = {"reward_funcs": names, "reward_timeout_s": 1.0}
    assert_refused(refusal(settings=settings), words)


@table(cases.TOOLS)
def test_tools(given, words, refusal):
    write("data/mine.py", given)
    file = Path("data/mine.py").resolve()  # what is loaded by a name is loaded once
    settings = {"tools": [f"{file}:find"]} if "def find" in given else {}
    settings |= {"environment_factory": f"{file}:Game"} if "class Game" in given else {}
    assert_refused(refusal(settings=settings), words)


# What a name stands for in the table: a change of each weight, by its name and value, or none.
WEIGHTS = {
    "without a layer": lambda name, w: None if ".layers.1." in name else (name, w),
    "names of a wrapper": lambda name, w: (f"module.{name}", w),  # DataParallel's
}


def change_model(folder: Path, change: str | dict) -> None:
    weights = folder / "model.safetensors"
    if isinstance(change, dict):
        for name, content in change.items():
            if isinstance(content, dict):  # values of a JSON file; None takes one out
                file = folder / f"{name}.json"
                values = {**json.loads(file.read_text()), **content}
                content = json.dumps({k: v for k, v in values.items() if v is not None})
                name = file.name
            (folder / name).write_text(content)
    elif change in WEIGHTS:
        changed = [WEIGHTS[change](*item) for item in load_file(weights).items()]
        save_file(dict(filter(None, changed)), weights, metadata={"format": "pt"})
    else:
        (folder / change.removeprefix("no ")).unlink()


@table(cases.MODELS)
def test_models(given, words, refusal, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(model, folder)
    change_model(folder, given)
    assert_refused(refusal(settings={"model_name_or_path": str(folder)}), words)


def test_an_adapter_as_a_model(refusal, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    words = ("it is an adapter (LoRA) of org/base, not a model", "save model and tokenizer")
    assert_refused(refusal(settings={"model_name_or_path": str(folder)}), words)


@table(cases.NAMES)
def test_names_of_models(given, words, refusal, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert_refused(refusal(settings={"model_name_or_path": given}), words)


def test_a_language_model_as_a_reward_model(refusal, model):
    words = ("is a LlamaForCausalLM: its scores would come from a random head",)
    assert_refused(refusal(settings={"reward_funcs": ["xml_format", str(model)]}), words)


def test_rows_of_the_hub_without_a_network(refusal, monkeypatch):
    def fails(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub")

    monkeypatch.setattr("recipes.common.data.files.load_dataset", fails)
    assert_refused(refusal(settings={"dataset_path": None}), ("ConnectionError", "Couldn't reach"))


def test_a_setting_that_a_recipe_does_not_use():
    args = parse_arguments(recipe_of("arithmetic").RecipeArguments, ["--dataset_path", "x"])
    assert args.problems == ["dataset_path is 'x'; this recipe does not use it: leave it out."]


def test_parameters_that_a_data_set_of_reasoning_gym_does_not_take():
    recipe = recipe_of("arithmetic")
    args = recipe.RecipeArguments(dataset_name="chain_sum", dataset_kwargs={"operators": ["+"]})
    message = "chain_sum does not take dataset_kwargs.*unexpected keyword argument 'operators'"
    with pytest.raises(ValueError, match=message):
        recipe.load_rows(args, seed=0)
