"""The report page: what it says of a run, and that a real browser shows, filters and sorts it without an error."""

import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from recipes.common.after import report
from recipes.common.after.report import answer_parts, config_rows, evenly, read_run, verifiers
from recipes.common.after.report_page import write_report
from recipes.common.tools.folder import messages

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ATTACK = '</script><script>alert(1)</script><img src=x onerror="alert(2)"><!--<script>&lt;b&gt; {{data}} $1 \\u003c'
PREFLIGHT = """\
  task       weight  reward      kind      rows scored  reference earns  full  empty earns
  chain_sum  1.0     right_sum   verifier  8            2.0              2.0   0.0
  chain_sum  0.5     tidy        format    8            1.0              1.0   0.0
  right_sum: a note of the reward
"""
LOG = [
    {"step": step, "reward": step / 10, "rewards/right_sum/mean": step / 20, "rewards/tidy/mean": 0.5}
    | {"completions/mean_length": 10.0 + step, "completions/clipped_ratio": 0.1, "kl": 0.01, "entropy": 1.5}
    for step in range(1, 7)
]
STARTS = [
    {"from_step": 0, "versions": {"python": "3.11.7"}, "commit": "abc", "hardware": "2 CPU cores", "command": ["train"]}
]


def user(text: str) -> list[dict]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def generation(step: int, count: int = 4, text: str = "So {i} <answer>{i}</answer> of step {step}") -> pd.DataFrame:
    """Completion i earns i % 3 of right_sum (full: 2) and 0.5 of tidy."""
    said = [text.replace("{i}", str(i)).replace("{step}", str(step)) for i in range(count)]
    columns = {"step": [step] * count, "prompt": [user(f"What is {step}?")] * count}
    columns |= {"completion": [[{"role": "assistant", "content": each}] for each in said]}
    columns |= {"right_sum": [float(i % 3) for i in range(count)], "tidy": [0.5] * count}
    return pd.DataFrame(columns | {"right_sum/reason": ["why"] * count, "advantage": [i - 1.5 for i in range(count)]})


def judged(row: int, strict: bool, text: str) -> dict[str, Any]:
    paid = {"right_sum": 2.0 * strict, "tidy": None}
    return {"row": row, "prompt": user(f"Held out {row}"), "answer": "4", "completion": text, "tokens": 5} | {
        "truncated": False,
        "metrics": {"strict": strict, "format": True},
        "rewards": paid,
    }


def make_run(folder: Path, generations: list[pd.DataFrame] | None = None, after: bool = True, **config) -> Path:
    """A finished run of three generations with four held-out rows: one won, one lost, one right, one wrong."""
    (folder / "completions").mkdir(parents=True)
    (folder / "evaluation").mkdir()
    settings = {"reward_funcs": ["right_sum", "tidy"], "reward_weights": [1.0, 0.5], "seed": 0, **config}
    (folder / "run_config.json").write_text(json.dumps(settings))
    (folder / "versions.json").write_text(json.dumps(STARTS))
    (folder / "preflight.txt").write_text(PREFLIGHT)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": LOG}))
    for table in generations if generations is not None else [generation(step) for step in (1, 2, 3)]:
        table.to_parquet(folder / "completions" / f"completions_{table['step'][0]:05d}.parquet")
    for name, right in (("before", [0, 1, 1, 0]), ("after", [1, 0, 1, 0]))[: 1 + after]:
        rows = [judged(i, bool(strict), f"{name} {i}") for i, strict in enumerate(right)]
        (folder / "evaluation" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if after:
        (folder / "summary.json").write_text(json.dumps({"steps": 6, "minutes": 1.5, "engine": {"world_size": 1}}))
    return folder


def data_of(page: Path) -> list[dict]:
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nothing here", ["nothing here"]),
        ("a <answer> 4 </answer> b", ["a <answer>", " 4 ", "</answer> b"]),
        ("<answer>3</answer> or <answer>4</answer> so </answer>", None),
        (r"so \boxed{\frac{1}{2}}.", [r"so \boxed{", r"\frac{1}{2}", "}."]),
        ("sum\n#### 18 \nmore", ["sum\n#### ", "18", " \nmore"]),
        ("Thus:\n```python\nx = 1\n```\n", ["Thus:\n```python\n", "x = 1\n", "```\n"]),
        ("<answer></answer>", ["<answer></answer>"]),
    ],
)
def test_the_answer_is_marked_where_it_can_be_told(text, parts):
    parts = parts or ["<answer>3</answer> or <answer>", "4", "</answer> so </answer>"]
    assert answer_parts(text) == parts


def test_marking_loses_no_character_and_is_fast_on_hostile_text(hostile, seconds):
    assert "".join(answer_parts(hostile)) == hostile
    assert seconds(lambda: answer_parts(hostile)) < 1.0


def test_a_plain_prompt_is_a_message_without_a_role():
    assert messages("2 + 2 =") == [("", "2 + 2 =")]
    assert messages([{"role": "user", "content": [{"type": "text"}]}]) == [("user", '[{"type": "text"}]')]
    assert messages([{"role": "assistant", "content": None}]) == [("assistant", "")]


def test_verifiers_are_read_from_the_preflight_table(tmp_path):
    (tmp_path / "preflight.txt").write_text(PREFLIGHT)
    assert verifiers(tmp_path / "preflight.txt") == {"right_sum": 2.0}
    assert verifiers(tmp_path / "absent.txt") == {}


def test_settings_that_differ_are_those_of_any_run():
    configs = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "c": 4}]
    assert config_rows(configs, differing=True) == [("b", [2, 3, None]), ("c", [None, None, 4])]


def test_completions_carry_rewards_total_and_verdict(tmp_path):
    run = read_run(make_run(tmp_path / "run", [generation(1, 3)]))
    assert [(row["rewards"], row["total"], row["right"]) for row in run["completions"]] == [
        ([0.0, 0.5], 0.25, False),
        ([1.0, 0.5], 1.25, False),
        ([2.0, 0.5], 2.25, True),
    ]
    assert (run["rewards"], run["extras"]) == (["right_sum", "tidy"], ["right_sum/reason"])


def test_what_no_reward_judged_has_no_total_and_no_verdict(tmp_path):
    table = generation(1, 2)
    table.loc[0, ["right_sum", "tidy"]] = float("nan")
    first, second = read_run(make_run(tmp_path / "run", [table]))["completions"]
    assert (first["rewards"], first["total"], first["right"]) == ([None, None], None, None)
    assert (second["total"], second["right"]) == (1.25, False)


def test_right_is_what_every_verifier_paid_in_full(tmp_path):
    folder = make_run(tmp_path / "run", [generation(1, 3).assign(tidy=[1.0, 1.0, 0.5])])
    table = PREFLIGHT.replace("format  ", "verifier").replace("2.0              2.0 ", "1.0              1.0 ")
    (folder / "preflight.txt").write_text(table)
    assert [row["right"] for row in read_run(folder)["completions"]] == [False, True, False]


def test_a_generation_that_was_logged_again_is_shown_once(tmp_path):
    again = [generation(1).assign(step=step) for step in (1, 2)] + [generation(3)]
    run = read_run(make_run(tmp_path / "run", again))
    assert [row["step"] for row in run["completions"]] == [1] * 4 + [3] * 4
    assert run["logged"] == 8


def test_of_too_many_completions_whole_generations_are_kept_first_and_last(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_COMPLETIONS", 12)
    run = read_run(make_run(tmp_path / "run", [generation(step) for step in range(1, 8)]))
    assert [row["step"] for row in run["completions"][::4]] == [1, 4, 7]
    assert (len(run["completions"]), run["logged"]) == (12, 28)


def test_a_column_that_a_reward_logs_later_is_kept(tmp_path):
    run = read_run(make_run(tmp_path / "run", [generation(1), generation(2).assign(late="x")]))
    assert run["extras"] == ["right_sum/reason", "late"]
    assert [row["extras"] for row in run["completions"][::4]] == [["why", None], ["why", "x"]]


def test_a_file_of_completions_that_is_cut_short_is_named(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "completions" / "completions_00004.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"completions_00004\.parquet is cut short"):
        read_run(folder)


def test_evenly_keeps_both_ends():
    assert evenly(list(range(100)), 4) == [0, 33, 66, 99]
    assert evenly([1, 2], 5) == [1, 2]


def test_flipped_rows_are_those_whose_verdict_changed(tmp_path):
    run = read_run(make_run(tmp_path / "run"))
    assert [(row["row"], row["metrics"]["strict"]) for row in run["flipped"]] == [
        (0, (False, True)),
        (1, (True, False)),
    ]
    assert run["flipped"][0]["before"]["parts"] == ["before 0"] and run["flipped"][0]["after"]["parts"] == ["after 0"]


def test_before_and_after_stand_with_interval_and_p(tmp_path):
    write_report([make_run(tmp_path / "run")], tmp_path / "page.html")
    row = '<th scope="row">strict</th><td>50.0 % (15–85)</td><td>50.0 % (15–85)</td><td>+0.0 pt</td><td>1</td>'
    assert row in (tmp_path / "page.html").read_text().replace("\u00a0", " ").replace("\n(", " (")


def test_a_run_that_goes_on_has_a_page(tmp_path):
    folder = make_run(tmp_path / "run", after=False)
    (folder / "trainer_state.json").unlink()
    write_report([folder], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text().replace("\u00a0", " ").replace("\n(", " (")
    assert "This run is not finished." in text and "No step was logged yet." in text and "50.0 % (15–85)" in text


def test_a_run_without_completions_says_how_to_log_them(tmp_path):
    write_report([make_run(tmp_path / "run", [])], tmp_path / "page.html")
    assert "log_completions: true" in data_of(tmp_path / "page.html")[0]["note"]


def test_a_message_that_repeats_is_stored_once(tmp_path):
    write_report([make_run(tmp_path / "run")], tmp_path / "page.html")
    said = [text for _, text in data_of(tmp_path / "page.html")[0]["messages"]]
    assert said == ["Be brief.", "What is 1?", "What is 2?", "What is 3?", "Held out 0", "Held out 1"]


def test_several_runs_share_curves_and_show_the_settings_that_differ(tmp_path):
    runs = [make_run(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 1))]
    write_report(runs, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    differing = text[text.index("Settings that differ") : text.index("Held-out rows that flipped")]
    assert re.findall(r'<th scope="row">(.*?)</tr>', differing) == ["seed</th><td>0</td><td>1</td>"]
    assert "stroke: var(--run1)" in text and '<li class="run1">b</li>' in text


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    runs = [make_run(tmp_path / name / "run") for name in ("x", "y")]
    write_report(runs, tmp_path / "page.html")
    assert [run["name"] for run in data_of(tmp_path / "page.html")] == [str(run) for run in runs]


def test_the_page_fetches_nothing(tmp_path):
    write_report([make_run(tmp_path / "run")], tmp_path / "page.html")
    text = re.sub(r'xmlns(:\w+)?="[^"]*"', "", (tmp_path / "page.html").read_text())
    assert "http" not in text.replace("http-equiv", "") and " src=" not in text and "<link" not in text


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run_config\.json: give the output_dir"):
        write_report([tmp_path], tmp_path / "page.html")
    with pytest.raises(ValueError, match="at most 6"):
        write_report([tmp_path] * 7, tmp_path / "page.html")


class Browser:
    """A page in headless Chromium, spoken to over its debugging pipe; `errors` collects what its console reports."""

    def __init__(self, folder: Path):
        to_browser, commands = os.pipe()
        events, from_browser = os.pipe()
        words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        words += [f"--user-data-dir={folder}", "--no-first-run", "about:blank"]
        # The shell moves our ends to the descriptors 3 and 4 that Chromium reads and writes.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", script, "bash", *words], pass_fds=(to_browser, from_browser), stdout=log, stderr=log
            )
        os.close(to_browser)
        os.close(from_browser)
        self.commands, self.events = os.fdopen(commands, "wb", 0), os.fdopen(events, "rb")
        self.numbers, self.received, self.errors, self.session = itertools.count(1), [], [], None
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters) -> dict:
        number = next(self.numbers)
        session = {"sessionId": self.session} if self.session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        self.commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict:
        raw = bytearray()
        while (byte := self.events.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            raw += byte
        message = json.loads(raw)
        event, details = message.get("method"), message.get("params", {})
        said = details.get("entry", {}).get("level") or details.get("type")
        if event in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening") or (
            event in ("Log.entryAdded", "Runtime.consoleAPICalled") and said in ("error", "warning")
        ):
            self.errors.append(message)
        self.received.append(event)
        return message

    def open(self, page: Path, fragment: str = "") -> float:
        """Seconds until the page and its script have run and it is laid out."""
        self._go("about:blank")  # from the same file another fragment would load nothing
        start = time.monotonic()
        self._go(page.as_uri() + fragment)
        self.run("document.body.offsetHeight")
        return time.monotonic() - start

    def _go(self, url: str) -> None:
        self.received.clear()
        self.ask("Page.navigate", url=url)
        while "Page.loadEventFired" not in self.received:
            self._receive()

    def run(self, expression: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, width: int, height: int, dark: bool = False) -> None:
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=theme)
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self.commands.close()  # Chromium ends when its pipe does
        try:
            self.process.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        self.events.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def small_page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_report([make_run(folder / "run"), make_run(folder / "other", [generation(9)])], folder / "page.html")
    return folder / "page.html"


CARDS = "[...document.querySelectorAll('#browsed article')]"
FACTS = f"{CARDS}.map(card => card.querySelector('.facts').innerText.replace(/\\s+/g, ' '))"
COUNT = "Number(document.getElementById('browsed').dataset.count)"


@pytest.mark.slow
def test_the_page_opens_without_a_console_error(browser, small_page):
    browser.errors.clear()
    browser.open(small_page)
    assert browser.run(COUNT) == 12
    assert browser.run("document.querySelectorAll('#curves svg').length") == 7
    assert browser.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fragment", "count"),
    [
        ("step=2", 4),
        ("step=2-3", 8),
        ("min=1", 6),
        ("reward=reward:right_sum&min=2", 3),
        ("reward=reward:right_sum&max=0", 6),
        ("judged=right", 3),
        ("judged=wrong", 9),
        ("judged=none", 0),
        ("text=OF STEP 3", 4),
        ("text=what is 1", 4),
        ("text=be brief&step=1", 4),
        ("run=1", 4),
    ],
)
def test_the_address_filters(browser, small_page, fragment, count):
    browser.open(small_page, f"#{fragment}")
    assert browser.run(COUNT) == count


@pytest.mark.slow
def test_the_address_sorts(browser, small_page):
    browser.open(small_page, "#step=3&sort=-reward")
    rewards = [float(re.search(r"reward ([\d.]+)", facts)[1]) for facts in browser.run(FACTS)]
    assert rewards == [2.25, 1.25, 0.25, 0.25]
    browser.open(small_page, "#step=3&sort=advantage")
    assert [facts.rpartition(" ")[2] for facts in browser.run(FACTS)] == ["−1.5", "−0.5", "0.5", "1.5"]


@pytest.mark.slow
def test_a_control_changes_the_address_and_the_list(browser, small_page):
    browser.open(small_page, "#sort=-reward&page=3")
    set_right = (
        "const c = document.querySelector('[name=judged]'); c.value = 'right'; c.dispatchEvent(new Event('input'))"
    )
    browser.run(f"{{{set_right}}}")
    assert (browser.run("location.hash"), browser.run(COUNT)) == ("#sort=-reward&judged=right", 3)


@pytest.mark.slow
def test_flipped_rows_are_filtered_by_direction_and_metric(browser, small_page):
    flips = "document.querySelector('#flipped').innerText.match(/row \\d+/g)"
    for fragment, rows in (("", ["row 0", "row 1"]), ("#flip=won", ["row 0"]), ("#flip=lost", ["row 1"])):
        browser.open(small_page, fragment)
        assert browser.run(flips) == rows
    browser.open(small_page, "#metric=format")
    assert browser.run(flips) is None


@pytest.mark.slow
def test_hostile_text_stays_text(browser, tmp_path):
    table = generation(1, 4, ATTACK).assign(**{"right_sum/reason": ATTACK})
    table["prompt"] = [user(ATTACK)] * 4
    folder = make_run(tmp_path / "run", [table], note=ATTACK)
    rows = [json.dumps({**judged(0, strict, ATTACK), "prompt": user(ATTACK)}) for strict in (False, True)]
    for name, row in zip(("before", "after"), rows, strict=True):
        (folder / "evaluation" / f"{name}.jsonl").write_text(row + "\n")
    write_report([folder], tmp_path / "page.html")
    browser.errors.clear()
    browser.open(tmp_path / "page.html")
    assert browser.run("document.querySelector('#browsed pre:not(details pre)').textContent") == ATTACK
    assert browser.run("document.querySelector('#flipped summary').textContent") == ATTACK
    assert browser.run("document.scripts.length") == 2 and browser.run("document.images.length") == 0
    assert ATTACK in browser.run("document.querySelector('#versions').textContent")
    assert browser.errors == []


@pytest.mark.slow
def test_the_policy_stops_a_script_that_was_put_into_the_page(browser, small_page, tmp_path):
    text = small_page.read_text().replace("<body>", "<body><script>window.ran = 1</script>", 1)
    (tmp_path / "page.html").write_text(text)
    browser.open(tmp_path / "page.html")
    assert browser.run("window.ran === undefined")
    browser.errors.clear()


@pytest.mark.slow
def test_five_thousand_completions_load_in_three_seconds(browser, tmp_path):
    words = (
        "So {i} and {step}, therefore " + "a line of reasoning that goes on for a while, " * 12 + "<answer>{i}</answer>"
    )
    tables = [generation(step, 50, words) for step in range(1, 101)]
    write_report([make_run(tmp_path / "run", tables)], tmp_path / "page.html")
    assert browser.open(tmp_path / "page.html") < 3.0
    assert browser.run(COUNT) == 5000
    taken = browser.run("const t = performance.now(); change({text: 'of a while'}); performance.now() - t")
    assert taken < 1000
    assert browser.run("document.querySelectorAll('#browsed article').length") <= 25


@pytest.mark.slow
def test_a_phone_never_scrolls_sideways(browser, small_page, tmp_path):
    browser.open(small_page)
    browser.screenshot(tmp_path / "phone.png", 390, 844)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    browser.ask("Emulation.clearDeviceMetricsOverride")
