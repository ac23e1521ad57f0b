"""Will it learn? Figures and a verdict from scored completions, sampled before anything is trained.

GRPO learns from what differs within a group. A group is useful when its completions differ in
total reward by more than rounding, after voids and gates as in training (training/gates.py), here
without rewards of the kind `control`, which teach nothing; or where a step reward scores the steps
of all its completions, taken together, differently. Where `mask_truncated_completions` is set, a
group must also hold a completion that ended.

It will learn when the share of useful groups, times the groups of an optimizer step, is at least
`USEFUL_A_STEP`, and no task of which at least `ENOUGH_GROUPS` groups were seen is without a useful
one. It will learn the format only where a task has verifiers or step rewards and no group of it
differs in the score of any: then the other rewards alone teach.

*Not covered*: how fast and whether for long, `multi_objective_aggregation: normalize_then_sum` (the
sum decides all the same), and a task of which no prompt was drawn.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from recipes.common.training.gates import has_spread, is_hit, is_right, void_and_gate
from recipes.common.utils.stats import wilson_interval
from recipes.common.utils.tables import format_table, percent
from rewards import full_reward, reward_kind, reward_name

USEFUL_A_STEP = 0.5  # below, most optimizer steps have nothing to learn from
ENOUGH_GROUPS = 4  # with fewer a task is not found to be without a useful one
MOST = 0.5  # of the completions
TOTAL = "= weighted total"
DEAD = "never more than 0"
CONTROL = "a control, left out of the total"
OF_THE_TASK = ("verifier", "step")  # a score of the answer or its steps, not of its form
APART = ("control", "step")  # from the total: a step reward is normalised by itself


class Scored(NamedTuple):
    """A completion, the number of its prompt, and its scores (of a step reward the sum)."""

    group: int
    task: str
    tokens: int
    truncated: bool
    scores: dict[str, float | None]
    failed: tuple[str, ...] = ()  # rewards that could not grade it
    steps: dict[str, list[float]] = {}


class Column(NamedTuple):
    """A reward of the run: its name, what it declares, its weight and the rewards that open it."""

    name: str
    kind: str
    full: float | None
    weight: float = 1.0
    gates: tuple[str, ...] = ()


@dataclass
class RewardFigures:
    """A reward on a task, or their weighted total; None where nothing was scored.

    `spread` is the mean standard deviation within a group (with n - 1, as TRL's), `zero_spread` the
    share of groups without any.
    """

    scored: int
    mean: float | None
    spread: float | None
    zero_spread: float | None
    hit_rate: float | None
    failed: float
    state: str | None
    kind: str | None = None


@dataclass
class TaskFigures:
    """A task; the lengths are those of the completions that ended."""

    groups: int
    useful: int
    rewards: dict[str, RewardFigures]
    total: RewardFigures
    truncated: float
    median_tokens: float | None
    p95_tokens: int | None


@dataclass
class Figures:
    """All figures of a probe; the interval is a 95 % one."""

    groups: int
    completions: int
    max_completion_length: int
    tasks: dict[str, TaskFigures]
    useful: int
    groups_a_step: float
    useful_a_step: float
    useful_a_step_interval: list[float]


def columns_of(
    rewards: list[Callable], weights: list[float] | None, gates: dict[str, Any] | None
) -> list[Column]:
    """The columns of the rewards of a run."""
    columns = []
    for reward, weight in zip(rewards, weights or [1.0] * len(rewards), strict=True):
        name, of = reward_name(reward), (gates or {}).get(reward_name(reward), ())
        openers = (of,) if isinstance(of, str) else tuple(of)
        columns.append(Column(name, reward_kind(reward), full_reward(reward), weight, openers))
    return columns


def figures(
    scored: list[Scored],
    columns: list[Column],
    groups_a_step: float,
    limit: int,
    mask_truncated: bool = False,
) -> Figures:
    """All figures; a step learns from `groups_a_step`, of completions of `limit` tokens."""
    trained = _as_trained(scored, columns)
    tasks = {}
    for name in sorted({one.task for one in trained}):
        of_task = [one for one in trained if one.task == name]
        tasks[name] = _task(of_task, columns, mask_truncated)
    groups = sum(task.groups for task in tasks.values())
    useful = sum(task.useful for task in tasks.values())
    interval = [groups_a_step * share for share in wilson_interval(useful, groups)]
    a_step = groups_a_step * useful / groups
    return Figures(groups, len(scored), limit, tasks, useful, groups_a_step, a_step, interval)


def right_by_group(scored: list[Scored], columns: list[Column]) -> dict[int, list[bool]]:
    """Of each prompt whether its completions are right; those not scored are left out.

    One that any reward failed on is left out as well: in training it is void.
    """
    full = {column.name: column.full for column in columns if column.kind == "verifier"}
    groups: dict[int, list[bool]] = {}
    for one in scored:
        known = groups.setdefault(one.group, [])
        right = None if one.failed else is_right(one.scores, full)
        if right is not None:
            known.append(right)
    return groups


def _as_trained(scored: list[Scored], columns: list[Column]) -> list[Scored]:
    """The completions with scores after voids and gates, and the total."""
    names = [column.name for column in columns]
    given = [[one.scores[name] for name in names] for one in scored]
    rewards_CR = torch.tensor(
        [[torch.nan if amount is None else amount for amount in row] for row in given],
        dtype=torch.float64,
    )
    failed_C = torch.tensor([bool(one.failed) for one in scored])
    gates = {column.name: list(column.gates) for column in columns if column.gates}
    rewards_CR = void_and_gate(rewards_CR, failed_C, names, gates)
    trained = []
    for one, row in zip(scored, rewards_CR.tolist(), strict=True):
        known = {
            name: None if amount != amount else amount
            for name, amount in zip(names, row, strict=True)
        }
        kept = {n: known[n] for n in names if one.scores[n] is not None or n in one.failed}
        there = [column for column in columns if known[column.name] is not None]
        parts = [known[c.name] * c.weight for c in there if c.kind not in APART]
        trained.append(one._replace(scores={**kept, TOTAL: sum(parts) if there else None}))
    return trained


def _task(scored: list[Scored], columns: list[Column], mask_truncated: bool) -> TaskFigures:
    by_prompt: dict[int, list[Scored]] = {}
    for one in scored:
        by_prompt.setdefault(one.group, []).append(one)
    groups = list(by_prompt.values())
    there = [column for column in columns if any(column.name in one.scores for one in scored)]
    ended = sorted(one.tokens for one in scored if not one.truncated)
    return TaskFigures(
        groups=len(groups),
        useful=sum(_is_useful(group, columns, mask_truncated) for group in groups),
        rewards={column.name: _reward(column.name, groups, column) for column in there},
        total=_reward(TOTAL, groups),
        truncated=(len(scored) - len(ended)) / len(scored),
        median_tokens=statistics.median(ended) if ended else None,
        p95_tokens=ended[-(-95 * len(ended) // 100) - 1] if ended else None,  # the nearest rank
    )


def _is_useful(group: list[Scored], columns: list[Column], mask_truncated: bool) -> bool:
    if mask_truncated and all(one.truncated for one in group):
        return False
    graded = [one for one in group if not one.failed]
    names = [column.name for column in columns if column.kind == "step" and column.weight]
    pooled = [[amount for one in graded for amount in one.steps.get(name, [])] for name in names]
    return has_spread([one.scores[TOTAL] for one in group]) or any(map(has_spread, pooled))


def _reward(name: str, groups: list[list[Scored]], column: Column | None = None) -> RewardFigures:
    """The figures of one reward, or of the total, which has no column."""
    scored = [one for group in groups for one in group]
    failed = sum(name in one.failed for one in scored) / len(scored)
    scores = [[one.scores.get(name) for one in group] for group in groups]
    graded = [[amount for amount in group if amount is not None] for group in scores]
    graded = [group for group in graded if group]
    known = [amount for group in graded for amount in group]
    state, kind = (_state(known, column.kind), column.kind) if column else (None, None)
    if not known:
        return RewardFigures(0, None, None, None, None, failed, state, kind)
    hits = [is_hit(amount, column.full) for amount in known] if column else None
    differ = [has_spread(group) for group in graded]
    deviations = [
        statistics.stdev(group) if differs else 0.0
        for group, differs in zip(graded, differ, strict=True)
    ]
    return RewardFigures(
        scored=len(known),
        mean=statistics.fmean(known),
        spread=statistics.fmean(deviations),
        zero_spread=differ.count(False) / len(differ),
        hit_rate=sum(hits) / len(hits) if hits else None,
        failed=failed,
        state=state,
        kind=kind,
    )


def _state(known: list[float], kind: str) -> str | None:
    """Dead is what never exceeds 0: a verifier or format reward, or one constant as well."""
    if kind == "control" or not known:
        return CONTROL if kind == "control" else "nothing was scored"
    constant = not has_spread(known)
    if max(known) <= 0.0 and (constant or kind in ("verifier", "format")):
        return DEAD
    return "constant" if constant else None


def verdict(found: Figures) -> tuple[bool, str]:
    """Tell whether it will learn its task, and why, in one sentence."""
    limit = found.max_completion_length
    seen = {name: task for name, task in found.tasks.items() if task.groups >= ENOUGH_GROUPS}
    barren = [_why_barren(name, task, limit) for name, task in seen.items() if not task.useful]
    if barren:
        return False, "will not learn: " + "; ".join(barren)
    expected = (
        f"{found.useful_a_step:.2g} useful groups are expected in an optimizer step of "
        f"{found.groups_a_step:g}"
    )
    if found.useful_a_step < USEFUL_A_STEP:
        remedies = "; ".join(dict.fromkeys(_remedy(task, limit) for task in found.tasks.values()))
        reason = f"only {expected} (at least {USEFUL_A_STEP:g}); {remedies}"
        return False, f"will not learn: {reason}"
    unverified = {name: task for name, task in seen.items() if _only_format(task)}
    if unverified:
        remedies = "; ".join(dict.fromkeys(_remedy(task, limit) for task in unverified.values()))
        of_tasks = f"no group of task {', '.join(unverified)} differs in the score of"
        reason = f"{of_tasks} a verifier or a step reward; {remedies}"
        return False, f"will learn the format only: {reason}"
    kinds = {line.kind for task in found.tasks.values() for line in task.rewards.values()}
    return True, f"will learn{' the task' if kinds & {*OF_THE_TASK} else ''}: {expected}"


def _why_barren(name: str, task: TaskFigures, limit: int) -> str:
    why = f"every group of task {name} has zero spread"
    if task.total.zero_spread not in (None, 1.0):
        ended = "a completion that ended (mask_truncated_completions)"
        why = f"no group of task {name} has both spread and {ended}"
    return f"{why}; {_remedy(task, limit)}"


def _only_format(task: TaskFigures) -> bool:
    """Whether verifiers or step rewards score the task, and none differs within a group."""
    lines = [line for line in task.rewards.values() if line.kind in OF_THE_TASK and line.scored]
    return bool(lines) and all(line.zero_spread == 1.0 for line in lines)


def _remedy(task: TaskFigures, limit: int) -> str:
    """The changes to make, by what was seen."""
    causes = []
    broken = [name for name, line in task.rewards.items() if line.failed > MOST]
    dead = [name for name, line in task.rewards.items() if line.state == DEAD]
    if broken:
        names = ", ".join(broken)
        causes.append(f"{names} could not grade most completions: correct the rows or the reward")
    if task.truncated > MOST:
        causes.append(_too_short(task, limit))
    if dead:
        easier = "show a worked example, take easier rows, reward parts of an answer"
        causes.append(f"{DEAD}: {', '.join(dead)} ({easier})")
    if all(line.state == CONTROL for line in task.rewards.values()):
        causes.append("only controls score, which teach nothing: name another reward")
    alike = "raise num_generations, or take rows of another difficulty"
    return "; ".join(causes or [f"completions of a prompt score alike: {alike}"])


def _too_short(task: TaskFigures, limit: int) -> str:
    """Of a completion that was cut off only a lower bound is known: twice the limit."""
    cut = f"{percent(task.truncated, 0)} truncated at {limit} tokens"
    return f"{cut}: raise max_completion_length to >= {2 * limit}"


def notes(found: Figures) -> list[str]:
    """Notes for the owner of a run, next to the verdict."""
    texts = []
    for name, task in found.tasks.items():
        if task.truncated > MOST:
            texts.append(f"task {name}: {_too_short(task, found.max_completion_length)}")
        if task.groups < ENOUGH_GROUPS:
            few = f"only {task.groups} groups were seen, too few for a verdict: raise --prompts"
            texts.append(f"task {name}: {few}")
        for reward, line in task.rewards.items():
            if line.state:
                state = f"{line.state} ({line.scored} completions); it teaches nothing as it is"
                texts.append(f"task {name}: {reward}: {state}")
            if line.failed:
                share = f"{percent(line.failed, 0)} of the completions"
                texts.append(f"task {name}: {reward} could not grade {share}")
    return texts


def table(found: Figures) -> str:
    """A line for each task and reward, for each total, and for the lengths of each task."""
    lines, lengths = [], []
    for name, task in found.tasks.items():
        for reward, line in {**task.rewards, TOTAL: task.total}.items():
            lines.append(
                {
                    "task": name,
                    "reward": reward,
                    "mean": None if line.mean is None else f"{line.mean:.3f}",
                    "hits": percent(line.hit_rate),
                    "spread": None if line.spread is None else f"{line.spread:.3f}",
                    "groups without": percent(line.zero_spread),
                    "": line.state or "",
                }
            )
        ended = f"{percent(task.truncated, 0)} truncated at {found.max_completion_length} tokens"
        if task.median_tokens is not None:
            ended += f"; of the others the median is {task.median_tokens:g} tokens"
            ended += f", 95 % have <= {task.p95_tokens}"
        lengths.append(f"  {name}: {ended}")
    return "\n".join([format_table(lines), *lengths])
