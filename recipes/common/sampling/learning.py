"""Will it learn? Figures and a verdict from scored completions, sampled before anything is trained.

GRPO learns from what differs within a group. A group is useful when its completions differ in total reward by more
than rounding: 1e-6 of the amounts, in float64. (Eight times -0.2 has a standard deviation of 1.6e-8 in TRL's float32,
which its `frac_reward_zero_std` takes for spread.) The total is the weighted sum after voids and gates, as training
sees it, without rewards of the kind `control`, which teach nothing. A group is useful as well where a step reward
scores the steps of all its completions, taken together, differently. Where `mask_truncated_completions` is set, a group
must also hold a completion that ended.

It will learn when the share of useful groups, times the groups of an optimizer step, is at least `USEFUL_A_STEP`, and
no task of which at least `ENOUGH_GROUPS` groups were seen is without a useful one. It will learn the format only where
a task has verifiers or step rewards and no group of it differs in the score of any: then the other rewards alone teach.

*Not covered*: how fast and whether for long, `multi_objective_aggregation:
normalize_then_sum` (the sum decides all the same), and a task of which no prompt was drawn.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from recipes.common.training.gates import TOLERANCE, apply_gates, has_spread
from recipes.common.utils.stats import wilson_interval
from recipes.common.utils.tables import format_table, percent
from rewards import full_reward, reward_kind, reward_name

USEFUL_A_STEP = 0.5  # below, most optimizer steps have nothing to learn from
ENOUGH_GROUPS = 4  # with fewer a task is not found to be without a useful one
MOST = 0.5  # of the completions
TOTAL = "= weighted total"
DEAD = "never more than 0"
CONTROL = "a control, left out of the total"
OF_THE_TASK = (
    "verifier",
    "step",
)  # a score of the answer or its steps; the other kinds score its form
APART = (
    "control",
    "step",
)  # from the total: one teaches nothing, the other is normalised by itself


class Scored(NamedTuple):
    """A completion, the number of its prompt, its scores (of a step reward the sum), and what could not grade it."""

    group: int
    task: str
    tokens: int
    truncated: bool
    scores: dict[str, float | None]
    failed: tuple[str, ...] = ()
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

    `spread` is the mean standard deviation within a group (with n - 1, as TRL's), `zero_spread` the groups without any.
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
    openers = {
        name: (of,) if isinstance(of, str) else tuple(of) for name, of in (gates or {}).items()
    }
    columns = [Column(reward_name(r), reward_kind(r), full_reward(r)) for r in rewards]
    weighted = zip(columns, weights or [1.0] * len(rewards), strict=True)
    return [
        column._replace(weight=weight, gates=openers.get(column.name, ()))
        for column, weight in weighted
    ]


def figures(
    scored: list[Scored],
    columns: list[Column],
    groups_a_step: float,
    limit: int,
    mask_truncated: bool = False,
) -> Figures:
    """All figures of a probe; an optimizer step learns from `groups_a_step`, of completions of `limit` tokens."""
    trained = _as_trained(scored, columns)
    of_task = {
        task: [s for s in trained if s.task == task] for task in sorted({s.task for s in trained})
    }
    tasks = {task: _task(of, columns, mask_truncated) for task, of in of_task.items()}
    groups, useful = (
        sum(getattr(task, name) for task in tasks.values()) for name in ("groups", "useful")
    )
    interval = [groups_a_step * share for share in wilson_interval(useful, groups)]
    a_step = groups_a_step * useful / groups
    return Figures(groups, len(scored), limit, tasks, useful, groups_a_step, a_step, interval)


def disagreement(scored: list[Scored], columns: list[Column]) -> float | None:
    """How often two completions of a prompt differ in being right, by its verifiers; None without any.

    So many held-out rows may change by chance alone, and more by training: the base of the power of an evaluation.
    """
    full = {column.name: column.full for column in columns if column.kind == "verifier"}
    groups: dict[int, list[bool]] = {}
    for s in scored:
        amounts = {name: s.scores[name] for name in full if s.scores[name] is not None}
        if amounts and not s.failed:
            right = all(
                a > 0 if full[name] is None else a >= full[name] for name, a in amounts.items()
            )
            groups.setdefault(s.group, []).append(right)
    pairs = [(sum(g), len(g)) for g in groups.values() if len(g) > 1]
    return statistics.fmean(2 * c * (n - c) / (n * (n - 1)) for c, n in pairs) if pairs else None


def _as_trained(scored: list[Scored], columns: list[Column]) -> list[Scored]:
    """The completions with their scores after voids and gates, and the total; without rewards that do not apply."""
    names = [column.name for column in columns]
    amounts = [
        [torch.nan if s.failed or s.scores[n] is None else s.scores[n] for n in names]
        for s in scored
    ]
    gates = {column.name: list(column.gates) for column in columns if column.gates}
    matrix = apply_gates(torch.tensor(amounts, dtype=torch.float64), names, gates)
    trained = []
    for s, row in zip(scored, matrix.tolist(), strict=True):
        known = {
            name: None if amount != amount else amount
            for name, amount in zip(names, row, strict=True)
        }
        kept = {
            name: known[name] for name in names if s.scores[name] is not None or name in s.failed
        }
        there = [column for column in columns if known[column.name] is not None]
        total = (
            sum(known[c.name] * c.weight for c in there if c.kind not in APART) if there else None
        )
        trained.append(s._replace(scores={**kept, TOTAL: total}))
    return trained


def _task(scored: list[Scored], columns: list[Column], mask_truncated: bool) -> TaskFigures:
    by_prompt: dict[int, list[Scored]] = {}
    for completion in scored:
        by_prompt.setdefault(completion.group, []).append(completion)
    groups = list(by_prompt.values())
    ended = sorted(completion.tokens for completion in scored if not completion.truncated)
    return TaskFigures(
        groups=len(groups),
        useful=sum(_is_useful(group, columns, mask_truncated) for group in groups),
        rewards={
            c.name: _reward(c.name, groups, c)
            for c in columns
            if any(c.name in s.scores for s in scored)
        },
        total=_reward(TOTAL, groups),
        truncated=(len(scored) - len(ended)) / len(scored),
        median_tokens=statistics.median(ended) if ended else None,
        p95_tokens=ended[-(-95 * len(ended) // 100) - 1] if ended else None,  # the nearest rank
    )


def _is_useful(group: list[Scored], columns: list[Column], mask_truncated: bool) -> bool:
    if mask_truncated and all(completion.truncated for completion in group):
        return False
    names = [column.name for column in columns if column.kind == "step" and column.weight]
    pooled = [[a for s in group if not s.failed for a in s.steps.get(name, [])] for name in names]
    return has_spread([s.scores[TOTAL] for s in group]) or any(map(has_spread, pooled))


def _reward(name: str, groups: list[list[Scored]], column: Column | None = None) -> RewardFigures:
    """The figures of one reward, or of the total, which has no column."""
    scored = [completion for group in groups for completion in group]
    failed = sum(name in s.failed for s in scored) / len(scored)
    amounts = [
        [s.scores[name] for s in group if s.scores.get(name) is not None] for group in groups
    ]
    known, graded = (
        [amount for group in amounts for amount in group],
        [group for group in amounts if group],
    )
    state, kind = (_state(known, column.kind), column.kind) if column else (None, None)
    if not known:
        return RewardFigures(0, None, None, None, None, failed, state, kind)
    hits = sum(is_hit(amount, column.full) for amount in known) / len(known) if column else None
    spread = statistics.fmean(
        statistics.stdev(group) if has_spread(group) else 0.0 for group in graded
    )
    zero_spread = sum(not has_spread(group) for group in graded) / len(graded)
    return RewardFigures(
        len(known), statistics.fmean(known), spread, zero_spread, hits, failed, state, kind
    )


def is_hit(amount: float, full: float | None) -> bool:
    """Whether a reward scored in full, or more than 0 where it declares no full amount."""
    return amount > 0.0 if full is None else amount >= full - TOLERANCE * abs(full)


def _state(known: list[float], kind: str) -> str | None:
    """Dead is what never exceeds 0: a verifier or format reward, or one that is constant as well."""
    if kind == "control" or not known:
        return CONTROL if kind == "control" else "nothing was scored"
    constant = not has_spread(known)
    if max(known) <= 0.0 and (constant or kind in ("verifier", "format")):
        return DEAD
    return "constant" if constant else None


def verdict(found: Figures) -> tuple[bool, str]:
    """Tell whether it will learn its task, and why, in one sentence: the task, the format only, or nothing."""

    def why(name: str) -> str:
        task, text = found.tasks[name], f"every group of task {name} has zero spread"
        if task.total.zero_spread not in (None, 1.0):
            text = f"no group of task {name} has both spread and a completion that ended (mask_truncated_completions)"
        return f"{text}; {_remedy(task, found.max_completion_length)}"

    barren = [
        name
        for name, task in found.tasks.items()
        if task.groups >= ENOUGH_GROUPS and not task.useful
    ]
    expected = f"{found.useful_a_step:.2g} useful groups are expected in an optimizer step of {found.groups_a_step:g}"
    if barren:
        return False, "will not learn: " + "; ".join(map(why, barren))
    if found.useful_a_step < USEFUL_A_STEP:
        remedies = dict.fromkeys(
            _remedy(task, found.max_completion_length) for task in found.tasks.values()
        )
        return (
            False,
            f"will not learn: only {expected} (at least {USEFUL_A_STEP:g}); {'; '.join(remedies)}",
        )
    unverified = {
        name: task
        for name, task in found.tasks.items()
        if task.groups >= ENOUGH_GROUPS and _only_format(task)
    }
    if unverified:
        remedies = dict.fromkeys(
            _remedy(task, found.max_completion_length) for task in unverified.values()
        )
        tasks = ", ".join(unverified)
        reason = f"no group of task {tasks} differs in the score of a verifier or a step reward; {'; '.join(remedies)}"
        return False, f"will learn the format only: {reason}"
    verified = any(
        line.kind in OF_THE_TASK for task in found.tasks.values() for line in task.rewards.values()
    )
    return True, f"will learn{' the task' if verified else ''}: {expected}"


def _only_format(task: TaskFigures) -> bool:
    """Whether the task has verifiers or step rewards, and none of them makes a difference within a group."""
    spreads = [
        line.zero_spread
        for line in task.rewards.values()
        if line.kind in OF_THE_TASK and line.scored
    ]
    return bool(spreads) and all(zero_spread == 1.0 for zero_spread in spreads)


def _remedy(task: TaskFigures, limit: int) -> str:
    """The changes to make, by what was seen: not gradable, cut off, never above 0, no reward at all, or all alike."""
    causes = []
    broken = [name for name, line in task.rewards.items() if line.failed > MOST]
    dead = [name for name, line in task.rewards.items() if line.state == DEAD]
    if broken:
        causes.append(
            f"{', '.join(broken)} could not grade most completions: correct the rows or the reward"
        )
    if task.truncated > MOST:
        causes.append(_too_short(task, limit))
    if dead:
        causes.append(
            f"{DEAD}: {', '.join(dead)} (show a worked example, take easier rows, reward parts of an answer)"
        )
    if all(line.state == CONTROL for line in task.rewards.values()):
        causes.append("only controls score, which teach nothing: name another reward")
    alike = "completions of a prompt score alike: raise num_generations, or take rows of another difficulty"
    return "; ".join(causes or [alike])


def _too_short(task: TaskFigures, limit: int) -> str:
    """Of a completion that was cut off only a lower bound is known: twice the limit, to be probed again."""
    return f"{percent(task.truncated, 0)} truncated at {limit} tokens: raise max_completion_length to >= {2 * limit}"


def notes(found: Figures) -> list[str]:
    """Notes for the owner of a run, next to the verdict."""
    texts = []
    for name, task in found.tasks.items():
        texts += [f"task {name}: {_too_short(task, found.max_completion_length)}"] * (
            task.truncated > MOST
        )
        if task.groups < ENOUGH_GROUPS:
            texts.append(
                f"task {name}: only {task.groups} groups were seen, too few for a verdict: raise --prompts"
            )
        for reward, line in task.rewards.items():
            if line.state:
                state = f"{line.state} ({line.scored} completions); it teaches nothing as it is"
                texts.append(f"task {name}: {reward}: {state}")
            if line.failed:
                texts.append(
                    f"task {name}: {reward} could not grade {percent(line.failed, 0)} of the completions"
                )
    return texts


def table(found: Figures) -> str:
    """A line for each task and reward and the total of each task, and one for the lengths of each task."""
    lines, lengths = [], []
    for name, task in found.tasks.items():
        for reward, line in [*task.rewards.items(), (TOTAL, task.total)]:
            mean, spread = (
                None if value is None else f"{value:.3f}" for value in (line.mean, line.spread)
            )
            cells = {
                "task": name,
                "reward": reward,
                "mean": mean,
                "hits": percent(line.hit_rate),
                "spread": spread,
            }
            lines.append(
                {**cells, "groups without": percent(line.zero_spread), "": line.state or ""}
            )
        ended = f"{percent(task.truncated, 0)} truncated at {found.max_completion_length} tokens"
        if task.median_tokens is not None:
            ended += f"; of the others the median is {task.median_tokens:g} tokens, 95 % have <= {task.p95_tokens}"
        lengths.append(f"  {name}: {ended}")
    return "\n".join([format_table(lines), *lengths])
