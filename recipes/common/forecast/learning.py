"""Will it learn? Figures and a verdict from scored completions, sampled before anything is trained.

GRPO learns from what differs within a group. A group is useful when its completions differ in total reward by more
than rounding: 1e-6 of the amounts, in float64. (Eight times -0.2 has a standard deviation of 1.6e-8 in TRL's float32,
which its `frac_reward_zero_std` takes for spread.) The total is the weighted sum after voids and gates, as training
sees it, without rewards of the kind `control`, which teach nothing. A group is useful as well where the steps of all
its completions, taken together, are paid differently by a step reward, which is what training normalises; their sum in
the table says how much a completion got. Where `mask_truncated_completions` is set, a group must also hold a completion
that ended.

The rule. It will learn when
- the share of useful groups, times the groups of an optimizer step, is at least `USEFUL_A_STEP`, and
- no task of which at least `ENOUGH_GROUPS` groups were seen is without a useful one.

*Not covered*: whether what it learns is the task (a format reward alone makes groups useful: see the reward that was
never paid), how fast and whether for long, `multi_objective_aggregation: normalize_then_sum` (judged by the sum all
the same), and a task of which no prompt was drawn.
"""

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from recipes.common.during.matrix import TOLERANCE, apply_gates, has_spread
from recipes.common.tools.stats import wilson_interval
from recipes.common.tools.tables import format_table
from rewards import full_reward, reward_kind, reward_name

USEFUL_A_STEP = 0.5  # below, most optimizer steps have nothing to learn from
ENOUGH_GROUPS = 4  # fewer do not condemn a task
MOST = 0.5  # of the completions
TOTAL = "= weighted total"
DEAD = "never paid"
CONTROL = "a control, left out of the total"
APART = ("control", "step")  # from the total: one teaches nothing, the other is normalised by itself


class Scored(NamedTuple):
    """A completion, the number of its prompt, and what each reward paid; `failed` names those that could not grade.

    Of a step reward `paid` is the sum, and `steps` what each step got.
    """

    group: int
    task: str
    tokens: int
    truncated: bool
    paid: dict[str, float | None]
    failed: tuple[str, ...] = ()
    steps: dict[str, list[float]] = {}


class Column(NamedTuple):
    """A reward of the run: its name, what it says about itself, its weight and the rewards that open it."""

    name: str
    kind: str
    full: float | None
    weight: float = 1.0
    gates: tuple[str, ...] = ()


def columns_of(rewards: list[Callable], weights: list[float] | None, gates: dict[str, Any] | None) -> list[Column]:
    """What is to be known of the rewards of a run."""
    openers = {name: (of,) if isinstance(of, str) else tuple(of) for name, of in (gates or {}).items()}
    weighted = zip(rewards, weights or [1.0] * len(rewards), strict=True)
    return [
        Column(reward_name(r), reward_kind(r), full_reward(r), weight, openers.get(reward_name(r), ()))
        for r, weight in weighted
    ]


def figures(
    scored: list[Scored], columns: list[Column], groups_a_step: float, limit: int, mask_truncated: bool = False
) -> dict[str, Any]:
    """All figures of a probe as plain data.

    Args:
        scored: every completion of every prompt.
        columns: the rewards of the run.
        groups_a_step: prompts that an optimizer step learns from, over all processes.
        limit: `max_completion_length` in tokens.
        mask_truncated: `mask_truncated_completions`.
    """
    paid = _as_trained(scored, columns)
    by_task: dict[str, list[int]] = {}
    for i, completion in enumerate(scored):
        by_task.setdefault(completion.task, []).append(i)
    tasks = {
        task: _task(*([values[i] for i in places] for values in (scored, paid)), columns, mask_truncated)
        for task, places in sorted(by_task.items())
    }
    groups, useful = (sum(task[name] for task in tasks.values()) for name in ("groups", "useful"))
    return {
        "groups": groups,
        "completions": len(scored),
        "max_completion_length": limit,
        "tasks": tasks,
        "useful": useful,
        "groups_a_step": groups_a_step,
        "useful_a_step": groups_a_step * useful / groups,
        "useful_a_step_interval": [groups_a_step * share for share in wilson_interval(useful, groups)],
    }


def _as_trained(scored: list[Scored], columns: list[Column]) -> list[dict[str, float | None]]:
    """What each completion is paid after voids and gates, and its weighted total; None where nothing is."""
    names = [column.name for column in columns]
    amounts = [[None if s.failed else s.paid[name] for name in names] for s in scored]
    matrix = torch.tensor([[torch.nan if a is None else a for a in row] for row in amounts], dtype=torch.float64)
    matrix = apply_gates(matrix, names, {c.name: list(c.gates) for c in columns if c.gates})
    rows = [[None if amount != amount else amount for amount in row] for row in matrix.tolist()]
    return [{**dict(zip(names, row, strict=True)), TOTAL: _total(row, columns)} for row in rows]


def _total(row: list[float | None], columns: list[Column]) -> float | None:
    if all(amount is None for amount in row):
        return None
    taught = [(a, c.weight) for a, c in zip(row, columns, strict=True) if a is not None and c.kind not in APART]
    return sum(amount * weight for amount, weight in taught)


def _task(scored: list[Scored], paid: list[dict], columns: list[Column], mask_truncated: bool) -> dict[str, Any]:
    """The figures of the completions of one task."""
    groups: dict[int, list[int]] = {}
    for i, completion in enumerate(scored):
        groups.setdefault(completion.group, []).append(i)
    places = list(groups.values())
    rewards = {c.name: _reward(c, scored, paid, places) for c in columns}
    return {
        "groups": len(places),
        "useful": sum(
            (has_spread([paid[i][TOTAL] for i in group]) or _steps_differ([scored[i] for i in group], columns))
            and not (mask_truncated and all(scored[i].truncated for i in group))
            for group in places
        ),
        "rewards": {name: line for name, line in rewards.items() if line is not None},
        "total": _spread_figures([p[TOTAL] for p in paid], places),
        **_lengths(scored),
    }


def _steps_differ(group: list[Scored], columns: list[Column]) -> bool:
    """Whether any step reward that counts pays the steps of a group, without failed rows, differently."""
    names = [column.name for column in columns if column.kind == "step" and column.weight]
    judged = [completion.steps for completion in group if not completion.failed]
    return any(has_spread([amount for steps in judged for amount in steps.get(name, [])]) for name in names)


def _reward(column: Column, scored: list[Scored], paid: list[dict], places: list[list[int]]) -> dict[str, Any] | None:
    """Of one reward; None where it does not score the task."""
    failed = sum(column.name in completion.failed for completion in scored)
    if not failed and all(completion.paid[column.name] is None for completion in scored):
        return None
    amounts = [p[column.name] for p in paid]
    known = [amount for amount in amounts if amount is not None]
    hits = sum(is_hit(amount, column.full) for amount in known)
    return {
        "paid to": len(known),
        "hit_rate": hits / len(known) if known else None,
        "failed": failed / len(scored),
        "state": _state(known, column.kind),
        **_spread_figures(amounts, places),
    }


def is_hit(amount: float, full: float | None) -> bool:
    """Whether a reward paid in full, or more than 0 where it declares no full amount."""
    return amount > 0.0 if full is None else amount >= full - TOLERANCE * abs(full)


def _state(known: list[float], kind: str) -> str | None:
    """Dead is what is never more than 0: a verifier or format reward, or one that is constant besides."""
    if kind == "control":
        return CONTROL
    if not known:
        return "nothing to judge"
    constant = not has_spread(known)
    if max(known) <= 0.0 and (constant or kind in ("verifier", "format")):
        return DEAD
    return "constant" if constant else None


def _spread_figures(amounts: list[float | None], places: list[list[int]]) -> dict[str, float | None]:
    """Mean, mean standard deviation within a group (TRL's, with n - 1), and the share of groups without spread."""
    known = [amount for amount in amounts if amount is not None]
    groups = [[amounts[i] for i in group if amounts[i] is not None] for group in places]
    judged = [group for group in groups if group]
    return {
        "mean": statistics.fmean(known) if known else None,
        "spread": statistics.fmean(statistics.stdev(g) if has_spread(g) else 0.0 for g in judged) if judged else None,
        "zero_spread": sum(not has_spread(g) for g in judged) / len(judged) if judged else None,
    }


def _lengths(scored: list[Scored]) -> dict[str, float | int | None]:
    """Shares cut off and ended by an end-of-sequence token, and the length in tokens of those that ended."""
    ended = sorted(completion.tokens for completion in scored if not completion.truncated)
    return {
        "truncated": (len(scored) - len(ended)) / len(scored),
        "ended": len(ended) / len(scored),
        "median_tokens": statistics.median(ended) if ended else None,
        "p95_tokens": ended[-(-95 * len(ended) // 100) - 1] if ended else None,  # the nearest rank
    }


def verdict(found: dict[str, Any]) -> tuple[bool, str]:
    """Whether it will learn, and one sentence that says why.

    Example: `(False, "will not learn: every group of task code has zero spread; 94 % truncated at 64 tokens: raise
    max_completion_length to >= 128")`
    """
    barren = [name for name, task in found["tasks"].items() if task["groups"] >= ENOUGH_GROUPS and not task["useful"]]
    expected = (
        f"{found['useful_a_step']:.2g} useful groups are expected in an optimizer step of {found['groups_a_step']:g}"
    )
    if barren:
        return False, "will not learn: " + "; ".join(_why_barren(name, found) for name in barren)
    if found["useful_a_step"] < USEFUL_A_STEP:
        remedies = dict.fromkeys(_remedy(task, found["max_completion_length"]) for task in found["tasks"].values())
        return False, f"will not learn: only {expected} (at least {USEFUL_A_STEP:g}); {'; '.join(remedies)}"
    return True, f"will learn: {expected}"


def _why_barren(name: str, found: dict[str, Any]) -> str:
    task = found["tasks"][name]
    why = f"every group of task {name} has zero spread"
    if task["total"]["zero_spread"] not in (None, 1.0):
        why = f"no group of task {name} has both spread and a completion that ended (mask_truncated_completions)"
    return f"{why}; {_remedy(task, found['max_completion_length'])}"


def _remedy(task: dict[str, Any], limit: int) -> str:
    """What to change, by all that was seen: not gradable, cut off, never paid, no reward at all, or just all alike."""
    rewards, causes = task["rewards"], []
    broken = [name for name, line in rewards.items() if line["failed"] > MOST]
    dead = [name for name, line in rewards.items() if line["state"] == DEAD]
    if broken:
        causes.append(f"{', '.join(broken)} could not grade most completions: mend the rows or the reward")
    if task["truncated"] > MOST:
        causes.append(_too_short(task, limit))
    if dead:
        causes.append(
            f"never paid: {', '.join(dead)} (show a worked example, take easier rows, pay parts of an answer)"
        )
    if all(line["state"] == CONTROL for line in rewards.values()):
        causes.append("only controls pay, which teach nothing: name another reward")
    alike = "completions of a prompt are paid alike: raise num_generations, or take rows of another difficulty"
    return "; ".join(causes or [alike])


def _too_short(task: dict[str, Any], limit: int) -> str:
    """What was cut off says only that it is longer, so the remedy is twice the limit, to be probed again."""
    return f"{_share(task['truncated'])} truncated at {limit} tokens: raise max_completion_length to >= {2 * limit}"


def notes(found: dict[str, Any]) -> list[str]:
    """What the owner of a run should know besides the verdict."""
    limit = found["max_completion_length"]
    return [f"task {name}: {text}" for name, task in found["tasks"].items() for text in _task_notes(task, limit)]


def _task_notes(task: dict[str, Any], limit: int) -> list[str]:
    said = [_too_short(task, limit)] if task["truncated"] > MOST else []
    if task["groups"] < ENOUGH_GROUPS:
        said.append(f"only {task['groups']} groups were seen, too few to judge it: raise --prompts")
    for name, line in task["rewards"].items():
        if line["state"]:
            said.append(f"{name}: {line['state']} ({line['paid to']} completions); it teaches nothing as it is")
        if line["failed"]:
            said.append(f"{name} could not grade {_share(line['failed'])} of the completions, which are left out")
    return said


def table(found: dict[str, Any]) -> str:
    """A line for each task and reward, and for the total of each task."""
    lines = []
    for name, task in found["tasks"].items():
        for reward, line in [*task["rewards"].items(), (TOTAL, task["total"])]:
            cells = (
                {"mean": f"{line['mean']:.3f}", "spread": f"{line['spread']:.3f}"} if line["mean"] is not None else {}
            )
            lines.append(
                {
                    "task": name,
                    "reward": reward,
                    "mean": cells.get("mean"),
                    "hit %": _percent(line.get("hit_rate")),
                    "spread": cells.get("spread"),
                    "groups without %": _percent(line["zero_spread"]),
                    "": line.get("state") or "",
                }
            )
    return format_table(lines)


def lengths(found: dict[str, Any]) -> str:
    """One line a task: cut off, ended, and how long those were that ended."""
    lines = []
    for name, task in found["tasks"].items():
        ended = (
            f"; of these the median is {task['median_tokens']:g} tokens, and 95 % have at most {task['p95_tokens']}"
            if task["median_tokens"] is not None
            else ""
        )
        cut = f"{_share(task['truncated'])} truncated at {found['max_completion_length']} tokens"
        lines.append(f"  {name}: {cut}, {_share(task['ended'])} ended by an end-of-sequence token{ended}")
    return "\n".join(lines)


def _share(value: float) -> str:
    """`_share(0.94) == "94 %"`"""
    return f"{100 * value:.0f} %"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"
