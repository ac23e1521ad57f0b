"""The pages name only what is there: links and headings, paths, and options of scripts and recipes.

RESULTS.md is left out: it is generated, and its commands are those of the commit they were run at.
"""

import dataclasses
import re
from pathlib import Path

import pytest
from support.launching import ROOT
from trl import ModelConfig

from recipes.common.data.questions import QuestionArguments
from recipes.common.trainer import GRPOConfig

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("recipes/*/README.md"),
]
HEADERS = [*ROOT.glob("recipes/*/*.yaml"), *ROOT.glob("accelerate_configs/*.yaml")]
FIELDS = {
    field.name
    for of in (QuestionArguments, GRPOConfig, ModelConfig)
    for field in dataclasses.fields(of)
}
OWN = re.compile(r"^    (\w+): [^=\n]+ = ", re.MULTILINE)
FIELDS |= {
    name for recipe in ROOT.glob("recipes/*/train.py") for name in OWN.findall(recipe.read_text())
}
PATH = re.compile(
    r"(?<![\w/.-])(?:accelerate_configs|docs|recipes|results|rewards|scripts|tests)/[\w./*<>-]*[\w*/>]"
)
COMMAND = re.compile(r"(scripts/[\w/]+\.py|recipes/\w+/train\.py)([^#`\n]*)")


def text_of(file: Path) -> str:
    """A page, or the comments of a YAML file, with continued lines of a command joined."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".yaml":
        text = "\n".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return re.sub(r"\\\n\s*", "", text)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_option(script: str, option: str) -> bool:
    source = (ROOT / script).read_text(encoding="utf-8")
    takes_settings = (
        script.startswith("recipes/") or "parse_known_args" in source or "load_recipe" in source
    )
    own = f'"--{option}"' in source or f"    {option}: " in source
    return own or option == "config" or (takes_settings and option in FIELDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page):
    links = [
        link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text())
    ]
    targets = [(page.parent / file if file else page, anchor) for file, _, anchor in links]
    assert [
        str(file)
        for file, anchor in targets
        if not file.exists() or (anchor and anchor not in anchors(file))
    ] == []


@pytest.mark.parametrize("file", [*PAGES, *HEADERS], ids=lambda file: str(file.relative_to(ROOT)))
def test_the_paths_and_options_a_page_names_are_there(file):
    paths = {
        path
        for path in PATH.findall(text_of(file))
        if "<" not in path and not path.endswith("/mean")
    }
    assert sorted(path for path in paths if not any(ROOT.glob(path.rstrip("/")))) == []
    commands = [
        (script, re.findall(r"--(\w+)", words)) for script, words in COMMAND.findall(text_of(file))
    ]
    assert [
        f"{script} --{name}"
        for script, names in commands
        for name in names
        if not is_option(script, name)
    ] == []
