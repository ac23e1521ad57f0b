"""The house: who may import whom, no circles, small files, thin scripts, and light imports."""

import ast
import functools
from collections import Counter
from pathlib import Path

import pytest
from support.launching import warm_python

ROOT = Path(__file__).parents[1]
COMMON = "recipes.common"
# Room -> the rooms it may import, of those in recipes/common; all but utils may import rewards.
# A room is a folder or a file.
BELOW_SETTINGS = {"utils", "training", "trainer"}
BELOW_CHECKS = {*BELOW_SETTINGS, "settings", "limits", "data"}
BELOW_SAMPLING = {*BELOW_CHECKS, "evaluation", "checks"}
ALLOWED = {
    "utils": set(),
    "training": {"utils"},
    "evaluation": {"utils"},
    "trainer": {"utils", "training"},
    "limits": {"utils", "training"},
    "settings": {"utils", "trainer", "limits"},
    "data": {"utils", "settings"},
    "report": {"utils", "training", "evaluation"},
    "watch": {"utils", "training", "evaluation", "report"},
    "checks": BELOW_CHECKS,
    "run": {*BELOW_SAMPLING, "report", "watch"},
    "sampling": BELOW_SAMPLING,
    "warm_start": {*BELOW_SAMPLING, "sampling"},
    "many_runs": {*BELOW_SAMPLING, "sampling", "warm_start", "report", "watch", "run"},
}
A_RECIPE = {"run", "trainer", "evaluation.metrics", "data.questions", "data.split"}
LONGEST = {  # lines of a file
    **dict.fromkeys(["recipes/**/*.py", "rewards/**/*.py", "scripts/**/*.py"], 460),
    "scripts/*.py": 100,  # thin
    "recipes/*/train.py": 150,
    **dict.fromkeys(["recipes/gsm8k/train.py", "recipes/code/train.py"], 90),
}
MAX_MODULES = 30

# Lines of a room, rounded up to the next fifty: one that grows shows in the change that raises it.
BUDGET = {
    "recipes": 50,
    "recipes/arithmetic": 200,
    "recipes/calculator": 200,
    "recipes/code": 620,
    "recipes/common/checks": 1600,
    "recipes/common/data": 900,
    "recipes/common/evaluation": 600,
    "recipes/common/limits.py": 300,
    "recipes/common/many_runs": 650,
    "recipes/common/report": 770,
    "recipes/common/run.py": 205,
    "recipes/common/sampling": 500,
    "recipes/common/settings.py": 400,
    "recipes/common/trainer.py": 460,
    "recipes/common/training": 2400,
    "recipes/common/utils": 1000,
    "recipes/common/warm_start.py": 200,
    "recipes/common/watch.py": 350,
    "recipes/gsm8k": 150,
    "recipes/math": 150,
    "recipes/math_code": 250,
    "recipes/number_count": 150,
    "rewards": 4250,
    "rewards/latex": 1450,
    "rewards/sandbox": 2750,
    "scripts": 950,
    "tests": 14750,
}


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


LIBRARY = {
    name_of(file): file
    for folder in ("recipes", "rewards")
    for file in (ROOT / folder).rglob("*.py")
}


@functools.cache
def imports(file: Path) -> frozenset[str]:
    """The modules that a file imports, anywhere in it, and what it imports from them."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return frozenset(found)


def room(name: str) -> str | None:
    """The room of a module in recipes/common: `recipes.common.utils.stats` is in `utils`."""
    inside = name.removeprefix(COMMON + ".")
    return None if inside == name or name == COMMON else inside.split(".")[0]


def wrong(importer: str, imported: str) -> bool:
    """Whether one module may not import the other."""
    sandbox = "rewards.sandbox"
    if importer.startswith("rewards"):
        leaves = importer.startswith(f"{sandbox}.") and not imported.startswith(sandbox)
        return imported.startswith("recipes") or leaves
    here, there = room(importer), room(imported)
    if here is None:  # a recipe
        own = importer.rpartition(".")[0]
        is_room = there is None or imported == f"{COMMON}.{there}"
        allowed = is_room or imported.removeprefix(COMMON + ".") in A_RECIPE
        return importer.endswith(".train") and not (allowed or imported.startswith(own))
    if there is None:
        return here == "utils" and imported.startswith("rewards")
    return there != here and there not in ALLOWED[here]


def test_no_room_imports_one_that_it_may_not():
    pairs = [(name, other) for name, file in LIBRARY.items() for other in imports(file)]
    ours = [pair for pair in pairs if pair[1] in LIBRARY]
    assert sorted(f"{name} imports {other}" for name, other in ours if wrong(name, other)) == []


def test_no_circles():
    modules = {name for name, file in LIBRARY.items() if file.name != "__init__.py"}
    graph = {name: (imports(LIBRARY[name]) & modules) - {name} for name in modules}
    while ends := {name for name, others in graph.items() if not others}:
        graph = {name: others - ends for name, others in graph.items() if name not in ends}
    assert graph == {}, "modules import one another in a circle, or one of these"


def test_the_library_never_names_scripts():
    pairs = [(name, other) for name, file in LIBRARY.items() for other in imports(file)]
    assert [pair for pair in pairs if pair[1].startswith("scripts")] == []


def lines_of(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def room_with_budget(file: Path) -> str:
    """The room of a file as BUDGET names it, such as `recipes/common/data` or `scripts`."""
    path = file.relative_to(ROOT)
    top, *inside = path.parent.parts
    if top in ("scripts", "tests"):
        return top
    if inside == ["common"]:
        return str(path)
    return "/".join([top, *inside][: 3 if inside[:1] == ["common"] else 2])


def test_a_room_keeps_to_its_budget_of_lines():
    lines = Counter({room: 0 for room in BUDGET})
    for top in ("recipes", "rewards", "scripts", "tests"):
        for file in (ROOT / top).rglob("*.py"):
            if file.name != "__init__.py" or room_with_budget(file) in BUDGET:
                lines[room_with_budget(file)] += lines_of(file)
    over = {room: count for room, count in lines.items() if count > BUDGET.get(room, 0)}
    assert over == {}, "make the room smaller, or raise its budget and say in the commit why"


@pytest.mark.parametrize(("pattern", "most"), LONGEST.items())
def test_no_module_is_long(pattern, most):
    files = list(ROOT.glob(pattern))
    assert files and [f"{file}: {lines_of(file)}" for file in files if lines_of(file) > most] == []


@pytest.mark.slow
def test_importing_a_recipe_is_light():
    """Of all that launches, the process that forks for them imports a recipe first."""
    names = Path(warm_python()[0]).with_name("modules").read_text().split()
    # OMP_WAIT_POLICY, which recipes sets, counts before torch.
    assert names.index("recipes") < names.index("torch")
    ours = sorted(name for name in names if name.split(".")[0] in ("recipes", "rewards"))
    assert "recipes.common.trainer" in ours and len(ours) <= MAX_MODULES, ours
    assert {"matplotlib", "rewards.sandbox"}.isdisjoint(names)
