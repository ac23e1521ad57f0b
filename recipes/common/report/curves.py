"""Curves as SVG that takes its colours from the page, with words for those who do not see them."""

import html
import math
from collections.abc import Callable, Iterable

from recipes.common.report.plots import Shares, smooth
from recipes.common.utils.tables import percent

LEFT, RIGHT, TOP, BOTTOM = 48, 412, 8, 188  # of the area of a curve, in the units of its SVG
MARGIN = 8  # right of it, and for a second scale
SCALE = 40

Points = dict[int, float]


def panel(title: str, names: list[str], curves: list[Points]) -> str:
    """One key of the log of each run: raw faint, moving average bold; nothing where no run logged it."""
    averages = [smooth(points) for points in curves]
    steps, values = (
        _pool(curves),
        [value for points in [*curves, *averages] for value in points.values()],
    )
    if not steps:
        return ""
    x, y = _across(steps), _up(values)
    parts = _grid(x, y, steps, values, "{:g}")
    for number, (points, average) in enumerate(zip(curves, averages, strict=True)):
        parts += [
            _line(kind, number, x, y, of) for kind, of in (("raw", points), ("mean", average)) if of
        ]
    return _figure(
        title,
        parts,
        [_ends(f"{name}:", of, "{:.3g}".format) for name, of in zip(names, averages, strict=True)],
    )


def shares_panel(title: str, names: list[str], curves: list[Shares], rewards: list[Points]) -> str:
    """A metric of the validation rows in its 95 % band, over the moving average of the reward: dashed, right scale."""
    averages = [smooth(points) for points in rewards]
    steps = _pool([*curves, *averages])
    percents = [100 * value for points in curves for span in points.values() for value in span]
    if not percents:
        return ""
    x, y = _across(steps), _up(percents)
    parts = _grid(x, y, steps, percents, "{:g} %")
    if amounts := [value for average in averages for value in average.values()]:
        right = _up(amounts)
        parts += [
            _text(RIGHT + 5, right(tick) + 4, "start", f"{tick:g}")
            for tick in ticks(*_bounds(amounts))
        ]
        parts += [
            _line("behind", number, x, right, average)
            for number, average in enumerate(averages)
            if average
        ]
    words = []
    for number, (name, points, average) in enumerate(zip(names, curves, averages, strict=True)):
        share = {step: of[0] for step, of in points.items()}
        words += [
            _ends(f"{name}: share", share, percent),
            _ends(f"{name}: reward", average, "{:.3g}".format),
        ]
        edge = [(step, high) for step, (_, _, high) in points.items()]
        edge += [(step, low) for step, (_, low, _) in reversed(points.items())]
        outline = "L".join(f"{x(step):.1f} {y(100 * value):.1f}" for step, value in edge)
        dots = "".join(f"M{x(step):.1f} {y(100 * value):.1f}h0" for step, value in share.items())
        if points:
            parts.append(f'<path class="band run{number}" d="M{outline}Z"/>')
            parts.append(_line("mean", number, x, lambda value: y(100 * value), share))
            parts.append(f'<path class="dots run{number}" d="{dots}"/>')
    return _figure(title, parts, words, margin=SCALE)


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """A few round numbers between two. Example: `ticks(1, 36, whole=True) == [10, 20, 30]`"""
    wanted = max(1.0, (high - low) / 4) if whole else (high - low) / 4
    size = 10.0 ** math.floor(math.log10(wanted))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= wanted)
    return [round(i * step, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _pool(curves: Iterable[dict[int, object]]) -> list[int]:
    return sorted({step for points in curves for step in points})


def _across(steps: list[int]) -> Callable[[float], float]:
    return lambda step: LEFT + (step - steps[0] + 0.5) / (steps[-1] - steps[0] + 1) * (RIGHT - LEFT)


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _up(values: list[float]) -> Callable[[float], float]:
    low, high = _bounds(values)
    return lambda value: BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP)


def _grid(x: Callable, y: Callable, steps: list[int], values: list[float], label: str) -> list[str]:
    """Lines and labels of both scales."""
    parts = []
    for tick in ticks(steps[0], steps[-1], whole=True):
        parts.append(f'<path class="grid" d="M{x(tick):.1f} {TOP}V{BOTTOM}"/>')
        parts.append(_text(x(tick), BOTTOM + 14, "middle", f"{tick:g}"))
    for tick in ticks(*_bounds(values)):
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{RIGHT}"/>')
        parts.append(_text(LEFT - 5, y(tick) + 4, "end", label.format(tick)))
    return [*parts, _text((LEFT + RIGHT) / 2, BOTTOM + 30, "middle", "optimizer step")]


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _line(kind: str, number: int, x: Callable, y: Callable, points: Points) -> str:
    drawn = [f"{x(step):.1f} {y(value):.1f}" for step, value in points.items()]
    path = "L".join([*drawn, *drawn[-1:]])  # the last twice: a single point becomes a dot
    return f'<path class="{kind} run{number}" d="M{path}"/>'


def _ends(name: str, points: Points, show: Callable[[float], str]) -> str:
    if not points:
        return ""
    first, last = min(points), max(points)
    return f"{name} {show(points[first])} at step {first}, {show(points[last])} at step {last}"


def _figure(title: str, parts: list[str], words: list[str], margin: float = MARGIN) -> str:
    name = html.escape(f"{title}. {'; '.join(filter(None, words))}")
    svg = f'<svg viewBox="0 0 {RIGHT + margin} {BOTTOM + 36}" role="img"><title>{name}</title>{"".join(parts)}</svg>'
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{svg}</figure>"
