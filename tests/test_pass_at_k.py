"""pass@k: the estimator against enumeration, intervals over problems, the script from samples to
figures and back.
"""

import itertools
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pass_at_k as script
import pytest
from support.scored_by_place import give, make_trainer
from support.tiny_model import build_tiny_model

from recipes.common.data.recipe import import_recipe
from recipes.common.evaluation.metrics import code_metric, evaluate_all
from recipes.common.sampling import pass_at_k as library
from recipes.common.sampling.idle import held_out_rows, sample
from recipes.common.sampling.pass_at_k import count_right, line_of, pass_at_k, values_of
from recipes.common.utils.run_files import read_rows, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[1]
on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)


@pytest.mark.parametrize("n", range(1, 9))
def test_the_estimate_is_the_share_of_all_subsets_that_hold_a_right_sample(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)
    # C(10000, 5000) has 3 009 digits; of two right samples in 10 000 half are in a half.
    assert pass_at_k(10_000, 2, 5_000) == pytest.approx(1 - 0.5 * 4_999 / 9_999, abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (0, 0, 1), (4, 5, 1), (4, -1, 1)])
def test_what_cannot_be_estimated_is_refused(n, c, k):
    with pytest.raises(
        ValueError,
        match=f"pass@{k} of {n} samples" if k > n or k < 1 else f"{c} right samples of {n}",
    ):
        pass_at_k(n, c, k)


def test_a_sample_without_the_metric_makes_n_smaller_and_too_few_leave_the_problem_out():
    assert [library.default_ks(n) for n in (1, 4, 20)] == [[1], [1, 4], [1, 4, 16, 20]]
    assert count_right(
        [{"tests": True}, {"tests": False, "format": True}, {"format": True}], "tests"
    ) == (2, 1)
    counts = [(4, 4), (4, 0), (3, 1)]
    assert (values_of(counts, k=4), values_of(counts, k=5)) == ([1.0, 0.0], [])
    assert values_of(counts, k=1) == [1.0, 0.0, pytest.approx(1 / 3)]


def test_a_difference_is_taken_problem_by_problem():
    """Of problem 1: 0 -> 1/2 by 1 of 4 at k = 2; problem 2 is the same; problem 3 had too few
    samples before.
    """
    before, after = [(4, 0), (4, 4), (1, 0)], [(4, 1), (4, 4), (4, 4)]
    assert (values_of(after, 2, minus=before), values_of(before, 2, minus=after)) == (
        [0.5, 0.0],
        [-0.5, 0.0],
    )


PAIRED = (
    [(8, 1), (8, 8)],
    1,
    [(8, 0), (8, 7)],
)  # the difference is narrower than the spread of the problems


@pytest.mark.parametrize(
    ("k", "values", "signed", "line"),
    [
        (4, values_of([(4, 1)] * 3 + [(4, 0)], 4), False, "  pass@4     75.0 % (25-100)"),
        (1, values_of([(4, 0)] * 9, 1), False, f"  pass@1     0.0 % {library.NO_SPREAD}"),
        (
            8,
            values_of([(4, 0)], 8),
            False,
            "  pass@8     not known: no problem has 8 evaluated samples",
        ),
        (
            1,
            values_of([(1, 1), *[(1, 0)] * 3], 1, [(1, 0)] * 4),
            True,
            "  pass@1     +25.0 pt (+0 to +75)",
        ),
        (1, values_of(*PAIRED), True, f"  pass@1     +12.5 pt {library.NO_SPREAD}"),
    ],
)
def test_lines_give_percent_points_and_what_is_not_known(k, values, signed, line):
    assert line_of(k, values, signed=signed) == line


@on_linux
@pytest.mark.slow
def test_programs_that_never_end_are_evaluated_at_the_same_time_and_in_order(monkeypatch):
    """Four of them under the reward's limit of 5 s: 20 s one by one."""
    monkeypatch.setattr("rewards.sandbox.pool.worker_count", lambda: 4)
    monkeypatch.setattr("rewards.sandbox.pool._shared", {})
    texts = ["```python\ndef f(x):\n    while True: pass\n```"] * 4 + [
        "```python\ndef f(x):\n    return x\n```"
    ]
    start = time.monotonic()
    outcomes = evaluate_all(code_metric, [{"tests": ["assert f(1) == 1"]}] * 5, texts)
    assert [outcome["tests"] for outcome in outcomes] == [False] * 4 + [True]
    assert time.monotonic() - start < 18.0


def test_each_row_gets_its_own_samples_whatever_the_batches(model, tmp_path):
    trainer = make_trainer(model, tmp_path, [give("right", [1.0])], ["a"], {})
    trainer.model.eval()
    rows, seen, complete = [{"prompt": f"{'ab' * i} ="} for i in range(1, 4)], [], trainer.complete

    def counted(batch, do_sample):
        seen.append(len(batch))
        return complete(batch, do_sample)

    trainer.complete = counted

    def drawn(samples=3, seed=1):
        trainer.args.seed = seed
        of_rows = sample(trainer, rows, samples, batch_size=4)
        return [[one.token_ids for one in of_row] for of_row in of_rows]

    first = drawn()
    assert [len(of_row) for of_row in first] == [3, 3, 3] and seen == [4, 4, 1]
    assert len({tuple(ids) for of_row in first for ids in of_row}) > 3
    assert first == drawn() != drawn(seed=2)
    trainer.args.temperature = 1e-6
    assert all(one == other for one, other in drawn(samples=2))


def problem(answer: str, completions: list[str], model: str = "A") -> dict:
    """A problem of GSM8K as --output keeps it."""
    row = {"prompt": "p" + answer, "task": "gsm8k", "answer": answer}
    samples = [{"completion": text, "tokens": 5, "truncated": False} for text in completions]
    how = {"decoding": {"temperature": 0.7, "min_p": None}, "seed": 0, "max_completion_length": 9}
    return {"model": model, **how, "row": row, "samples": samples}


def formatted(answer: str) -> str:
    return f"<reasoning>r</reasoning><answer>{answer}</answer>"


def run(*words, config="recipes/gsm8k/smollm2-135m.yaml") -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["pass_at_k.py", "--config", str(ROOT / config), *map(str, words)]
        )
        script.main()


def test_replay_evaluates_what_was_kept(tmp_path, capsys):
    file, again = (tmp_path / f"{name}.jsonl" for name in ("samples", "again"))
    right = [formatted("7"), formatted("8"), "7", "8"]
    write_rows(file, [problem("7", right), problem("9", ["9"] * 4)])
    run("--replay", file, "--k", 1, 2, "--output", again)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["A: 2 problems x 4 samples, evaluated by 'strict'", "  temperature 0.7"]
    assert lines[2:4] == ["  pass@1     12.5 % (0-25)", "  pass@2     25.0 % (0-50)"]
    assert [s["metrics"]["strict"] for s in read_rows(again)[0]["samples"]] == [
        True,
        False,
        False,
        False,
    ]
    run("--replay", again, "--metric", "lenient", "--k", 1)
    assert "  pass@1     75.0 % (50-100)" in capsys.readouterr().out


def test_samples_that_the_sandbox_failed_on_are_counted_and_left_out(capsys):
    passed, failed = (
        {"metrics": {"tests": True}, "truncated": False},
        {"metrics": {"format": True}, "truncated": True},
    )
    how = {"model": "A", "decoding": {"temperature": 1.0}, "max_completion_length": 9, "row": {}}
    problems = [{**how, "samples": [passed, passed]}, {**how, "samples": [passed, failed]}]
    library.print_figures(problems, "tests", [1, 2], seed=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("  pass@1     100.0 %") and lines[3].startswith(
        "  pass@2     100.0 %"
    )
    assert lines[4:7] == [
        "  cut off at 9 tokens: 1 of 4 samples",
        "  not evaluated, through no fault of theirs, and left out: 1 of 4 samples",
        "  pass@2 is without 1 problems that have fewer",
    ]


def test_the_metric_is_the_recipes_first_unless_the_rows_are_of_several_tasks():
    def metric(row, completion):
        return {"math": False} if row["task"] == "math" else {"tests": False, "format": False}

    math, code = {"task": "math"}, {"task": "code"}
    assert library.choose_metric([code, code], metric, None) == ("tests", [True, True])
    assert library.choose_metric([code, math], metric, "format") == ("format", [True, False])
    for rows, wanted, message in (
        ([math, code], None, "several tasks; name one metric by --metric: math, tests, format"),
        ([math], "strict", "--metric strict is none of the metrics of these rows: math"),
        ([], None, "nothing to evaluate"),
    ):
        with pytest.raises(ValueError, match=message):
            library.choose_metric(rows, metric, wanted)


@on_linux
def test_a_folder_without_training_rows_will_do(tmp_path):
    """HumanEval is for evaluation only: there is no train.jsonl."""
    task = {"prompt": "Write twice(x).", "tests": ["assert twice(1) == 2"]}
    (tmp_path / "test.jsonl").write_text(json.dumps(task) + "\n")
    recipe = import_recipe(ROOT / "recipes/code/smollm2-135m.yaml")
    arguments = recipe.RecipeArguments(dataset_path=str(tmp_path), num_eval_rows=9)
    args = SimpleNamespace(recipe=arguments, training={"seed": 0})
    rows = held_out_rows(SimpleNamespace(module=recipe, args=args))
    assert [row["tests"] for row in rows] == [task["tests"]]
    assert library.choose_metric(rows, recipe.metric, None) == ("tests", [True])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model", "m", "--samples", "8", "--k", "1", "16"],
            "--k 16 is more than the 8 samples of a problem",
        ),
        (["--model", "m", "--temperature", "0"], "--temperature 0.0 must be more than 0"),
        (["--model", "m", "--samples", "0"], "0 is too small; at least 1"),
        (["--model", "m", "--k", "0"], "0 is too small; at least 1"),
        (["--model", "m", "--against", "m"], "the same model as --model: m"),
        (["--replay", "f", "--samples", "8"], "--replay draws nothing"),
        (["--replay", "f", "--model", "m"], "not allowed with"),
        ([], "--model --replay is required"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(*words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two", "--k 3 is more than the 2 samples of a problem"),
        ("other", "is not what --output of this script wrote"),
        ("absent", "cannot be read"),
        ("swapped", "were not sampled on the same rows"),
    ],
)
def test_a_replay_refuses_what_it_cannot_count(tmp_path, capsys, name, message):
    write_rows(tmp_path / "two.jsonl", [problem("7", ["7", "8"])])
    write_rows(tmp_path / "other.jsonl", [{"row": 1}])
    rows = [
        problem(answer, ["7"] * 3, model)
        for answer, model in (("7", "A"), ("9", "A"), ("9", "B"), ("7", "B"))
    ]
    write_rows(tmp_path / "swapped.jsonl", rows)
    with pytest.raises(SystemExit, match="2"):
        run("--replay", tmp_path / f"{name}.jsonl", "--k", 3)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_is_sampled_and_its_replay_gives_the_same_figures(tmp_path, capsys):
    models = [str(build_tiny_model(tmp_path / f"model{seed}", seed)) for seed in (0, 1)]
    file, quickstart = tmp_path / "samples.jsonl", "recipes/arithmetic/quickstart.yaml"
    tiny = ["--num_eval_rows", 4, "--max_completion_length", 6, "--dtype", "float32", "--use_cpu"]
    tiny += ["--num_train_rows", 8, "--temperature", 0.5, "--metric", "format", "--k", 1, 3]
    run(
        "--model",
        models[0],
        "--against",
        models[1],
        "--samples",
        3,
        "--output",
        file,
        *tiny,
        config=quickstart,
    )
    figures, kept = capsys.readouterr().out, read_rows(file)
    assert [len(problem["samples"]) for problem in kept] == [3] * 8
    assert [problem["model"] for problem in kept] == [models[0]] * 4 + [models[1]] * 4
    assert {problem["decoding"]["temperature"] for problem in kept} == {0.5}
    assert all(
        set(s) == {"completion", "tokens", "truncated", "metrics"}
        for p in kept
        for s in p["samples"]
    )
    assert (
        f"{models[1]} minus {models[0]}" in figures
        and "4 problems x 3 samples, evaluated by 'format'" in figures
    )
    run("--replay", file, "--metric", "format", "--k", 1, 3, config=quickstart)
    assert capsys.readouterr().out == figures
