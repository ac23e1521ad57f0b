"""The report page: what it shows of a run, and that what a model wrote stays text."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import report as script

from recipes.common.evaluation.evaluate import add_line
from recipes.common.report.page import write_comparison, write_report
from recipes.common.report.plots import curve, panels, shares
from recipes.common.report.record import final_table, write_card
from recipes.common.report.verdict import figures_of
from recipes.common.utils.run_files import read_log, read_rows, write_json, write_rows
from recipes.common.utils.stats import wilson_interval

LOG = [{"step": step, "reward": step / 10} for step in range(1, 7)]
BEST = {"step": 3, "metric": "validation/strict", "value": 0.25, "rows": 4, "untrained": 0.5}


def user(text: str) -> list[dict]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def generation(step: int, count: int = 4, text: str | None = None) -> pd.DataFrame:
    """Completion i earns i % 3 of right_sum and 0.5 of tidy."""
    texts = [text or f"So {i} of step {step}" for i in range(count)]
    columns = {
        "step": [step] * count, "prompt": [user(f"What is {step}?")] * count,
        "completion": [[{"role": "assistant", "content": text}] for text in texts],
        "right_sum": [float(i % 3) for i in range(count)], "tidy": [0.5] * count,
        "right_sum/reason": ["why"] * count, "advantage": [i - 1.5 for i in range(count)],
    }  # fmt: skip
    return pd.DataFrame(columns)


def evaluated(row: int, strict: bool, text: str, **changes) -> dict[str, Any]:
    return {
        "row": row, "prompt": user(f"Held out {row}"), "answer": "4", "completion": text,
        "tokens": 5, "truncated": False, "metrics": {"strict": strict, "format": True},
        "rewards": {"right_sum": 2.0 * strict, "tidy": None}, **changes,
    }  # fmt: skip


def make_run(
    folder: Path, generations: list[pd.DataFrame] | None = None, after: bool = True, **config
) -> Path:
    """A run of three generations and four test questions: won, lost, right, wrong."""
    write_json(folder / "run_config.json", {"seed": 0, **config})
    write_json(folder / "trainer_state.json", {"log_history": LOG})
    (folder / "completions").mkdir()
    tables = [generation(step) for step in (1, 2, 3)] if generations is None else generations
    for table in tables:
        table.to_parquet(folder / "completions" / f"completions_{table['step'][0]:05d}.parquet")
    for name, right in (("before", [0, 1, 1, 0]), ("after", [1, 0, 1, 0]))[: 1 + after]:
        rows = [evaluated(i, bool(strict), f"{name} {i}") for i, strict in enumerate(right)]
        write_rows(folder / "evaluation" / f"{name}.jsonl", rows)
    if after:
        write_json(folder / "summary.json", {"steps": 6, "minutes": 1.5})
    return folder


def page_of(folder: Path) -> str:
    write_report(folder)
    return (folder / "report.html").read_text()


class Words(HTMLParser):
    """The text that a browser shows of a page, and the tags that it finds."""

    def __init__(self, text: str):
        super().__init__()
        self.words, self.tags = "", set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.words += data


def rows_of(text: str, section: str) -> list[list[str]]:
    """The cells of the tables in a section of the page."""
    part = text.split(f'<section id="{section}"')[1].split("</section>")[0]
    lines = re.findall(r"<tr>(.*?)</tr>", part, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in lines]


def test_the_page_opens_with_verdict_result_and_the_reward_behind_the_independent_metric(tmp_path):
    folder = make_run(tmp_path / "run")
    for step, right in ((0, 0), (3, 1), (6, 2)):
        outcomes = [i < right for i in range(4)]
        add_line(folder, {"step": step, "metrics": {"strict": outcomes, "lenient": outcomes}})
    text = page_of(folder)
    opening = text[text.index("<h1>") : text.index('<section id="questions">')]
    parts = ('<p class="verdict">', "6 steps in 1.5 minutes.", '"row">correct in', "<figure>")
    places = [opening.index(part) for part in parts]
    assert places == sorted(places)
    assert "correct in format on the test" in opening, "the metric that the test questions have too"
    metrics = re.findall(r"<figcaption>validation: ([a-z ]+) \(", text)
    assert metrics == ["correct answer", "correct in format"], "the independent one first"
    picture = 'aria-label="validation: correct answer (share, 95 % band; dashed: training reward)"'
    assert opening.count("aria-label") == opening.count(picture) == 1
    cells = ["50.0 % (15-85)", "50.0 % (15-85)", "+0.0 pt", "1"]
    assert rows_of(text, "results")[1] == ["correct in format", *cells]


def test_questions_are_shown_with_both_texts_those_that_changed_first(tmp_path):
    folder = make_run(tmp_path / "run")
    for name in ("before", "after"):
        file = folder / "evaluation" / f"{name}.jsonl"
        rows = read_rows(file)
        write_rows(file, [*rows[2:], *rows[:2]])  # right, wrong, won, lost
    text = page_of(folder)
    assert re.findall(r"<summary><b>question (\d)</b>", text) == ["0", "1", "2", "3"]
    opened = re.search(r"<details open>(.*?)</details>", text, re.DOTALL)[1]
    first = " ".join(Words(opened).words.split())
    marks = "correct in format ✓ asked format"
    outcomes = f"correct answer: 4 ✗ {marks} → ✓ {marks}"
    before = "before ✗ correct in format ✓ asked format right_sum 0 tidy – before 0"
    for part in ("question 0 Held out 0", outcomes, "Be brief.", before, "tidy – after 0"):
        assert part in first


def test_a_page_whose_evaluation_before_training_is_lost_shows_the_rest(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "evaluation/before.jsonl").unlink()
    assert "No test question was evaluated before and after training." in page_of(folder)


def test_completions_stand_in_a_table_as_they_were_logged(tmp_path):
    table = generation(3, 2)
    table.loc[1, "right_sum"] = float("nan")  # this reward did not score it
    first, late = generation(1).assign(step=1), table.assign(late="x")
    text = page_of(make_run(tmp_path / "run", [first, first.assign(step=2), late]))
    assert re.findall(r"<summary>step (\d)</summary>", text) == ["1", "3"], "2 is 1 logged again"
    assert "6 completions were logged; this page shows all of them." in text
    *_, head, one, other = rows_of(text, "completions")
    columns = ["prompt", "completion", "right_sum", "tidy", "right_sum/reason", "advantage", "late"]
    assert head == columns
    assert one == ["What is 3?", "So 0 of step 3", "0", "0.5", "why", "-1.5", "x"]
    assert other == ["What is 3?", "So 1 of step 3", "–", "0.5", "why", "-0.5", "x"]


def test_completions_stand_in_the_order_of_the_steps_of_a_long_run(tmp_path):
    text = page_of(make_run(tmp_path / "run", [generation(step) for step in (99_999, 100_000)]))
    assert re.findall(r"<summary>step (\d+)</summary>", text) == ["99999", "100000"]


def test_the_table_at_the_end_says_what_the_page_says(tmp_path):
    folder = make_run(tmp_path / "run")
    ending = {"steps": 1, "minutes": 1.5, "hardware": "2 CPU cores", "best_checkpoint": BEST}
    notes = {"stopped": "strict was no better", "voided": "25.0 % of them were left out."}
    summary = {**figures_of(folder, chosen=None), **ending, **notes}
    first, sentence, *lines = final_table(Path("run"), summary).splitlines()
    assert first == "run: 1 step in 1.5 minutes on 2 CPU cores"
    assert sentence.strip() in Words(page_of(folder)).words
    assert [line.strip() for line in lines[:3]] == [
        "25.0 % of them were left out.",
        "Stopped early: strict was no better.",
        "The model is that of step 3, the best checkpoint by correct in format: 0.25 over 4 "
        "validation rows. The untrained model had 0.5: no step was better.",
    ]
    assert lines[-1] == "  Look at it: run/report.html   All figures: run/summary.json"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("trainer_state.json", '{"log_history": [5]}'),
        ("evaluation/validation.jsonl", '{"step": "a"}\n'),
    ],
)
def test_a_file_of_another_shape_is_refused_by_its_name(file, text, tmp_path):
    run = make_run(tmp_path / "run")
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).write_text(text)
    with pytest.raises(ValueError, match=f"{file} is damaged: "):
        write_report(run)


def test_a_folder_of_no_run_and_a_cut_file_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run_config\.json: give the output_dir"):
        write_report(tmp_path)
    (make_run(tmp_path / "run") / "completions" / "completions_00004.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"completions_00004\.parquet is damaged"):
        write_report(tmp_path / "run")


ATTACK = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
ATTACK += "<!--</pre></table><b>&lt;b&gt; {{ title }}"


def test_hostile_text_stays_text_wherever_it_stands_and_the_page_fetches_nothing(tmp_path):
    table = generation(1, 4, ATTACK).assign(**{"right_sum/reason": ATTACK, ATTACK: 1.0})
    table["prompt"] = [user(ATTACK)] * 4
    plain = page_of(make_run(tmp_path / "plain", [generation(1)]))
    folder = make_run(tmp_path / "run", [table], note=ATTACK, **{ATTACK: 1})
    for name, strict in (("before", False), ("after", True)):
        row = evaluated(0, strict, ATTACK, prompt=user(ATTACK), answer=ATTACK)
        row["metrics"][ATTACK] = row["rewards"][ATTACK] = True
        write_rows(folder / "evaluation" / f"{name}.jsonl", [row])
    write_comparison([tmp_path / "plain", folder], tmp_path / "both.html")
    both = Words((tmp_path / "both.html").read_text())
    assert both.words.count(ATTACK) >= 4 and both.tags <= {*Words(plain).tags, "a"}
    text = page_of(folder)
    seen = Words(text)
    # Of a completion 4 times, its prompt, its reason; the settings' name and value; and the rest.
    assert seen.words.count(ATTACK) >= 4 * 3 + 2 + 10
    assert seen.tags == Words(plain).tags and "script" not in seen.tags
    safe = plain.replace("http-equiv", "")
    assert "http" not in safe and " src=" not in safe and "<link" not in safe


def test_the_model_card_has_the_table_and_markup_in_it_stays_text(tmp_path):
    card = tmp_path / "README.md"
    trainer = SimpleNamespace(
        create_model_card=lambda **_: card.write_text("A [None](https://huggingface.co/None)")
    )
    write_card(trainer, tmp_path, "strict <b>\n```\n# no heading")
    end = "\n```\nstrict &lt;b&gt;\n'''\n# no heading\n```\n"
    assert card.read_text() == f"A a model in a folder\n## Before and after\n{end}"


def test_several_runs_stand_side_by_side_with_what_sets_them_apart(tmp_path):
    first, other = make_run(tmp_path / "first #1", beta=0.0), make_run(tmp_path / "b", beta=0.04)
    going = make_run(tmp_path / "going on", after=False, beta=0.0)
    (going / "trainer_state.json").unlink()  # no checkpoint yet
    add_line(first, {"step": 0, "metrics": {"strict": [True]}})  # the others have no such curve
    write_comparison([first, other, going], tmp_path / "all.html")
    text = (tmp_path / "all.html").read_text()
    head, *lines = rows_of(text, "results")
    assert head == ["", "first #1", "b", "going on"]
    table = {label: cells for label, *cells in lines}
    assert table["training"] == ["6 steps in 1.5 minutes."] * 2 + ["This run is not finished."]
    change = "50.0 % (15-85) → 50.0 % (15-85)\n+0.0 pt, p 1"
    assert table["correct in format"] == [change, change, "50.0 % (15-85)"]
    assert rows_of(text, "settings")[1:] == [["beta", "0", "0.04", "0"]]
    assert 'href="first%20%231/report.html"' in text
    text = page_of(going)
    assert Words(text).words.count("So 0 of step 3") == 1
    assert "This run is not finished." in text and ">McNemar" not in text


def test_from_inside_a_run_folder_the_page_of_several_runs_stands_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(make_run(tmp_path / "a"))
    monkeypatch.setattr(sys, "argv", ["report.py", ".", str(make_run(tmp_path / "b"))])
    script.main()
    titles = [
        Path(file).read_text().split("title>")[1] for file in ("report.html", "../report.html")
    ]
    assert titles == ["a</", "a, b</"]


# Curves


LOGGED = [
    {"step": 1, "reward": 0.5, "rewards/a/mean": 0.5, "completions/mean_length": 10.0, "kl": 0.01},
    {"step": 3, "reward": 0.7, "rewards/a/mean": None, "completions/mean_length": float("nan")},
]
OTHER = [{"step": 1, "reward": 0.1, "step_rewards/b/mean": 0.1}]
CURVE = [
    {"step": 0, "metrics": {"strict": [True, None, False], "lenient": [True]}},
    {"step": 4, "metrics": {"strict": [None, None, None], "lenient": []}},
]


def test_the_log_is_read_from_the_final_state_or_the_newest_checkpoint(tmp_path):
    reused = {"step": 2, "loss": 0.1}  # a step that reuses a generation logs no reward
    assert read_log(tmp_path) == []  # before the first checkpoint
    for name, log in (("checkpoint-3", OTHER), ("checkpoint-10", [*LOGGED, reused]), (".", LOG)):
        write_json(tmp_path / name / "trainer_state.json", {"log_history": log})
        assert len(read_log(tmp_path)) == len([entry for entry in log if entry != reused])
    (tmp_path / "trainer_state.json").unlink()
    (tmp_path / "checkpoint-10/trainer_state.json").write_text('{"log_hist')  # cut short
    assert read_log(tmp_path) == OTHER


def test_a_panel_is_drawn_of_each_key_that_any_run_logged_and_of_each_validation_metric():
    titles = [panel.title.partition(" (")[0] for panel in panels([LOGGED, OTHER], [CURVE, []])]
    validated = ["validation: correct answer", "validation: correct in format"]
    logged = ["reward a", "reward b", "completion length", "KL to the reference model"]
    assert titles == ["reward", *validated, *logged], "the verdict's metric first"
    assert curve(LOGGED, "reward") == {1: 0.5, 3: 0.7}
    assert curve(LOGGED, "completions/mean_length") == {1: 10.0}, "NaN is not drawn"
    # A validation metric is a share of the rows that have it.
    assert shares(CURVE, "strict") == ({0: 0.5}, {0: wilson_interval(1, 2)})


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CUT_OFF = """<body><script>onload = () => document.title = 'cut off: ' +
    [...document.querySelectorAll('.scroll')].filter(t => t.scrollWidth > t.clientWidth).length
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian: apt-get install chromium")
def test_in_a_browser_no_script_runs_and_no_table_is_cut_off(tmp_path):
    runs = [make_run(tmp_path / f"a-run-with-a-long-name-seed{seed}", note=seed) for seed in "012"]
    write_comparison(runs, tmp_path / "three.html")
    file, words = tmp_path / "page.html", [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"]
    words += ["--hide-scrollbars", f"--user-data-dir={tmp_path}/home", "--window-size=800,800"]
    for page in (page_of(runs[0]), (tmp_path / "three.html").read_text()):
        page, titles = page.replace("<body>", CUT_OFF, 1), []
        for text in (page, re.sub("<meta http-equiv.*?>", "", page)):  # without the policy
            file.write_text(text)
            command = [*words, "--dump-dom", file.as_uri()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            titles += re.findall("<title>(.*?)</title>", done.stdout)[:1]
        assert "cut off" not in titles[0] and titles[1] == "cut off: 0"
