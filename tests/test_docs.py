"""The pages name only what is there: links, headings, paths, options; the example judge runs."""

import asyncio
import dataclasses
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import test_launch
import test_slurm_cluster
from support.launching import ROOT
from trl import ModelConfig

from recipes.common.data.questions import QuestionArguments
from recipes.common.trainer import GRPOConfig

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*/README.md")]
PAGES.remove(ROOT / "CHANGELOG.md")  # it names what is gone
HEADERS = [*ROOT.glob("recipes/*/*.yaml"), *ROOT.glob("accelerate_configs/*.yaml")]
ENTRIES = [*ROOT.glob("results/*.json")]  # of each the command
KINDS = (QuestionArguments, GRPOConfig, ModelConfig)
FIELDS = {field.name for kind in KINDS for field in dataclasses.fields(kind)}
OWN_FIELD = re.compile(r"^    (\w+): [^=\n]+ = ", re.MULTILINE)
for file in ROOT.glob("recipes/*/train.py"):
    FIELDS |= set(OWN_FIELD.findall(file.read_text(encoding="utf-8")))
FOLDERS = "accelerate_configs|docs|recipes|results|rewards|scripts|tests"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./*<>-]*[\w*/>]")
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
CODE = "\n".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/**/test_*.py"))
TESTS = set(re.findall(r"^def (test_\w+)", CODE, re.MULTILINE))
COMMAND = re.compile(r"(scripts/[\w/]+\.py|recipes/\w+/train\.py)([^#`\n]*)")


def text_of(file):
    """A page, the comments of a YAML file, or the command of published runs; its lines joined."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return re.sub("[;,] ", "\n", json.loads(text)["command"])
    if file.suffix == ".yaml":
        text = "\n".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return re.sub(r"\\\n\s*", "", text)


def anchors(page):
    """The headings of a page as GitHub links them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_option(script, option):
    source = (ROOT / script).read_text(encoding="utf-8")
    is_setting = option == "config" or option in FIELDS
    return is_setting or f'"--{option}"' in source or f"    {option}: " in source


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_script_file_option_target_and_test_that_a_page_names_is_there():
    missing = []
    for file in [*PAGES, *HEADERS, *ENTRIES]:
        text = text_of(file)
        paths = {path for path in PATH.findall(text) if not re.search("<|NAME|/mean$", path)}
        named = [path for path in paths if not any(ROOT.glob(path.rstrip("/")))]
        named += set(re.findall(r"`(test_\w+)`", text)) - TESTS
        named += set(re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)) - TARGETS
        for script, words in COMMAND.findall(text):
            options = re.findall(r"--(\w+)", words) if (ROOT / script).is_file() else []
            named += [f"{script} --{name}" for name in options if not is_option(script, name)]
        missing += [f"{file.relative_to(ROOT)}: {name}" for name in sorted(named)]
    assert missing == []


def test_the_pages_keep_to_their_length():
    words = {name: len((ROOT / name).read_text().split()) for name in ("README.md", "RESULTS.md")}
    assert words["README.md"] <= 600 and words["RESULTS.md"] <= 2500


class Judge(BaseHTTPRequestHandler):
    """A server that grades by what the question says, and fails once."""

    calls = 0

    def do_POST(self):
        type(self).calls += 1
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        reply = '{"choices": [{"message": {"content": "%s"}}]}' % ("7" if "good" in asked else "?")
        self.send_response(500 if self.calls == 1 else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *words):
        """Nothing on the screen."""


def test_the_language_model_as_the_scorer_grades_repeats_and_leaves_out(monkeypatch):
    pytest.importorskip("openai")
    page = (ROOT / "docs/rewards.md").read_text(encoding="utf-8")
    section = page.partition("## A language model as the scorer")[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    server = HTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    scope = {}
    exec(code.replace("http://localhost:8000/v1", url), scope)
    good, bad = ([[{"role": "assistant", "content": text}]] for text in ("good", "bad"))
    prompts = [[{"role": "user", "content": "Why?"}]]
    try:
        assert asyncio.run(scope["judge"](prompts, good)) == [0.7]
        with pytest.raises(ValueError, match="the judge's reply is no number"):
            asyncio.run(scope["judge"](prompts, bad))
    finally:
        server.shutdown()
    assert Judge.calls == 3, "the call that failed is repeated"


def launch_row(launch):
    """A row of docs/running.md on an engine, from what is tested; a to d are names of tests."""
    cells = []
    for kind in test_launch.KINDS:
        resumes = ["b"] if (launch, kind) in test_launch.RESUMED else []
        resumes += ["c"] if kind == "full" and launch in test_slurm_cluster.SIGNALLED else []
        cells.append("a" if (launch, kind) in test_launch.RUNS else "not run")
        cells.append(", ".join(resumes) or "not run")
    on_gpus = "not run (d)" if launch in test_launch.ON_ACCELERATORS else "not run"
    return f"| `{launch}.yaml` | {' | '.join([*cells, on_gpus])} |"


def test_the_launch_table_has_what_the_tests_launch_and_no_more():
    page = (ROOT / "docs/running.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| `\w+\.yaml` \|", line)]
    assert rows == [launch_row(launch) for launch in test_launch.ENGINES]
