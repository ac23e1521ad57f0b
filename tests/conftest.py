"""Shared by tests: a tiny model, one thread, an environment."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

# Before torch loads: threads that spin while they wait make a busy machine many times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Where DeepSpeed compiles its kernels.
os.environ.setdefault("CXX", str(Path(__file__).parent / "support/quick_c++"))
# A name such as org/model passes as one of the Hub, which no test asks for; offline it is refused.
os.environ.pop("HF_HUB_OFFLINE", None)
# Processes that tests start import tests/support as well.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
)

OWN_TARGET = ("vllm", "slurm", "install")
LONGEST = ("test_launch", "test_arms", "test_training", "test_two_nodes", "test_sandbox_pool")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, as one process takes a file; what has a target runs by it alone."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    for item in items:
        for name in OWN_TARGET:
            if item.get_closest_marker(name) and name not in config.option.markexpr:
                item.add_marker(pytest.mark.skip(reason=f"`make test-{name}` runs it"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random model."""
    # transformers is not for tests that need no model
    from support.tiny_model import build_tiny_model

    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """On a model this small threads cost more than they give, and most on a busy machine."""
    import torch  # the process that only hands out tests needs none

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """accelerate writes ranks into the environment of its process: each test has its own."""
    before = dict(os.environ)
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "ACCELERATE_USE_CPU"):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def run_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable:
    """Call the `main` of a script: its exit status, what it printed, and on the error stream."""

    def run(script: ModuleType, *words: object) -> tuple[int, str, str]:
        status = 0
        monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *map(str, words)])
        try:
            script.main()
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def parse(tmp_path: Path) -> Callable:
    """Parse settings as a YAML file, and words of a command line."""
    from recipes.common.settings import RecipeArguments, parse_arguments

    def parsed(settings: dict | str, *words: str):
        file = tmp_path / "run.yaml"
        file.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        return parse_arguments(RecipeArguments, ["--config", str(file), *words])

    return parsed
