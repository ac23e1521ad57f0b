"""The probe: exact figures, a verdict for the right reason, samples that follow from the seed."""

import pandas as pd
import probe as script
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from support.launching import DENSE_REWARD, ROOT, TINY
from support.scored_by_place import give, give_steps, make_trainer
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from recipes.common.sampling import idle, probe
from recipes.common.sampling.probe import figures_of, keep_rows, score
from recipes.common.training.advantages import has_spread
from recipes.common.utils.run_files import read_json, read_rows
from rewards import Reward, reward_of

pytestmark = pytest.mark.usefixtures("one_thread")


def reward(kind="verifier", full=None, name="right") -> Reward:
    """The record of a reward that nothing calls here."""
    return Reward(len, name, kind, full)


RIGHT = reward(full=1.0)
ONLY_FORM = "only the form of an answer can be learnt: no "


def table(*groups, **columns) -> pd.DataFrame:
    """Completions as they were scored: a list of amounts of `right` for each prompt."""
    lines = []
    for row, amounts in enumerate(groups):
        for amount in amounts:
            line = {"row": row, "task": "math", "tokens": 10, "truncated": False, "failed": []}
            line |= {"right": amount, "total": amount, "useful": has_spread(amounts)}
            lines.append({**line, **columns})
    return pd.DataFrame(lines)


@pytest.mark.parametrize(
    ("groups", "declared", "expected"),
    [
        # a hit is the full reward, or more than 0 where none is declared
        ([[0.5, 1.0, 0.0, 1.0]], RIGHT, {"right": 0.5, "mean": 0.625}),
        ([[0.5, 1.0, 0.0, 1.0]], reward(), {"right": 0.75, "kind": "verifier"}),
        ([[0.0, 2.0], [1.0, 1.0]], RIGHT, {"useful": 1, "groups": 2}),
        ([[None], [0.0, 0.0]], RIGHT, {"mean": 0.0, "failed": 0.0, "groups": 1}),
    ],
)
def test_figures_are_exact(groups, declared, expected):
    _, line = figures_of(table(*groups), [declared]).to_dict("records")
    assert {name: line[name] for name in expected} == pytest.approx(expected)


def test_the_table_says_what_is_right_useful_cut_off_and_how_long():
    """Of two questions one is answered right in half of the completions, one never."""
    scored = table([0.0, 1.0], [0.0, 0.0])
    scored["truncated"] = [False, False, False, True]
    figures = figures_of(scored, [RIGHT])
    head, task, alone, *legend = probe.report(figures, {"lenient": {"right": 0.125}}).splitlines()
    names = "task paid by mean right useful groups cut off median tokens failed pull on correct"
    assert head.split() == [*names.split(), "answer"]
    assert task.split() == "math all rewards 0.25 25% 1 of 2 25% 10".split()
    assert alone.split() == "right 0.25 25% 1 of 2 0% +0.12".split()
    assert "only these teach" in " ".join(legend)


@pytest.mark.parametrize(
    ("groups", "columns", "kind", "start", "advice"),
    [
        ([[0.0, 1.0], [0.0, 0.0]] * 2, {}, "verifier", "enough to learn from: 1 useful groups", ""),
        ([[0.0, 1.0], *[[0.0, 0.0]] * 7], {}, "verifier", "too little to learn from: 0.25 useful",
         "begin with scripts/warm_start.py"),
        # useful by another reward
        ([[0.0, 0.0]] * 14, {"useful": True}, "verifier", ONLY_FORM + "correctness reward told",
         "begin with scripts/warm_start.py"),
        ([[0.0, 0.0]] * 9, {"useful": True}, "verifier", "enough to learn from", ""),  # too few
        ([[0.0, 1.0]] * 4, {}, "format", ONLY_FORM + "reward of math that counts reads", "Add one"),
        ([[0.0, 1.0]] * 4, {}, "shaping", "enough to learn from", ""),  # a count, say
    ],
)  # fmt: skip
def test_a_verdict_has_its_reason_and_says_what_to_change(groups, columns, kind, start, advice):
    figures = figures_of(table(*groups, **columns), [reward(kind)])
    is_enough, sentence = probe.verdict(figures, groups_a_step=2)
    assert is_enough is start.startswith("enough") and sentence.startswith(start)
    assert advice in sentence


def test_completions_are_scored_and_their_groups_are_useful_as_in_training(model, tmp_path):
    """Eight of two rows: of the first nothing is worth more than another but in its steps."""
    steps = [[(1, 1.0)], [(1, -1.0)], [], [], *[[(1, 1.0)]] * 4]
    rewards = [
        give("right", [0.0, 0.0, 0.0, 0.0, 1.0, None, 0.0, 1.0]),
        give("gated", [0.5], "shaping"),
        give("random", [0.25, 0.75], "control"),
        give("also right", [1.0] * 7 + [0.0]),
        give_steps("steps", steps),
    ]
    settings = {"reward_gates": {"gated": "right"}, "reward_weights": [1.0, 0.5, 1.0, 0.0, 1.0]}
    trainer = make_trainer(model, tmp_path, rewards, ["math"], settings)
    trainer.model.eval()
    records = [*map(reward_of, rewards)]
    tokens = trainer.processing_class("one")["input_ids"]
    one = {"completion": "one", "token_ids": tokens, "tokens": len(tokens), "truncated": False}
    rows = [{"prompt": f"{i}:", "task": "math"} for i in range(2)]
    samples = [{"row": i, **one} for i in (0, 0, 0, 0, 1, 1, 1, 1)]
    scored = score(trainer, records, rows, samples, batch_size=8)
    assert scored["row"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert scored["useful"].tolist() == [True] * 8, "the first group by its steps alone"
    amounts = scored[["right", "gated", "random", "steps", "total"]].astype(object)
    amounts = amounts.where(amounts.notna(), None).values.tolist()
    assert amounts[0] == [0.0, 0.0, 0.25, 1.0, 0.0], "a shut gate pays 0, as in the total"
    assert amounts[4] == [1.0, 0.5, 0.25, 1.0, 1.25]
    assert scored["right"][[3, 4, 7]].tolist() == [0.0, 1.0, 0.0], "by every verifier"
    assert amounts[5] == [None] * 5 and scored["failed"][5] == ["right"], "void"
    trainer.steps.weights = [0.0]
    again = score(trainer, records, rows, samples, batch_size=8)
    assert again["useful"].tolist() == [False] * 4 + [True] * 4, "a control counts for none"


def test_rows_that_are_solved_sometimes_are_kept_bounds_included(tmp_path):
    rates = [[0.0], [0.0, 1.0], [1.0], [None]]
    rows = [{"prompt": f"p{i}", "task": "math"} for i in range(4)]
    file = tmp_path / "kept.jsonl"
    assert keep_rows(table(*rates), rows, (0.5, 0.9), file).startswith("2 of 4 rows are kept")
    assert [row["prompt"] for row in read_rows(file)] == ["p1", "p3"]
    with pytest.raises(ValueError, match=r"no row was solved in 0\.6 to 0\.9"):
        keep_rows(table(*rates[:3]), rows, (0.6, 0.9), file)


def test_the_push_of_each_reward_alone_says_what_it_would_teach():
    texts = ["<4>", "4", "<5>", "5"]
    samples = [{"row": row, "completion": text} for row in (0, 1) for text in texts]
    rows = [{"answer": "4"}, {"answer": "7"}]
    tidy = [float("<" in sample["completion"]) for sample in samples]
    right = [float(one["row"] == 0 and "4" in one["completion"]) for one in samples]

    def metric(row, text):
        return {"format": text.startswith("<"), "right": row["answer"] in text}

    scored = pd.DataFrame({"tidy": tidy, "right": right})
    rewards = [reward(name="tidy"), reward(name="right")]

    def pushes(moving, scale):
        return probe.compute_pushes(metric, rows, samples, moving, scored, rewards, scale)

    assert pushes([True] * 8, "group") == {
        "format": {"tidy": 0.577, "right": 0.0},  # the format first
        "right": {"tidy": 0.0, "right": 0.289},  # no answer to the second row is right
    }
    assert pushes([True] * 8, "none")["format"] == {"tidy": 0.333, "right": 0.0}  # its variance
    assert pushes([False] * 8, "group")["format"] == {"tidy": 0.0, "right": 0.0}  # all are masked


# The script


@pytest.fixture
def probed(model, monkeypatch, run_script):
    """Run the probe on the quickstart, made tiny."""
    fixed = {**TINY, "config": "recipes/arithmetic/quickstart.yaml", "model_name_or_path": model}
    fixed |= {"reward_funcs": DENSE_REWARD, "reward_gates": "{}"}
    options = [word for name, value in fixed.items() for word in (f"--{name}", value)]
    monkeypatch.chdir(ROOT)
    return lambda *words: run_script(script, *options, *words)


def test_what_was_sampled_and_measured_is_written(probed, tmp_path):
    """Of four prompts, with enough to learn from."""
    folder = tmp_path / "probe"
    assert probed("--prompts", 4, "--output", folder)[0] == 0
    rows, lines = read_rows(folder / "rows.jsonl"), read_rows(folder / "completions.jsonl")
    assert [line["row"] for line in lines] == [i for i in range(4) for _ in range(4)]
    assert all(len(line["token_ids"]) == line["tokens"] <= 12 for line in lines)
    assert set(rows[0]) > {"prompt", "task"}
    figures = read_json(folder / "figures.json")
    assert figures["enough"] and figures["push"].keys() == {"strict", "lenient", "format"}
    assert figures["verdict"].startswith("enough to learn from: 2 useful groups are expected")


def test_a_quantized_model_gets_the_adapter_that_transformers_wants(probed, monkeypatch, tmp_path):
    def make(**settings):
        raise TypeError(f"{settings['quantization_config']}, {settings['peft_config']}")

    monkeypatch.setattr(idle, "get_quantization_config", lambda of_model: "in 4 bits")
    monkeypatch.setattr(idle, "GRPOTrainer", make)
    _, _, error = probed("--output", tmp_path / "probe", "--use_peft", "true")
    assert "in 4 bits, LoraConfig(" in error


def test_an_adapter_is_loaded_into_the_class_that_was_trained(tmp_path):
    """TRL trains Qwen3.5 with its part for images; PEFT's auto class takes the text part alone."""
    sizes = {"hidden_size": 16, "intermediate_size": 16}
    text = {"num_hidden_layers": 1, "layer_types": ["full_attention"], "head_dim": 8}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 32}
    vision = {"depth": 1, "num_heads": 2, "out_hidden_size": 16, "num_position_embeddings": 4}
    config = Qwen3_5Config(text_config=sizes | text, vision_config=sizes | vision)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path / "base")
    base = Qwen3_5ForConditionalGeneration.from_pretrained(tmp_path / "base")
    lora = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], init_lora_weights=False)
    trained = get_peft_model(base, lora)
    trained.save_pretrained(tmp_path / "run")
    loaded = idle.load_adapted(tmp_path / "run", {"dtype": "float32"}).state_dict()
    adapter = {name: part for name, part in trained.state_dict().items() if "lora_" in name}
    assert len(adapter) == 2
    assert all(torch.equal(loaded[name], part) for name, part in adapter.items())

    file = tmp_path / "run/adapter_model.safetensors"  # of another model: no weight has its name
    save_file({f"other.{name}": part for name, part in load_file(file).items()}, file)
    with pytest.raises(UserWarning, match="missing adapter keys"):
        idle.load_adapted(tmp_path / "run", {"dtype": "float32"})


def test_what_a_run_schedules_and_logs_does_not_stop_a_script(probed, monkeypatch, tmp_path):
    def make(args, **settings):
        raise TypeError(f"made with {args.lr_scheduler_type.value}, {args.log_completions}")

    monkeypatch.setattr(idle, "GRPOTrainer", make)
    words = ["--lr_scheduler_type", "reduce_lr_on_plateau", "--eval_strategy", "steps"]
    words += ["--log_completions", "true", "--log_completions_hub_repo", "me/mine"]
    _, _, error = probed("--output", tmp_path / "probe", *words)
    assert "made with constant, False" in error


def test_bad_arguments_end_with_status_2_and_say_what_is_wrong(probed, tmp_path):
    (tmp_path / "note").write_text("mine")
    out = tmp_path / "probe"
    for words, message in (
        (("--prompts", 0), "0 is too small; at least 1"),
        (("--output", tmp_path), "exists: give another --output, or remove it"),
        (("--keep", 0.6, 0.5), "they must be 0 < low <= high < 1"),
        (("--reward_weights", 1, 2), "reward_weights has 2 values for 1 rewards"),
        (("--keep", 0.1, 0.9), "--keep needs a correctness reward"),
    ):
        status, _, error = probed("--output", out, *words)
        assert status == 2 and message in error, words
    assert not out.exists()


def test_a_second_probe_of_a_yaml_is_refused_in_one_line(monkeypatch, tmp_path, run_script):
    (tmp_path / "runs/probe-mine").mkdir(parents=True)
    (tmp_path / "runs/probe-mine/rows.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    message = "error: runs/probe-mine exists: give another --output, or remove it\n"
    assert run_script(script, "--config", "mine.yaml") == (2, "", message)
