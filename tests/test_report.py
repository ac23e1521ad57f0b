"""The report page: what it shows of a run, and that a real browser shows, filters and sorts it."""

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.browser import visit

from recipes.common.evaluation.curve import add_line
from recipes.common.report import report
from recipes.common.report.page import write_report
from recipes.common.report.record import final_table
from recipes.common.report.report import evenly, figures_of, held_out, read_run
from recipes.common.utils.run_files import messages, write_json, write_rows

ATTACK = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
ATTACK += "<!--<script>&lt;b&gt; {{data}} $1 \\u003c"
PREFLIGHT = {
    "rewards": [
        {"task": "chain_sum", "reward": "right_sum", "kind": "verifier", "full": 2.0},
        {"task": "chain_sum", "reward": "tidy", "kind": "format", "full": 1.0},
    ]
}
LOG = [
    {
        "step": step,
        "reward": step / 10,
        "rewards/right_sum/mean": step / 20,
        "rewards/tidy/mean": 0.5,
        "completions/mean_length": 10.0 + step,
        "completions/clipped_ratio": 0.1,
        "kl": 0.01,
    }
    for step in range(1, 7)
]
START = {
    "from_step": 0,
    "versions": {"python": "3.11.7"},
    "commit": "abc",
    "hardware": "2 CPU cores",
    "command": ["train"],
}


def user(text: str) -> list[dict]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def generation(step: int, count: int = 4, text: str = "So {i} <answer>{i}</answer> of step {step}"):
    """Completion i earns i % 3 of right_sum (full: 2) and 0.5 of tidy."""
    texts = [text.replace("{i}", str(i)).replace("{step}", str(step)) for i in range(count)]
    columns = {
        "step": [step] * count,
        "prompt": [user(f"What is {step}?")] * count,
        "completion": [[{"role": "assistant", "content": each}] for each in texts],
        "right_sum": [float(i % 3) for i in range(count)],
        "tidy": [0.5] * count,
        "right_sum/reason": ["why"] * count,
        "advantage": [i - 1.5 for i in range(count)],
    }
    return pd.DataFrame(columns)


def evaluated(row: int, strict: bool, text: str) -> dict[str, Any]:
    return {
        "row": row,
        "prompt": user(f"Held out {row}"),
        "answer": "4",
        "completion": text,
        "tokens": 5,
        "truncated": False,
        "metrics": {"strict": strict, "format": True},
        "rewards": {"right_sum": 2.0 * strict, "tidy": None},
    }


def make_run(
    folder: Path, generations: list[pd.DataFrame] | None = None, after: bool = True, **config
) -> Path:
    """A finished run of three generations and four held-out rows: won, lost, right, wrong."""
    settings = {"reward_funcs": ["right_sum", "tidy"], "reward_weights": [1.0, 0.5], "seed": 0}
    write_json(folder / "run_config.json", {**settings, **config})
    write_json(folder / "versions.json", [START])
    write_json(folder / "preflight.json", PREFLIGHT)
    write_json(folder / "trainer_state.json", {"log_history": LOG})
    (folder / "completions").mkdir()
    tables = [generation(step) for step in (1, 2, 3)] if generations is None else generations
    for table in tables:
        table.to_parquet(folder / "completions" / f"completions_{table['step'][0]:05d}.parquet")
    for name, right in (("before", [0, 1, 1, 0]), ("after", [1, 0, 1, 0]))[: 1 + after]:
        rows = [evaluated(i, bool(strict), f"{name} {i}") for i, strict in enumerate(right)]
        write_rows(folder / "evaluation" / f"{name}.jsonl", rows)
    if after:
        engine = {"world_size": 1}
        write_json(folder / "summary.json", {"steps": 6, "minutes": 1.5, "engine": engine})
    return folder


def add_curve(folder: Path) -> None:
    """Four validation rows at steps 0, 3 and 6: none right, one, two."""
    for step in (0, 3, 6):
        right = [i < step / 3 for i in range(4)]
        metrics = {"strict": right, "lenient": right}
        add_line(folder, {"step": step, "metrics": metrics, "truncated": 0.0})


def write_page(folder: Path, *runs: Path) -> str:
    write_report(list(runs) or [make_run(folder / "run")], folder / "page.html")
    return (folder / "page.html").read_text()


def data_of(text: str) -> list[dict]:
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_examples_of_the_docstrings_are_right():
    assert doctest.testmod(report) == (0, 2)


def test_a_plain_prompt_is_a_message_without_a_role():
    assert messages("2 + 2 =") == [("", "2 + 2 =")]
    odd = [{"role": "user", "content": [{"type": "text"}]}, {"role": "assistant", "content": None}]
    assert messages(odd) == [("user", '[{"type": "text"}]'), ("assistant", "")]


def test_completions_carry_rewards_total_and_whether_the_score_is_full(tmp_path):
    table = generation(1, 4)
    table.loc[3, ["right_sum", "tidy"]] = float("nan")  # no reward scored it
    run = read_run(make_run(tmp_path / "run", [table]))
    assert [(row["rewards"], row["total"], row["full"]) for row in run["completions"]] == [
        ([0.0, 0.5], 0.25, False),
        ([1.0, 0.5], 1.25, False),
        ([2.0, 0.5], 2.25, True),
        ([None, None], None, None),
    ]
    assert (run["rewards"], run["extras"]) == (["right_sum", "tidy"], ["right_sum/reason"])
    (tmp_path / "run" / "preflight.json").unlink()  # of no reward it is known to be a verifier
    assert {row["full"] for row in read_run(tmp_path / "run")["completions"]} == {None}


def test_a_full_score_is_that_of_every_verifier_and_step_rewards_have_no_column(tmp_path):
    table = generation(1, 3).assign(tidy=[1.0, 1.0, 0.5])
    kinds = {"each_step": "step", "right_sum": "verifier", "tidy": "verifier"}
    settings = {"reward_funcs": list(kinds), "reward_weights": [9.0, 1.0, 0.5]}
    folder = make_run(tmp_path / "run", [table], **settings)
    lines = [{"reward": name, "kind": kind, "full": 1.0} for name, kind in kinds.items()]
    write_json(folder / "preflight.json", {"rewards": lines})
    run = read_run(folder)
    assert run["rewards"] == ["right_sum", "tidy"]
    found = [(row["full"], row["total"]) for row in run["completions"]]
    assert found == [(False, 0.5), (True, 1.5), (False, 2.25)]


def test_a_generation_that_was_logged_again_is_shown_once_and_a_column_that_comes_later_is_kept(
    tmp_path,
):
    again = [generation(1).assign(step=step) for step in (1, 2)] + [generation(3).assign(late="x")]
    run = read_run(make_run(tmp_path / "run", again))
    assert ([row["step"] for row in run["completions"]], run["logged"]) == ([1] * 4 + [3] * 4, 8)
    assert run["extras"] == ["right_sum/reason", "late"]
    assert [row["extras"] for row in run["completions"][::4]] == [["why", None], ["why", "x"]]


def test_of_too_many_completions_whole_generations_are_kept_first_and_last(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_COMPLETIONS", 12)
    run = read_run(make_run(tmp_path / "run", [generation(step) for step in range(1, 8)]))
    assert [row["step"] for row in run["completions"][::4]] == [1, 4, 7]
    assert (len(run["completions"]), run["logged"]) == (12, 28)
    assert evenly(list(range(100)), 4) == [0, 33, 66, 99] and evenly([1, 2], 5) == [1, 2]


def test_held_out_rows_stand_side_by_side_those_that_changed_first(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    assert [(row["row"], row["metrics"]["strict"]) for row in run["held_out"]] == [
        (0, (False, True)),
        (1, (True, False)),
        (2, (True, True)),
        (3, (False, False)),
    ]
    assert run["counts"]["strict"] == {"won": 1, "lost": 1, "kept": 1, "missed": 1}
    assert run["counts"]["format"] == {"won": 0, "lost": 0, "kept": 4, "missed": 0}
    first = run["held_out"][0]
    assert (first["before"]["text"], first["after"]["text"]) == ("before 0", "after 0")


def test_of_many_rows_that_did_not_change_some_are_left_out_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(report, "MAX_UNCHANGED", 2)
    right = [evaluated(i, True, "4") for i in range(5)]
    shown = held_out(right, [evaluated(i, i != 3, "4") for i in range(5)])
    assert [row["row"] for row in shown["held_out"]] == [3, 0, 4]
    assert shown["counts"]["strict"] == {"won": 0, "lost": 1, "kept": 4, "missed": 0}


def test_before_and_after_stand_with_interval_and_p(tmp_path):
    share = "<td>50.0 % (15-85)</td>"
    label = '<th scope="row">strict (format + answer)</th>'
    row = f"{label}{2 * share}<td>+0.0 pt</td><td>1</td>"
    assert row in write_page(tmp_path).replace("\n(", " (")


def test_a_run_that_goes_on_has_a_page(tmp_path):
    going_on = make_run(tmp_path / "going on", [], after=False)
    (going_on / "trainer_state.json").unlink()
    text = write_page(tmp_path, going_on)
    for words in ("This run is not finished.", "No step was logged yet.", "50.0 %\n(15-85)"):
        assert words in text
    assert "log_completions: true" in data_of(text)[0]["note"]


def test_several_runs_share_curves_in_their_own_colours_and_show_the_settings_that_differ(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
    text = write_page(tmp_path, *runs)
    differing = text[text.index("Settings that differ") : text.index('<section id="completions">')]
    assert re.findall(r'<th scope="row">(.*?)</tr>', differing) == ["seed</th><td>0</td><td>1</td>"]
    results, curves = text.split('<section id="results">')[1].split('<section id="training">')
    assert re.findall(r'<h3 class="(run\d)">', results) == ["run0", "run1"]
    assert set(re.findall(r"stroke: var\(--run(\d)\)", curves)) == {"0", "1"}
    assert '<li class="run1">b</li>' in curves
    same = [make_run(tmp_path / name / "run") for name in ("x", "y")]
    names = [run["name"] for run in data_of(write_page(tmp_path, *same))]
    assert names == [str(run) for run in same]


def test_the_page_opens_with_the_verdict_the_result_and_the_reward_over_the_independent_metric(
    tmp_path,
):
    folder = make_run(tmp_path / "run")
    add_curve(folder)
    text = write_page(tmp_path, folder)
    opening = text[text.index("<h1>") : text.index('<section id="rows">')]
    parts = ('<p class="verdict">', '<th scope="row">strict (', "<figure>")
    places = [opening.index(part) for part in parts]
    assert places == sorted(places)
    assert "eld-out strict" in opening, "the metric that the held-out rows have, too"
    first, second = re.findall(r"<figcaption>(validation: [a-z]+)", text)
    assert (first, second) == ("validation: lenient", "validation: strict")  # the verdict's first
    assert re.findall(r'aria-label="(.*?)"', opening) == ["run: 0 at step 0, 0.5 at step 6"]
    assert len(re.findall("<svg", text)) == 8
    assert 'aria-label="run: 0.1 at step 1, 0.6 at step 6"' in text, "of the reward"


def test_the_chosen_checkpoint_and_the_time_of_each_phase_are_on_the_page(tmp_path):
    folder = make_run(tmp_path / "run")
    best = {"step": 3, "metric": "validation/strict", "value": 0.25, "rows": 4}
    seconds = {"generating": 60.0, "updating": 30.0}
    summary = {"steps": 6, "minutes": 2.0, "seconds": seconds, "best_checkpoint": best}
    write_json(folder / "summary.json", summary)
    text = write_page(tmp_path, folder)
    chosen = "The model is that of step 3, the best by validation/strict: 0.25 over 4 validation"
    assert chosen in text
    cells = {
        "generating": "1.0 (50 %)",
        "updating": "0.5 (25 %)",
        "everything else": "0.5 (25 %)",  # loading, saving, waiting
    }
    found = dict(re.findall(r'<th scope="row">([a-z ]+)</th><td>([\d.]+ \(\d+ %\))</td>', text))
    assert found == cells


def test_the_table_at_the_end_says_what_the_page_says(tmp_path):
    folder = make_run(tmp_path / "run")
    right = {"before": 30, "after": 70}  # of 160 rows
    for name, count in right.items():
        rows = [evaluated(row, row < count, "4") for row in range(160)]
        write_rows(folder / "evaluation" / f"{name}.jsonl", rows)
    best = {"step": 3, "metric": "validation/strict", "value": 0.25, "rows": 4}
    ending = {"steps": 1, "minutes": 1.5, "hardware": "2 CPU cores"}
    ending |= {"stopped": "validation/strict was no better for 2 evaluations"}
    figures = figures_of(folder, chosen=None)
    table = final_table(Path("run"), {**figures, **ending, "best_checkpoint": best})
    assert table.splitlines()[:4] == [
        "run: 1 step in 1.5 minutes on 2 CPU cores",
        f"  {read_run(folder)['verdict']['sentence']}",
        "  Stopped early: validation/strict was no better for 2 evaluations.",
        "  The model is that of step 3, the best by validation/strict: 0.25 over 4 validation "
        "rows.",
    ]
    assert table.splitlines()[-3:] == [
        "  160 held-out rows show a change of 11.4 points or more "
        "(80 % power, as 25 % of them changed in strict)",
        "  Every row: run/evaluation",
        "  Look at it: run/report.html   All figures: run/summary.json",
    ]
    without = {**figures, **ending, "best_checkpoint": None, "after": None}
    assert "no evaluation rows (num_eval_rows is 0)" in final_table(Path("run"), without)


def test_the_page_fetches_nothing(tmp_path):
    text = write_page(tmp_path).replace("http-equiv", "")
    assert "http" not in text and " src=" not in text and "<link" not in text


def test_a_folder_of_no_run_a_cut_file_and_too_many_runs_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run_config\.json: give the output_dir"):
        write_page(tmp_path, tmp_path)
    with pytest.raises(ValueError, match="at most 6"):
        write_page(tmp_path, *[tmp_path] * 7)
    (make_run(tmp_path / "run") / "completions" / "completions_00004.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"completions_00004\.parquet is damaged"):
        read_run(tmp_path / "run")


# --------------------------------------------------------------------------- in a browser

COUNT = "Number(document.getElementById('browsed').dataset.count)"
# What an expression gives at each of these addresses.
AT = "const at = (hash, get) => (history.replaceState(null, '', '#' + hash), show(), get());"


def texts_of(selector: str) -> str:
    """An expression: the texts of all that a selector finds."""
    text = "each.innerText.replace(/\\s+/g, ' ')"
    return f"[...document.querySelectorAll('{selector}')].map(each => {text})"


@pytest.fixture(scope="module")
def small_page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_page(folder, make_run(folder / "run"), make_run(folder / "other", [generation(9)]))
    return folder / "page.html"


@pytest.mark.slow
def test_the_address_filters_and_sorts_without_a_complaint(small_page):
    expected = {
        "": 12,
        "run=1": 4,
        "step=2": 4,
        "step=2-3": 8,
        "min=1": 6,
        "reward=reward:right_sum&min=2": 3,
        "reward=reward:right_sum&max=0": 6,
        "verifier=full": 3,
        "verifier=below": 9,
        "verifier=none": 0,
        "text=OF STEP 3": 4,
        "text=what is 1": 4,
        "text=be brief&step=1": 4,
    }
    counts = f"{json.dumps(list(expected))}.map(hash => at(hash, () => {COUNT}))"
    orders = "['step=3&sort=-reward', 'step=3&sort=advantage']"
    facts = f"{orders}.map(hash => at(hash, () => {texts_of('#browsed .facts')}))"
    seen = visit(small_page, f"{AT} [{counts}, {facts}]")
    assert dict(zip(expected, seen.value[0], strict=True)) == expected
    by_reward, by_advantage = seen.value[1]
    rewards = [float(re.search(r"reward ([\d.]+)", each)[1]) for each in by_reward]
    assert rewards == [2.25, 1.25, 0.25, 0.25]
    assert [each.rpartition(" ")[2] for each in by_advantage] == ["−1.5", "−0.5", "0.5", "1.5"]
    assert seen.log == []


@pytest.mark.slow
def test_a_control_changes_the_address_at_which_the_page_was_opened(small_page):
    choose = "const c = document.querySelector('[name=verifier]'); c.value = 'full'; "
    choose += f"c.dispatchEvent(new Event('input')); [location.hash, {COUNT}]"
    seen = visit(small_page, choose, "#sort=-reward&page=3")
    assert seen.value == ["#sort=-reward&verifier=full", 3]


@pytest.mark.slow
def test_held_out_rows_show_every_metric_and_call_no_answer_wrong(small_page):
    expected = {
        "": ["row 0", "row 1", "row 2", "row 3"],
        "way=won": ["row 0"],
        "way=lost": ["row 1"],
        "way=missed": ["row 3"],
        "metric=format&way=won": None,
    }
    rows = "document.querySelector('#compared').innerText.match(/row \\d+/g)"
    at = f"{json.dumps(list(expected))}.map(hash => at(hash, () => {rows}))"
    sides = f"at('way=won', () => {texts_of('#compared .sides .facts')})"
    ways = f"at('', () => {texts_of('[name=way] option')})"
    seen = visit(small_page, f"{AT} [{at}, {sides}, {ways}, document.body.innerText]")
    assert dict(zip(expected, seen.value[0], strict=True)) == expected
    before, after = seen.value[1]  # a right answer in another format fails the strict metric alone
    assert before.startswith("before ✗ strict ✓ format")
    assert after.startswith("after ✓ strict ✓ format")
    assert seen.value[2][:2] == ["all", "won: ✗, then ✓ (1)"]
    assert "wrong" not in seen.value[3].lower()


@pytest.mark.slow
def test_hostile_text_stays_text_and_the_policy_stops_a_script(tmp_path):
    table = generation(1, 4, ATTACK).assign(**{"right_sum/reason": ATTACK})
    table["prompt"] = [user(ATTACK)] * 4
    folder = make_run(tmp_path / "run", [table], note=ATTACK)
    for name, strict in (("before", False), ("after", True)):
        row = {**evaluated(0, strict, ATTACK), "prompt": user(ATTACK)}
        write_rows(folder / "evaluation" / f"{name}.jsonl", [row])
    text = write_page(tmp_path, folder)
    places = ["#browsed pre:not(details pre)", "#compared summary", "#versions"]
    texts = f"{json.dumps(places)}.map(place => document.querySelector(place).textContent)"
    seen = visit(tmp_path / "page.html", f"[...{texts}, document.images.length]")
    completion, prompt, settings, images = seen.value
    assert completion == prompt == ATTACK and ATTACK in settings and images == 0
    assert seen.log == []
    injected = text.replace("<body>", "<body><script>document.body.dataset.ran = 1</script>", 1)
    (tmp_path / "page.html").write_text(injected)
    seen = visit(tmp_path / "page.html", "document.body.dataset.ran ?? 'not run'")
    assert seen.value == "not run" and "Content Security Policy" in seen.log[0]


@pytest.mark.slow
def test_five_thousand_completions_load_in_three_seconds(tmp_path):
    line = "a line of reasoning that goes on for a while, "
    text = f"So {{i}} and {{step}}, {13 * line}<answer>{{i}}</answer>"
    write_page(tmp_path, make_run(tmp_path / "run", [generation(k, 50, text) for k in range(100)]))
    search = "const t = performance.now(); change({text: 'of a while'});"
    cards = "document.querySelectorAll('#browsed article').length"
    timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    ask = f"const n = {COUNT}; {search} [{timing}, n, performance.now() - t, {cards}]"
    loaded, count, taken, cards = visit(tmp_path / "page.html", ask).value
    assert loaded < 3000 and count == 5000 and taken < 1000 and cards <= 25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "theme", "background"),
    [
        (400, "light", "rgb(251, 251, 250)"),  # a phone
        (400, "dark", "rgb(22, 24, 28)"),
        (1280, "dark", "rgb(22, 24, 28)"),
    ],
)
def test_the_page_never_scrolls_sideways_and_follows_the_theme(tmp_path, width, theme, background):
    add_curve(make_run(tmp_path / "run", note="a-word-too-long-for-a-phone" * 9))
    write_page(tmp_path, tmp_path / "run")
    sizes = "innerWidth, document.documentElement.scrollWidth"
    ask = f"[{sizes}, getComputedStyle(document.body).backgroundColor]"
    seen = visit(tmp_path / "page.html", ask, width=width, theme=theme)
    assert seen.value == [width, width, background]
    assert seen.picture.startswith(b"\x89PNG") and int.from_bytes(seen.picture[16:20]) == width
