"""Filtering by pass rate: exact counts, the rows between two bounds, and a run that trains on just
those.
"""

import json
import re
import sys
from pathlib import Path

import filter_by_pass_rate
import pandas as pd
import probe
import pytest
from support.launching import DENSE_REWARD, TINY
from support.tiny_model import build_tiny_model

from recipes.common import run as life
from recipes.common.checks.notes import only_rows_notes
from recipes.common.data.recipe import import_recipe
from recipes.common.data.split import use_only_rows
from recipes.common.utils.run_files import read_rows, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[1]
QUICKSTART = "recipes/arithmetic/quickstart.yaml"
HALVES = """
def halves(prompts, completions, **kwargs):
    # Right are all but every second completion of a question that starts with an odd number.
    first = [int(prompt[-1]["content"].split()[1]) for prompt in prompts]
    return [float(i % 2 or number % 2 == 0) for i, number in enumerate(first)]
halves.kind, halves.full = "verifier", 1.0
"""


def write_probe(folder: Path, given: list[tuple[str, float | None, bool]], kind: str) -> Path:
    """Write the folder of a probe: task, pass rate and use of each row; kind of the reward."""
    rows = [{"prompt": f"p{i}", "task": task} for i, (task, _, _) in enumerate(given)]
    write_rows(folder / "rows.jsonl", rows)
    figures = {
        "groups_a_step": 4,
        "useful_a_step": 4 * sum(useful for *_, useful in given) / len(given),
        "rows": [{"task": t, "pass_rate": rate, "useful": useful} for t, rate, useful in given],
        "tasks": {
            "math": {"rewards": {"right": {"kind": kind}, "shape": {"kind": "shaping"}}},
            "text": {"rewards": {"shape": {"kind": "shaping"}}},
        },
    }
    (folder / "figures.json").write_text(json.dumps(figures))
    return folder


@pytest.fixture
def status(monkeypatch):
    def run(*words) -> int:
        monkeypatch.setattr(sys, "argv", ["filter_by_pass_rate.py", *map(str, words)])
        try:
            filter_by_pass_rate.main()
        except SystemExit as ended:
            return ended.code
        return 0

    return run


MIXED = [("math", rate, 0 < rate < 1) for rate in (0.0, 0.0, 0.1, 0.3, 0.5, 0.8, 1.0)]
MIXED += [("text", None, False), ("math", None, False)]


def test_the_counts_are_exact_and_the_rows_in_the_band_are_kept_bounds_included(
    status, tmp_path, capsys
):
    probe = write_probe(tmp_path / "probe", MIXED, "verifier")
    assert status("--probe", probe, "--low", 0.3, "--high", 0.5, "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    table = [line.split() for line in printed.splitlines()]
    assert ["math", "8", "2", "1", "2", "1", "1", "1", "0"] in table
    assert ["text", "1", "0", "0", "0", "0", "0", "0", "1"] in table
    assert [row["prompt"] for row in read_rows(tmp_path / "out" / "rows.jsonl")] == [
        "p3",
        "p4",
        "p7",
    ]
    rates = read_rows(tmp_path / "out" / "pass_rates.jsonl")
    assert [row["pass_rate"] for row in rates] == [0.0, 0.0, 0.1, 0.3, 0.5, 0.8, 1.0, None, None]
    # Of nine groups four have spread, of the three that are kept two; a step takes four.
    assert (
        "Useful groups of the 4 in a step: 1.78 with all 9 rows, 2.67 with the 3 that are kept"
        in printed
    )
    record = json.loads((tmp_path / "out" / "filter.json").read_text())
    assert (record["kept"], record["useful_a_step"]) == (3, {"before": 16 / 9, "after": 8 / 3})


def test_bad_input_says_what_is_wrong_and_leaves_nothing_behind(status, tmp_path, capsys):
    shaped = write_probe(tmp_path / "shaped", MIXED, "shaping")
    ends = [("math", 0.0, False), ("math", 1.0, False)]
    extreme = write_probe(tmp_path / "extreme", ends, "verifier")
    old = write_probe(tmp_path / "old", MIXED, "verifier")
    (old / "figures.json").write_text("{}")
    out, table = tmp_path / "out", r"math +2 +1 +0 +0 +0 +1 +0 +0\n"
    for probed, words, message in (
        (extreme, (), rf"no row is left between 0\.1 and 0\.9:\n.*\n.*{table}.*Widen the band"),
        (tmp_path, (), r"has no rows\.jsonl, figures\.json"),
        (shaped, (), "none of the rewards right, shape is a verifier"),
        (old, (), "--replay"),
        (shaped, ("--low", 0), "they must be 0 < low <= high < 1"),
        (shaped, ("--low", 0.6, "--high", 0.5), "they must be 0 < low <= high < 1"),
        (shaped, ("--out", old), "exists: name another folder"),
    ):
        assert status("--probe", probed, "--out", out, *words) == 2, words
        assert re.search(message, capsys.readouterr().err), message
    assert not out.exists()


def ask(question: str, *before: str) -> list[dict]:
    return [{"role": "user", "content": text} for text in (*before, question)]


@pytest.mark.parametrize(
    ("train", "held_out", "noted"),
    [
        (ask("1 + 1", "shown"), ask("2 + 2", "shown"), False),
        (ask("1 + 1", "shown"), ask("2 + 2"), True),
        (ask("1 + 1", "shown"), ask("2 + 2", "another"), True),
        (
            ask("1 + 1", "shown"),
            [{"role": "user", "content": "shown", "name": None}, *ask("2 + 2")],
            False,
        ),
        ("1 + 1", "2 + 2", False),
    ],
)
def test_a_note_names_a_probe_with_other_prompts_than_the_held_out_rows(train, held_out, noted):
    other = {
        "prompt": ask("f(x)", "a program"),
        "task": "code",
    }  # another task has prompts of its own
    notes = only_rows_notes(
        [{"prompt": train, "task": "math"}], [other, {"prompt": held_out, "task": "math"}]
    )
    assert [note.startswith("only_rows: ") for note in notes] == [True] * noted
    assert only_rows_notes([{"prompt": train, "task": "math"}], [other]) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "only_rows: there is no file"),
        ("", "holds no rows"),
        ("{", "rows.jsonl, line 1: "),
        ('{"prompt": "p", "task": "t"}\n{"prompt": "p"}', "rows.jsonl, line 2: task missing"),
    ],
)
def test_a_file_that_holds_no_rows_is_refused_and_a_column_of_a_later_row_is_kept(
    tmp_path, text, message
):
    file = tmp_path / "rows.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=message):
        use_only_rows(str(file), None)
    write_rows(file, [{"prompt": "a", "task": "t"}, {"prompt": "b", "task": "t", "answer": "7"}])
    assert use_only_rows(str(file), None)["answer"][:] == [None, "7"]


@pytest.mark.slow
def test_a_probe_is_filtered_and_the_recipe_trains_on_the_rows_that_are_kept(
    status, tmp_path, monkeypatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(life, "use_all_cores", lambda training: None)
    model = build_tiny_model(tmp_path / "model")
    (tmp_path / "halves.py").write_text(HALVES)
    tiny = {**TINY, "model_name_or_path": model, "bf16": "false", "num_train_rows": 40, "seed": 3}
    tiny["reward_gates"] = "{}"
    tiny |= {"reward_funcs": f"{tmp_path}/halves.py:halves", "num_eval_rows": 0}
    words = [word for name, value in tiny.items() for word in (f"--{name}", str(value))]
    fixed = ["--config", QUICKSTART, "--output", str(tmp_path / "probe"), "--prompts", "12"]
    monkeypatch.setattr(sys, "argv", ["probe.py", *fixed, *words])
    with pytest.raises(SystemExit):
        probe.main()
    assert status("--probe", tmp_path / "probe", "--out", tmp_path / "kept") == 0
    kept = [row["prompt"][-1]["content"] for row in read_rows(tmp_path / "kept" / "rows.jsonl")]
    probed = [row["prompt"][-1]["content"] for row in read_rows(tmp_path / "probe" / "rows.jsonl")]
    assert kept == [question for question in probed if int(question.split()[1]) % 2]
    assert 0 < len(kept) < len(probed) == 12
    more = [
        "--only_rows",
        str(tmp_path / "kept" / "rows.jsonl"),
        "--output_dir",
        str(tmp_path / "run"),
        "--seed",
        "4",
    ]
    more += ["--reward_funcs", DENSE_REWARD]  # preflight refuses a verifier that rewards anything
    more += [
        "--max_steps",
        str(2 * len(kept)),
        "--save_strategy",
        "no",
    ]  # an odd row waits for another epoch
    monkeypatch.setattr(sys, "argv", ["train.py", "--config", QUICKSTART, *words, *more])
    import_recipe(Path(QUICKSTART)).main()
    tables = [
        pd.read_parquet(file) for file in (tmp_path / "run" / "completions").glob("*.parquet")
    ]
    seen = {prompt[-1]["content"] for table in tables for prompt in table["prompt"]}
    assert seen == set(kept)
