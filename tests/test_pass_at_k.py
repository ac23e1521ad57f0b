"""pass@k: the estimator against enumeration, intervals over problems."""

import itertools

import evaluate_model as script
import pytest
from support.launching import ROOT
from support.scored_by_place import give, make_trainer
from support.tiny_model import build_tiny_model

from recipes.common.evaluation.pass_at_k import format_pass_at_k, pass_at_k
from recipes.common.sampling.idle import sample
from recipes.common.utils.run_files import read_rows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("n", range(1, 7))
def test_the_estimate_is_the_share_of_all_subsets_that_hold_a_right_sample(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def of_rows(*counts, n=4):
    """Rows with `n` samples, of which so many are right."""
    return [{"samples": [{"tests": i < right} for i in range(n)]} for right in counts]


def test_a_line_has_an_interval_over_problems_and_lacking_samples_make_n_smaller():
    lines = format_pass_at_k({"A": of_rows(1, 1, 1, 0)})
    assert lines[0] == "  tests pass@1    18.8 % (2-72)  A"
    assert lines[1] == "  tests pass@4    75.0 % (30-95)  A"  # Wilson's of three of four
    whole, part = of_rows(0)[0], of_rows(2, n=2)[0]  # of two samples the sandbox failed
    part["samples"] += [{}, {}]
    assert format_pass_at_k({"A": [whole, part]})[:2] == [
        "  tests pass@1    50.0 % (9-91)  A",
        "  tests pass@4    0.0 % (0-79)  A",  # the other problem has fewer than four samples
    ]


def test_each_row_gets_its_own_samples_whatever_the_batches(model, tmp_path):
    trainer = make_trainer(model, tmp_path, [give("right", [1.0])], ["a"], {})
    trainer.model.eval()
    rows = [{"prompt": f"{'ab' * i} ="} for i in range(1, 4)]

    def drawn(samples=3, seed=1):
        trainer.args.seed = seed
        of_all = sample(trainer, rows, samples, batch_size=4)
        return [[one.token_ids for one in of_row] for of_row in of_all]

    first = drawn()
    assert [len(of_row) for of_row in first] == [3, 3, 3]
    assert len({tuple(ids) for of_row in first for ids in of_row}) > 3
    assert first == drawn() != drawn(seed=2)
    trainer.args.temperature = 1e-6
    assert all(one == other for one, other in drawn(samples=2))


def test_a_model_against_itself_is_refused(run_script):
    _, _, error = run_script(script, "--model", "A", "--against", "A", "--config", "some.yaml")
    assert "--against: it is the model of --model" in error


@pytest.mark.slow
def test_two_models_are_sampled_and_compared(tmp_path, run_script):
    models = [build_tiny_model(tmp_path / f"model{seed}", seed) for seed in (0, 1)]
    file = tmp_path / "rows.jsonl"
    words = ["--model", models[0], "--against", models[1], "--output", file]
    words += ["--config", ROOT / "recipes/arithmetic/quickstart.yaml", "--num_eval_samples", 3]
    words += ["--num_eval_rows", 4, "--max_completion_length", 6, "--dtype", "float32", "--use_cpu"]
    _, printed, _ = run_script(script, *words, "--num_train_rows", 8)
    assert "  asked format pass@3 " in printed
    assert [len(row["sampled_completions"]) for row in read_rows(file)] == [3] * 4
    _, _, error = run_script(script, "--model", tmp_path, *words[4:])
    assert f"model {tmp_path} cannot be loaded: give a Hub id" in error
