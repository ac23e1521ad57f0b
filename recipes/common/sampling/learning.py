"""Will it learn? Figures and a verdict from scored completions, sampled before anything is trained.

GRPO learns from what differs within a group. A group is useful when the trainer finds spread in it:
its completions differ in total reward by more than rounding, after voids and gates, without rewards
of the kind `control`, which teach nothing; or a step reward scores the steps of all its completions
differently. Where `mask_truncated_completions` is set, one of them must also have ended.

It will learn when the share of useful groups, times the groups of an optimizer step, is at least
`USEFUL_A_STEP`, and no task of which at least `ENOUGH_GROUPS` groups were seen is without a useful
one. It will learn the format only where a task has verifiers or step rewards and no group of it
differs in the score of any: then the other rewards alone teach. It may learn only to guess where
the completions of a task are not right more often on their own prompts than on each of up to 19
others: then groups may differ in luck, and what they teach is the commonest answer.

*Not covered*: how fast and whether for long, `multi_objective_aggregation: normalize_then_sum` (the
sum decides all the same), and a task of which no prompt was drawn.
"""

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from recipes.common.training.gates import has_spread, is_hit
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


@dataclass
class Scored:
    """A completion as the trainer scored it; those of a row follow one another.

    `rewards` has those that apply to it, after voids and gates (None: nothing is left), of a step
    reward the sum. `right` is None where no verifier could tell.
    """

    row: int
    task: str
    tokens: int
    truncated: bool
    rewards: dict[str, float | None]
    total: float | None
    teaches: bool  # its group has spread
    right: bool | None = None
    failed: tuple[str, ...] = ()  # rewards that could not grade it


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
    kind: str | None


@dataclass
class RowFigures:
    """A row, whose completions are a group; no pass rate where no verifier could tell."""

    task: str
    useful: bool
    pass_rate: float | None


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
    right: list[float]  # by the held-out metric: on their own prompts, then as handed to others


@dataclass
class Figures:
    """All figures of a probe; the interval is a 95 % one."""

    groups: int
    completions: int
    max_completion_length: int
    tasks: dict[str, TaskFigures]
    rows: list[RowFigures]
    useful: int
    groups_a_step: float
    useful_a_step: float
    useful_a_step_interval: list[float]


def figures(
    scored: list[Scored],
    rewards: list[Callable],
    groups_a_step: float,
    limit: int,
    mask_truncated: bool = False,
    right: dict[str, list[float]] | None = None,
) -> Figures:
    """All figures; a step learns from `groups_a_step`, of completions of `limit` tokens.

    `right` has of each task the share of right completions, on their own prompts and on others.
    """
    groups = [list(group) for _, group in itertools.groupby(scored, lambda one: one.row)]
    rows = [_row(group, mask_truncated) for group in groups]
    tasks = {}
    for name in sorted({row.task for row in rows}):
        of_task = [group for group in groups if group[0].task == name]
        useful = sum(row.useful for row in rows if row.task == name)
        tasks[name] = _task(of_task, rewards, useful, (right or {}).get(name, []))
    useful = sum(row.useful for row in rows)
    interval = [groups_a_step * share for share in wilson_interval(useful, len(groups))]
    a_step = groups_a_step * useful / len(groups)
    counts = (len(groups), len(scored), limit)
    return Figures(*counts, tasks, rows, useful, groups_a_step, a_step, interval)


def _row(group: list[Scored], mask_truncated: bool) -> RowFigures:
    masked = mask_truncated and all(one.truncated for one in group)
    right = [one.right for one in group if one.right is not None]
    rate = statistics.fmean(right) if right else None
    return RowFigures(group[0].task, group[0].teaches and not masked, rate)


def _task(
    groups: list[list[Scored]], rewards: list[Callable], useful: int, right: list[float]
) -> TaskFigures:
    scored = [one for group in groups for one in group]
    ended = sorted(one.tokens for one in scored if not one.truncated)
    there = {name for one in scored for name in one.rewards}
    of_rewards = {}
    for reward in rewards:
        name = reward_name(reward)
        if name in there:
            amounts = [[one.rewards.get(name) for one in group] for group in groups]
            failed = sum(name in one.failed for one in scored) / len(scored)
            of_rewards[name] = _figures_of(amounts, failed, reward)
    return TaskFigures(
        groups=len(groups),
        useful=useful,
        rewards=of_rewards,
        total=_figures_of([[one.total for one in group] for group in groups]),
        truncated=(len(scored) - len(ended)) / len(scored),
        median_tokens=statistics.median(ended) if ended else None,
        p95_tokens=ended[-(-95 * len(ended) // 100) - 1] if ended else None,  # the nearest rank
        right=right,
    )


def _figures_of(
    amounts: list[list[float | None]], failed: float = 0.0, reward: Callable | None = None
) -> RewardFigures:
    """The figures of one reward by group, or of the total."""
    graded = [[amount for amount in group if amount is not None] for group in amounts]
    graded = [group for group in graded if group]
    known = [amount for group in graded for amount in group]
    kind = reward_kind(reward) if reward else None
    state = _state(known, kind) if reward else None
    if not known:
        return RewardFigures(0, None, None, None, None, failed, state, kind)
    hit_rate = None
    if reward:
        hit_rate = statistics.fmean(is_hit(amount, full_reward(reward)) for amount in known)
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
        hit_rate=hit_rate,
        failed=failed,
        state=state,
        kind=kind,
    )


def _state(known: list[float], kind: str) -> str | None:
    """Dead is what never exceeds 0: a verifier or format reward, or one constant as well."""
    if kind == "control":
        return CONTROL
    if not known:
        return "nothing was scored"
    constant = not has_spread(known)
    if max(known) <= 0.0 and (constant or kind in ("verifier", "format")):
        return DEAD
    return "constant" if constant else None


def verdict(found: Figures) -> tuple[bool, str]:
    """Tell whether it will learn its task, and why, in one sentence."""
    limit, tasks = found.max_completion_length, found.tasks
    seen = {name: task for name, task in tasks.items() if task.groups >= ENOUGH_GROUPS}
    barren = [_why_barren(name, task, limit) for name, task in seen.items() if not task.useful]
    if barren:
        return False, "will not learn: " + "; ".join(barren)
    expected = (
        f"{found.useful_a_step:.2g} useful groups are expected in an optimizer step of "
        f"{found.groups_a_step:g}"
    )
    if found.useful_a_step < USEFUL_A_STEP:
        remedies = _remedies(tasks, limit)
        return False, f"will not learn: only {expected} (at least {USEFUL_A_STEP:g}); {remedies}"
    unverified = {name: task for name, task in seen.items() if _only_format(task)}
    if unverified:
        reason = f"no group of task {', '.join(unverified)} differs in the score of"
        reason += f" a verifier or a step reward; {_remedies(unverified, limit)}"
        return False, f"will learn the format only: {reason}"
    guessed = [_why_guessed(name, task) for name, task in seen.items() if _is_luck(task)]
    if guessed:
        return False, f"may learn only to guess: {'; '.join(guessed)}"
    kinds = {line.kind for task in tasks.values() for line in task.rewards.values()}
    return True, f"will learn{' the task' if kinds & {*OF_THE_TASK} else ''}: {expected}"


def _why_barren(name: str, task: TaskFigures, limit: int) -> str:
    why = f"every group of task {name} has zero spread"
    if task.total.zero_spread not in (None, 1.0):
        ended = "a completion that ended (mask_truncated_completions)"
        why = f"no group of task {name} has both spread and {ended}"
    return f"{why}; {_remedies({name: task}, limit)}"


def _only_format(task: TaskFigures) -> bool:
    """Whether verifiers or step rewards score the task, and none differs within a group."""
    lines = [line for line in task.rewards.values() if line.kind in OF_THE_TASK and line.scored]
    return bool(lines) and all(line.zero_spread == 1.0 for line in lines)


def _is_luck(task: TaskFigures) -> bool:
    """Whether a verifier teaches what is not shown to be right more often than on other prompts.

    Where all shares are equal, being right has nothing to do with the prompt; a step reward teaches
    whatever the answer.
    """
    differ = {line.kind for line in task.rewards.values() if line.scored and line.zero_spread < 1.0}
    if "verifier" not in differ or "step" in differ:
        return False
    own, *others = task.right or [0.0]
    return own > 0.0 and len(set(task.right)) > 1 and max(others) >= own


def _why_guessed(name: str, task: TaskFigures) -> str:
    sure = "raise --prompts to be sure, or take rows with more than a few answers"
    return f"task {name}: {_shares_right(task.right)}; {sure}"


def _shares_right(right: list[float]) -> str:
    own, *others = right
    elsewhere = f"{percent(statistics.fmean(others))} in the mean, {percent(max(others))} at most"
    measure = "right by the held-out metric"
    return f"{percent(own)} {measure} on their own prompts, on others {elsewhere}"


def _remedies(tasks: dict[str, TaskFigures], limit: int) -> str:
    """The changes to make, by what was seen."""
    remedies = {}
    for task in tasks.values():
        causes = []
        broken = [name for name, line in task.rewards.items() if line.failed > MOST]
        dead = [name for name, line in task.rewards.items() if line.state == DEAD]
        if broken:
            could_not = "could not grade most completions: correct the rows or the reward"
            causes.append(f"{', '.join(broken)} {could_not}")
        if task.truncated > MOST:
            causes.append(_too_short(task, limit))
        if dead:
            easier = "show a worked example, take easier rows, reward parts of an answer"
            causes.append(f"{DEAD}: {', '.join(dead)} ({easier})")
        if all(line.state == CONTROL for line in task.rewards.values()):
            causes.append("only controls score, which teach nothing: name another reward")
        alike = "raise num_generations, or take rows of another difficulty"
        remedies["; ".join(causes or [f"completions of a prompt score alike: {alike}"])] = None
    return "; ".join(remedies)


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
    """A line for each task and reward, for each total, for lengths and for what is right."""
    lines, of_tasks = [], []
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
        of_tasks.append(f"  {name}: {ended}")
        if len(set(task.right)) > 1:
            of_tasks.append(f"  {name}: {_shares_right(task.right)}")
    return "\n".join([format_table(lines), *of_tasks])
