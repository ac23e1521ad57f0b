"""The install lines of the pages resolve on every Python that is named, and the Dockerfile's last
line installs the set of constraints.txt. No image is built.

`make test-install` runs these: they ask the package index, and one installs 2 GB.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.launching import ROOT

pytestmark = pytest.mark.install

LINE = re.compile(r"pip install -e '\.\[([\w,]+)\]' -c constraints\.txt")
PAGES = [*ROOT.glob("*.txt"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*/*.yaml")]
EXTRAS = {"", "quant", "dev,eval"}  # constraints.txt's own, docs/running.md's, the Makefile's
EXTRAS |= {extras for page in PAGES for extras in LINE.findall(page.read_text(encoding="utf-8"))}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("python", ["3.11", "3.12"])
@pytest.mark.parametrize("extras", sorted(EXTRAS))
def test_what_the_pages_say_to_install_resolves_to_the_pinned_set(extras, python):
    words = ["uv", "pip", "compile", "-q", "pyproject.toml", "-c", "constraints.txt"]
    words += [f"--extra={extra}" for extra in extras.split(",") if extra]
    words[0] = str(Path(sys.executable).with_name("uv"))
    options = {"cwd": ROOT, "capture_output": True, "text": True}
    done = subprocess.run([*words, f"--python-version={python}"], **options)
    assert done.returncode == 0, done.stderr
    assert {"torch==2.13.0", "trl==1.16.0", "numpy==2.3.5"} <= set(done.stdout.split())
    # DeepSpeed builds with the CUDA of torch alone: the image's.
    (cuda,) = re.findall(r"^FROM nvidia/cuda:(\d+\.\d+)\.", DOCKERFILE, re.MULTILINE)
    assert f"\ncuda-toolkit=={cuda}." in done.stdout
    assert ("\nvllm==0.30.0" in done.stdout) == (extras == "vllm")


def test_the_last_line_of_the_dockerfile_installs_the_pinned_set(tmp_path):
    files = subprocess.check_output(["git", "archive", "HEAD"], cwd=ROOT)
    subprocess.run(["tar", "-x"], cwd=tmp_path, input=files, check=True)
    line = re.findall(r"^RUN (.*pip install.*)$", DOCKERFILE, re.MULTILINE)[-1]
    env = {**os.environ, "PATH": f"{tmp_path}/.venv/bin:{os.environ['PATH']}"}
    subprocess.run(line, shell=True, cwd=tmp_path, env=env, check=True)
    words = [tmp_path / ".venv/bin/python", "-m", "pip", "freeze", "--exclude-editable"]
    installed = set(subprocess.check_output(words, text=True).replace("+cpu", "").split())
    assert "deepspeed==0.19.8" in installed
    assert installed <= set((ROOT / "constraints.txt").read_text().split()) | {"setuptools"}
    subprocess.run([words[0], "recipes/arithmetic/train.py", "--help"], cwd=tmp_path, check=True)
