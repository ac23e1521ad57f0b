"""Each bad input is refused in words before a model loads, and leaves nothing behind."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from bad_inputs import cases
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from trl import ModelConfig

from recipes.common.checks import model_files
from recipes.common.checks.combinations import check_generation
from recipes.common.checks.model_files import length_notes
from recipes.common.checks.preflight import preflight
from recipes.common.data.questions import QuestionArguments
from recipes.common.data.recipe import import_recipe, load_parts
from recipes.common.limits import CHOICES, LIMIT_OF
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
recipe_of = cache(lambda name: import_recipe(ROOT / "recipes" / name / "any.yaml"))


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path
) -> Callable[..., list[str]]:
    """The problems of a run that is sound but for what a test changes."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    files = {"train": "".join(LINE.format(n, n + 1) for n in range(4)), "test": LINE.format(90, 91)}

    def problems(
        settings=None,
        words=(),
        text=None,
        reward=None,
        train=files["train"],
        test=files["test"],
        recipe="gsm8k",
    ) -> list[str]:
        whole = {"model_name_or_path": str(model), **SETTINGS, **(settings or {})}
        if reward is not None:
            Path("data", "mine.py").write_text(reward)
            whole |= {
                "reward_funcs": ["gsm8k_correctness", "data/mine.py:mine"],
                "reward_timeout_s": 60.0,
            }
        content = yaml.safe_dump(whole) if text is None else text
        Path("run.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        for name, lines in (("train", train), ("test", test)):
            if lines is not None:
                Path("data", f"{name}.jsonl").write_bytes(
                    lines if isinstance(lines, bytes) else lines.encode()
                )
        recipe = recipe_of(recipe)
        args = parse_arguments(recipe.RecipeArguments, ["--config", "run.yaml", *words])
        (rewards, train_rows, held_out, validation), found = load_parts(args, recipe.load_rows)
        result = preflight(
            args, train_rows, held_out, rewards, recipe.reference_completion, found, validation
        )
        assert sorted(os.listdir()) == ["data", "run.yaml"], "a refused run leaves nothing"
        return result.problems

    return problems


def assert_refused(problems: list[str], words: tuple[str, ...]) -> None:
    """One of the problems has all the words."""
    assert any(all(word in problem for word in words) for problem in problems), problems


def test_the_run_without_a_change_is_sound(refusal):
    assert refusal() == []
    assert (
        refusal(train=("\ufeff" + LINE.format(1, 2) + LINE.format(2, 3)), test=LINE.format(7, 8))
        == []
    ), "a BOM"


@pytest.mark.parametrize("case", cases.SETTINGS)
def test_settings(case, refusal):
    settings, *words = cases.SETTINGS[case]
    problems = refusal(settings)
    assert_refused(problems, words)
    assert len(problems) == 1 or case.startswith(cases.FOLLOWED), problems


def test_every_field_with_a_range_or_with_choices_exists():
    fields = {
        field.name
        for kind in (QuestionArguments, GRPOConfig, ModelConfig)
        for field in dataclasses.fields(kind)
    }
    assert LIMIT_OF.keys() | CHOICES.keys() <= fields


def test_generation_kwargs_of_vllm_are_its_own():
    given = {"generation_kwargs": {"stop": ["."]}}
    assert check_generation({**given, "use_vllm": True}) == []
    assert_refused(check_generation({**given, "use_vllm": False}), ["generation_kwargs has stop"])


OTHERS = {  # name -> (what is changed of the sound run, the words of the refusal)
    f"{title}: {name}": ({argument: given}, words)
    for title, argument, table in (
        ("YAML", "text", cases.TEXTS),
        ("a command line", "words", cases.WORDS),
        ("train.jsonl", "train", cases.TRAIN_FILES),
        ("test.jsonl", "test", cases.TEST_FILES),
        ("a reward", "reward", cases.REWARDS),
    )
    for name, (given, *words) in table.items()
}


@pytest.mark.parametrize("case", OTHERS)
def test_texts_words_files_and_rewards(case, refusal):
    given, words = OTHERS[case]
    assert_refused(refusal(**given), words)


def test_all_values_that_cannot_be_read_are_named_at_once(refusal):
    wanted = [
        "max_steps is 'many'; it must be a whole number.",
        "beta is 'x'; it must be a number.",
    ]
    assert refusal(words=["--max_steps", "many", "--beta", "x"]) == wanted


@pytest.mark.parametrize("case", cases.QUESTION_FILES)
def test_question_files(case, refusal):
    file, content, *words = cases.QUESTION_FILES[case]
    for name in {None: [], "a.jsonl": ["a.jsonl", "b.jsonl"]}.get(file, [file]):
        Path("data", name).write_bytes(content if isinstance(content, bytes) else content.encode())
    given = cases.QUESTION_SETTINGS.get(case, {})
    whole = {"dataset_path": f"data/{file}", "reward_funcs": ["boxed_math"], **given}
    assert_refused(refusal(whole, train=None, test=None, recipe="math"), words)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text)


def with_values(name: str, **values) -> Callable[[Path], None]:
    """Set values of a JSON file; None takes one out."""

    def change(folder: Path) -> None:
        content = {**json.loads((folder / name).read_text()), **values}
        (folder / name).write_text(
            json.dumps({key: value for key, value in content.items() if value is not None})
        )

    return change


def with_bytes(change: Callable[[bytearray], bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(change(bytearray(weights.read_bytes())))

    return write


def with_weights(change: Callable[[str, torch.Tensor], tuple[str, torch.Tensor] | None]):
    """Change the name and the value of each weight; None takes it out."""

    def write(folder: Path) -> None:
        file = folder / "model.safetensors"
        changed = [change(*item) for item in load_file(file).items()]
        save_file(dict(filter(None, changed)), file, metadata={"format": "pt"})

    return write


def as_an_adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


without_a_layer = with_weights(lambda name, w: None if ".layers.1." in name else (name, w))
with_names_of_a_wrapper = with_weights(lambda name, w: (f"module.{name}", w))  # DataParallel's
with_nan = with_weights(lambda name, w: (name, torch.full_like(w, float("nan"))))
with_zeros = with_weights(lambda name, w: (name, torch.zeros_like(w)))
with_a_weight_renamed = with_weights(
    lambda name, w: (name.replace("layers.1.mlp.down_proj", "layers.1.mlp.down"), w)
)
with_few_embeddings = with_weights(lambda name, w: (name, w[:50].clone() if "embed" in name else w))
cut_short = with_bytes(lambda content: content[:-100])
with_a_damaged_header = with_bytes(lambda content: content[:9] + b"\0" + content[10:])
LOOPS = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
)
# fmt: off
MODELS = {
    "no config": (without("config.json"), "it has no config.json"),
    "an adapter": (as_an_adapter, "it is a LoRA adapter; merge it"),
    "a damaged config": (
        with_text("config.json", '{"model_type": "llama"'), "config.json cannot be read (JSON",
    ),
    "a config of nothing": (with_text("config.json", "{}"), "its config.json has no model_type"),
    "an unknown architecture": (
        with_values("config.json", model_type="lama"), "config or tokenizer cannot be read",
    ),
    "no tokenizer": (without("tokenizer.json"), "it has no tokenizer"),
    "a damaged tokenizer": (
        with_text("tokenizer.json", "{"), "tokenizer.json cannot be read (JSON",
    ),
    "no weights": (without("model.safetensors"), "there are no weights"),
    "weights cut short": (cut_short, "model.safetensors cannot be read (SafetensorError"),
    "empty weights": (
        with_text("model.safetensors", ""), "model.safetensors cannot be read (SafetensorError",
    ),
    "a damaged header": (with_a_damaged_header, "model.safetensors cannot be read (Saf"),
    "a Git LFS pointer": (
        with_text("model.safetensors", "version https://git-lfs"),
        "model.safetensors cannot be read (SafetensorError",
    ),
    "a part that is missing": (
        with_text(
            "model.safetensors.index.json", '{"weight_map": {"a": "model-00002.safetensors"}}'
        ),
        "model-00002.safetensors is missing",
    ),
    "a damaged index": (
        with_text("model.safetensors.index.json", "[]"), "index.json has no weight_map",
    ),
    "a layer that is missing": (
        without_a_layer, "its weights lack model.layers.1.", "would start at random",
    ),
    "weights of other names": (
        with_names_of_a_wrapper, "its weights have other names than the model's",
        "module.model.embed_tokens.weight", "the model would start at random",
    ),
    "a template that drops the question": (
        with_text("chat_template.jinja", "{% for m in messages %}<|{{ m['role'] }}|>{% endfor %}"),
        "its chat template leaves out the question of row 0", "'0 + 1 ='",
    ),
    "no end token": (
        with_values("tokenizer_config.json", eos_token=None, pad_token=None),
        "its tokenizer has neither an end token nor a pad token",
    ),
    "no chat template": (without("chat_template.jinja"), "its tokenizer has no chat template"),
    "a template without a system role": (
        with_text("chat_template.jinja", NO_SYSTEM),
        "its chat template does not take the messages of the rows", "no system role",
    ),
    "a weight of another name": (
        with_a_weight_renamed, "its weights lack model.layers.1.mlp.down_proj.weight",
        "would start at random",
    ),
    "a config of another width": (
        with_values("config.json", intermediate_size=48), "mlp.gate_proj.weight has the shape",
    ),
    "zeros for weights": (with_zeros, "its weights are all 0"),
    "NaN for weights": (with_nan, "its weights are no numbers (the first: "),
    "a tokenizer larger than the embedding": (
        with_values("config.json", vocab_size=50), "and its embedding 50 rows",
    ),
    "an embedding with too few rows": (
        with_few_embeddings, "model.embed_tokens.weight has the shape [50, ",
    ),
    "a template that takes minutes": (
        with_text("chat_template.jinja", LOOPS), "TimeoutError: it is not done after 1 s",
    ),
    "a broken template": (
        with_text("chat_template.jinja", "{% for %}"), "does not take the messages of the rows",
    ),
    "a context that is too small": (
        with_values("config.json", max_position_embeddings=300), "its context has 300 tokens",
        "max_completion_length is 256",
    ),
}
# fmt: on


@pytest.mark.parametrize("case", MODELS)
def test_models(case, refusal, model, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(model_files, "TEMPLATE_S", 1)
    change, *words = MODELS[case]
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(model, folder)
    change(folder)
    assert_refused(refusal({"model_name_or_path": str(folder)}), words)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"report_to": "wandb"}, "W&B has no key: run `wandb login`"),
        ({"push_to_hub": True}, "nobody is logged in to the Hub: run `hf auth login`"),
    ],
)
def test_accounts(settings, words, refusal, monkeypatch, tmp_path_factory):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setattr("recipes.common.checks.combinations.get_token", lambda: None)
    assert_refused(refusal(settings), [words])


@pytest.mark.parametrize("words", [{"RANK": "1"}, {"RANK": "1", "WORLD_SIZE": "1"}])
def test_a_rank_left_in_the_environment(words, refusal, monkeypatch):
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert_refused(refusal(), ["RANK is 1", "no process of that rank", "unset RANK"])


def test_a_length_in_which_no_reference_fits_is_noted(model):
    rows = [{"answer": "x" * 30}, {"answer": "x" * 40}, {"answer": None}]
    tokenizer = AutoTokenizer.from_pretrained(model)
    (note,) = length_notes(tokenizer, 30, rows, lambda row: row["answer"])
    assert "max_completion_length is 30, and the shortest of the first 2 rows has 30 tokens" in note
    assert length_notes(tokenizer, 31, rows, lambda row: row["answer"]) == []


def test_a_language_model_as_a_reward_model(refusal, model):
    words = ("is a LlamaForCausalLM: its scores would come from a random head",)
    assert_refused(refusal({"reward_funcs": ["gsm8k_correctness", str(model)]}), words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./model", ["'./model': it is not a folder."]),
        ("/nowhere", ["'/nowhere': it is not a folder."]),
        ("data/modle", ["'data/modle': it is not a folder."]),
        ("runs/2026/model", ["'runs/2026/model': it is not a folder."]),
        ("org/model", ["the Hub is offline (HF_HUB_OFFLINE=1): correct the path, or unset"]),
        (None, ["model_name_or_path is missing"]),
    ],
)
def test_names_of_models(name, words, refusal, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert_refused(refusal({"model_name_or_path": name}), words)


def test_rows_of_the_hub_without_a_network(refusal, monkeypatch):
    def fails(*args, **kwargs):
        raise ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub")

    monkeypatch.setattr("recipes.common.data.questions.load_dataset", fails)
    assert_refused(
        refusal({"dataset_path": None}),
        ["the rows cannot be loaded (ConnectionError", "give dataset_path"],
    )


@pytest.mark.parametrize(
    ("recipe", "name"), [("arithmetic", "dataset_path"), ("math_code", "dataset_name")]
)
def test_settings_that_a_recipe_does_not_use(recipe, name, parse):
    args = parse_arguments(
        import_recipe(ROOT / f"recipes/{recipe}/train.py").RecipeArguments, [f"--{name}", "x"]
    )
    assert args.problems == [f"{name} is 'x'; this recipe does not use it: leave it out."]


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"operators": ["+"]}, "unexpected keyword argument 'operators'"),
        ({"min_terms": 5, "max_terms": 2}, "max_terms must be >= min_terms"),
    ],
)
def test_parameters_that_a_data_set_of_reasoning_gym_does_not_take(parameters, why):
    recipe = import_recipe(ROOT / "recipes/arithmetic/train.py")
    args = recipe.RecipeArguments(dataset_name="chain_sum", dataset_kwargs=parameters)
    with pytest.raises(ValueError, match="chain_sum does not take dataset_kwargs") as refused:
        recipe.load_rows(args, seed=0)
    assert why in str(refused.value)
