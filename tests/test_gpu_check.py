"""The check of a GPU box, as far as a CPU goes: what it demands, what it says, and that its minutes hold."""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import check_attention
import gpu_check
import pandas as pd
import psutil
import pytest
import torch
from gpu_check import FAILED, NOT_RUN, OK, check_box, chosen, judged
from tiny_model import build_tiny_model

from recipes.common.box_checks import (
    Box,
    Check,
    CheckFailed,
    agreement,
    all_checks,
    judge_attention,
    judge_launch,
    judge_quickstart,
    judge_sandbox,
)

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_check.py"
DDP = {"distributed_type": "MULTI_GPU", "device": "cuda"}


def left_by_a_launch(folder: Path, norms: list[float], texts: list[str], **engine) -> Path:
    (folder / "completions").mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"engine": {**DDP, **engine}}))
    history = [{"grad_norm": norm} for norm in norms]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": [*history, {"train_loss": 0.0}]}))
    for step, text in enumerate(texts, 1):
        pd.DataFrame({"completion": [text]}).to_parquet(folder / "completions" / f"completions_{step:05}.parquet")
    return folder


def box(folder: Path, device: str = "cuda", num_processes: int = 1) -> Box:
    return Box(device, num_processes, "MODEL", folder)


def script(code: str) -> list[str]:
    return [sys.executable, "-c", code]


# What is demanded of a launch


def test_a_launch_with_the_engine_asked_for_and_finite_gradients_is_good(tmp_path):
    folder = left_by_a_launch(tmp_path / "ddp", [0.5, 0.0, 0.25], [])
    assert judge_launch(folder, DDP, None) == "gradient norms 0.5, 0, 0.25"


def test_another_engine_in_force_is_named(tmp_path):
    folder = left_by_a_launch(tmp_path / "run", [1.0] * 3, [], distributed_type="NO")
    with pytest.raises(CheckFailed, match=r"^in force: distributed_type is 'NO', not 'MULTI_GPU'$"):
        judge_launch(folder, DDP, None)


@pytest.mark.parametrize("norms", [[0.0, 0.0, 0.0], [1.0, float("nan"), 1.0], [1.0, 1.0]])
def test_gradients_that_are_all_0_or_not_finite_or_missing_fail(norms, tmp_path):
    with pytest.raises(CheckFailed, match="gradient norms"):
        judge_launch(left_by_a_launch(tmp_path / "run", norms, []), DDP, None)


def test_a_launch_that_left_nothing_fails(tmp_path):
    with pytest.raises(CheckFailed, match=r"^it left no summary\.json$"):
        judge_launch(tmp_path, DDP, None)


def test_later_steps_may_part_from_the_reference_and_are_counted(tmp_path):
    reference = left_by_a_launch(tmp_path / "single_gpu_full", [1.0, 1.0, 1.0], ["a", "b", "c"])
    folder = left_by_a_launch(tmp_path / "zero2_full", [1.005, 2.0, 1.0], ["a", "b", "x"])
    assert agreement(folder, reference) == "2 of 3 steps as single_gpu_full"


def test_a_first_step_with_other_completions_fails(tmp_path):
    reference = left_by_a_launch(tmp_path / "single_gpu_full", [1.0] * 3, ["a", "b", "c"])
    folder = left_by_a_launch(tmp_path / "zero2_full", [1.0] * 3, ["x", "b", "c"])
    with pytest.raises(CheckFailed, match="other completions than single_gpu_full's"):
        agreement(folder, reference)


def test_a_first_gradient_norm_two_percent_off_fails(tmp_path):
    reference = left_by_a_launch(tmp_path / "single_gpu_full", [1.0] * 3, ["a", "b", "c"])
    folder = left_by_a_launch(tmp_path / "zero2_full", [1.02, 1.0, 1.0], ["a", "b", "c"])
    with pytest.raises(CheckFailed, match=r"gradient norm is 1\.02, single_gpu_full's is 1"):
        agreement(folder, reference)


def test_without_its_reference_a_launch_is_not_taken_for_good(tmp_path):
    folder = left_by_a_launch(tmp_path / "zero2_full", [1.0] * 3, ["a", "b", "c"])
    with pytest.raises(CheckFailed, match="nothing to compare with: ddp_full is not there"):
        agreement(folder, tmp_path / "ddp_full")


@pytest.mark.parametrize(("after", "good"), [(0.5, True), (0.25, False), (0.125, False)])
def test_a_quickstart_without_a_gain_fails(after, good, tmp_path):
    stages = {"before": {"lenient": {"share": 0.25}}, "after": {"lenient": {"share": after}}}
    (tmp_path / "summary.json").write_text(json.dumps({**stages, "minutes": 1.26}))
    if good:
        assert judge_quickstart(tmp_path) == "lenient 25.0 -> 50.0 % in 1.3 min"
    else:
        with pytest.raises(CheckFailed, match="no gain"):
            judge_quickstart(tmp_path)


def test_of_the_other_scripts_the_lines_that_matter_are_kept():
    printed = "kernel 6\nin force: Landlock\n  ok    network\nspeed: 9 programs a second\n"
    assert judge_sandbox(printed) == "Landlock; 9 programs a second"
    printed = "Loading weights\nsdpa error 1.00 % in 2.0 ms\nflash_attention_2 not run: needs a GPU\n"
    assert judge_attention(printed) == "sdpa error 1.00 % in 2.0 ms; flash_attention_2 not run: needs a GPU"


# What there is to run


def test_on_one_gpu_every_engine_is_held_to_one_process(tmp_path):
    against = {check.name: check.compared_with for check in all_checks(box(tmp_path)) if check.compared_with}
    assert against == {
        f"{name}_{kind}": f"single_gpu_{kind}"
        for name in ("ddp", "zero2", "zero3", "fsdp2")
        for kind in ("full", "lora")
    }


def test_of_several_processes_ddp_is_what_the_others_are_held_to_and_comes_first(tmp_path):
    checks = all_checks(box(tmp_path, num_processes=4))
    against = {check.name: check.compared_with for check in checks if check.compared_with}
    assert set(against.values()) == {"ddp_full", "ddp_lora"} and "ddp_full" not in against
    names = [check.name for check in checks]
    assert all(names.index(reference) < names.index(name) for name, reference in against.items())


def test_the_batch_of_a_step_is_the_same_for_any_number_of_processes(tmp_path):
    def batch(num_processes: int) -> int:
        (check,) = (c for c in all_checks(box(tmp_path, num_processes=num_processes)) if c.name == "zero2_full")
        return num_processes * int(check.words[check.words.index("--per_device_train_batch_size") + 1])

    assert batch(1) == batch(2) == batch(4) == 16


def test_what_a_cpu_cannot_run_is_not_run_with_a_reason(tmp_path):
    reasons = {check.name: check.not_run for check in all_checks(box(tmp_path, "cpu", 2)) if check.not_run}
    assert reasons.keys() == {"fsdp2_full", "fsdp2_lora", "flash_attention_2_lora"}
    assert all("needs a GPU" in reason for reason in reasons.values())


def test_asking_for_a_launch_asks_for_what_it_is_compared_with(tmp_path):
    assert [check.name for check in chosen(box(tmp_path), ["zero2_lora"])] == ["single_gpu_lora", "zero2_lora"]


def test_a_name_that_no_check_has_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="--only names zero9; there are sandbox, attention"):
        chosen(box(tmp_path), ["zero9"])


# What is said


def test_the_end_of_the_log_of_what_failed_is_shown():
    result, said = judged(Check("x"), 3, 1.0, "\n".join(f"line {i}" for i in range(40)))
    assert result == FAILED and said.startswith("exit status 3:\n    line 25\n") and said.endswith("line 39")


def test_a_fault_of_the_judge_fails_that_check_alone():
    result, said = judged(Check("x", judge=lambda printed: printed[5]), 0, 1.0, "")
    assert (result, said) == (FAILED, "could not be judged: IndexError: string index out of range")


def test_each_check_is_left_with_its_result_and_one_that_fails_fails_the_box(tmp_path):
    checks = [Check("good", script("print('fine')"), str.strip), Check("bad", script("raise SystemExit(7)"))]
    assert check_box(box(tmp_path, "cpu"), checks, time.monotonic() + 60, jobs=2) == 1
    left = json.loads((tmp_path / "check.json").read_text())["checks"]
    assert [(row["name"], row["result"], row["said"]) for row in left] == [
        ("good", OK, "fine"),
        ("bad", FAILED, "exit status 7:\n    "),
    ]


def test_a_box_that_can_run_everything_it_should_is_good(tmp_path):
    checks = [Check("good", script("print('fine')")), Check("else", not_run="needs a GPU")]
    assert check_box(box(tmp_path, "cpu"), checks, time.monotonic() + 60, jobs=1) == 0


def test_the_minutes_hold_and_what_still_runs_is_killed_with_its_children(tmp_path):
    sleeper = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(301)'])"
    checks = [Check("slow", script(sleeper), alone=True), Check("next", script("print('fine')"))]
    started = time.monotonic()
    assert check_box(box(tmp_path, "cpu"), checks, started + 2, jobs=1) == 1
    assert time.monotonic() - started < 20
    assert [row["result"] for row in json.loads((tmp_path / "check.json").read_text())["checks"]] == [NOT_RUN] * 2
    assert not [p for p in psutil.process_iter(["cmdline"]) if "time.sleep(301)" in " ".join(p.info["cmdline"] or [])]


def test_what_else_runs_here_is_left_alone(tmp_path):
    other = subprocess.Popen(script("import time; time.sleep(304)"))
    try:
        check_box(box(tmp_path, "cpu"), [Check("good", script("print('fine')"))], time.monotonic() + 60, jobs=1)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_what_has_to_be_alone_has_nothing_beside_it(tmp_path):
    marks = "import time; print(time.time(), flush=True); time.sleep(0.5); print(time.time())"
    checks = [Check(name, script(marks), alone=name != "c") for name in "abc"]
    with ThreadPoolExecutor(3) as pool:
        runs = gpu_check.started(checks, tmp_path, pool, Event(), time.monotonic() + 60)
        times = [[float(word) for word in run.result()[2].split()] for _, run in runs]
    assert times[0][1] <= times[1][0] and times[1][1] <= times[2][0]


def test_what_hangs_fails_in_its_own_time_and_the_others_still_run(tmp_path):
    hangs = Check("hangs", script("import time; time.sleep(302)"), alone=True, limit_s=2)
    checks = [hangs, Check("next", script("print('fine')"), str.strip)]
    assert check_box(box(tmp_path, "cpu"), checks, time.monotonic() + 60, jobs=1) == 1
    left = json.loads((tmp_path / "check.json").read_text())["checks"]
    assert [(row["result"], row["said"]) for row in left] == [
        (FAILED, "took more than 2 s, and was killed"),
        (OK, "fine"),
    ]


# As a command


def test_launches_beside_each_other_have_ports_of_their_own(tmp_path):
    for check in all_checks(box(tmp_path)):
        if check.name.startswith(("ddp", "zero", "fsdp")):
            assert check.words[check.words.index("--main_process_port") + 1] == "0"  # accelerate finds a free one


def test_after_the_installation_the_same_check_goes_on_with_what_was_given():
    given = argparse.Namespace(
        output=Path("out"), device="cuda", model=None, only=["sandbox", "ddp_full"], jobs=2, num_processes=None
    )
    words = gpu_check.again(Path("env/bin/python"), given, Path("kit-model"), 6.5)
    assert words[0] == "env/bin/python" and words[1].endswith("gpu_check.py")
    options = "--output out --device cuda --minutes 6.50 --model kit-model --only sandbox ddp_full --jobs 2"
    assert words[2:] == options.split()


@pytest.mark.slow
def test_an_installation_brings_what_the_kit_holds_before_what_the_box_has(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "toy"\nversion = "1"\ndependencies = ["psutil>=99"]\n[tool.setuptools]\npackages = []\n'
    )
    (project / "scripts").mkdir()
    (project / "scripts" / "prepare_model.py").write_text(
        "import sys; open('prepared', 'w').write(' '.join(sys.argv[1:]))"
    )
    for name in ("wheels", "model"):
        (tmp_path / "kit" / name).mkdir(parents=True)
    (tmp_path / "kit" / "model" / "model.whl").touch()
    toy_wheel(tmp_path / "kit" / "wheels", "psutil", "99.0")
    monkeypatch.setattr(gpu_check, "ROOT", project)
    monkeypatch.chdir(tmp_path)
    python, model = gpu_check.install(tmp_path / "kit", tmp_path / "out", time.monotonic() + 300)
    code = "import psutil, torch; print(psutil.TOY, torch.__version__)"
    printed = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split()[0] == "99.0" and printed.split()[1] == torch.__version__
    assert (tmp_path / "prepared").read_text() == f"--wheel {tmp_path}/kit/model/model.whl --output_dir {model}"


def toy_wheel(folder: Path, name: str, version: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"TOY = {version!r}")
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_sigterm_leaves_nothing_running(tmp_path):
    code = (
        "import gpu_check, sys, time; from pathlib import Path; from recipes.common.box_checks import Box, Check\n"
        "gpu_check.chosen = lambda *args: [Check('slow', [sys.executable, '-c', 'import time; time.sleep(303)'])]\n"
        "gpu_check.box_of = lambda args: Box('cpu', 1, 'MODEL', Path(args.output))\n"
        "gpu_check.main()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{SCRIPT.parent}:{SCRIPT.parents[1]}"}
    words = [sys.executable, "-c", code, "--output", str(tmp_path), "--device", "cpu"]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (sleeping := running("time.sleep(303)")[1:]) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.terminate()
    assert process.wait(30) == 143
    assert sleeping and running("time.sleep(303)") == []


def running(text: str) -> list[int]:
    """The processes whose command line has the text, the oldest first."""
    found = [p for p in psutil.process_iter(["cmdline"]) if text in " ".join(p.info["cmdline"] or [])]
    return [p.pid for p in sorted(found, key=lambda p: p.create_time())]


def test_help_waits_for_nothing_that_is_slow():
    for name in ("gpu_check", "check_attention", "gpu_kit"):
        words = [sys.executable, "-X", "importtime", str(SCRIPT.with_name(f"{name}.py")), "--help"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0
        assert [line for line in done.stderr.splitlines() if line.endswith((" torch", " trl", " recipes.common"))] == []


def test_attention_of_the_tiny_model_agrees_and_an_error_too_large_does_not(tmp_path, monkeypatch, capsys):
    model = str(build_tiny_model(tmp_path / "model"))
    assert check_attention.run(model, "cpu") == 0
    printed = judge_attention(capsys.readouterr().out).split("; ")
    assert [line.split()[0] for line in printed] == ["eager", "sdpa", "flash_attention_2"]
    assert printed[2] == "flash_attention_2 not run: needs a GPU"
    monkeypatch.setattr(check_attention, "LARGEST_RATIO", 0.5)
    assert check_attention.run(model, "cpu") == 1


def test_without_a_gpu_it_says_what_can_be_done(tmp_path):
    words = [sys.executable, str(SCRIPT), "--output", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env={"CUDA_VISIBLE_DEVICES": ""}, timeout=120)
    assert done.returncode == 1 and done.stderr.startswith("error: torch sees no GPU here. --device cpu checks")


def test_a_folder_that_is_no_kit_is_refused(tmp_path):
    words = [sys.executable, str(SCRIPT), "--kit", str(tmp_path), "--output", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "is no kit: it needs wheels/ and model/*.whl" in done.stderr


@pytest.mark.slow
def test_two_launches_beside_each_other_of_two_cpu_processes_take_the_same_steps(tmp_path):
    model = build_tiny_model(tmp_path / "model")
    words = [
        "--device",
        "cpu",
        "--model",
        str(model),
        "--output",
        str(tmp_path / "out"),
        "--only",
        "zero2_lora",
        "--jobs",
        "2",
    ]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "out" / "check.json").read_text())["checks"]
    assert [row["result"] for row in rows] == [OK, OK] and rows[1]["said"].endswith("3 of 3 steps as ddp_lora")
