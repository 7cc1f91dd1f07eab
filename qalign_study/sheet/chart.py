"""Line charts as SVG, for pages without a script: lines, bands, markers, round ticks.

Colours are the page's variables (`--c-qalign`), so one figure is light and dark. The tooltip of a
point is its `<title>`.
"""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qalign_study.export.dictionary import ideas
from qalign_study.sheet.words import log_ticks, tick_text

DASHES = {"dash": "7 5", "dot": "2 4", "dashdot": "8 4 2 4"}
LEFT, RIGHT, TOP, BOTTOM = 50, 20, 26, 44


def as_percent(value: float) -> str:
    """A share as an axis says it."""
    return f"{100 * value:g}%"


@dataclass(frozen=True, slots=True)
class Axis:
    """One side of a chart.

    Attributes:
        title: what is on it.
        log: whether it is logarithmic; then only values above 0 are drawn.
        text: how a tick is written.
        zero: whether a linear axis begins at 0.
    """

    title: str
    log: bool = False
    text: Callable[[float], str] = tick_text
    zero: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One curve, drawn as an idea of the dictionary is.

    Attributes:
        idea: the idea whose colour, marker and line it has.
        x, y: its points, in order.
        low, high: its band, if it has one.
        labels: what is told of each point when it is pointed at.
        name: what the legend calls it; by default the idea's word.
        stroke: whether the line itself is drawn, beside its band.
        markers: whether its points are marked.
    """

    idea: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    labels: Sequence[str] = ()
    name: str = ""
    stroke: bool = True
    markers: bool = True

    @property
    def title(self) -> str:
        """The line's name in the legend."""
        return self.name or ideas()[self.idea].word


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as a value.

    Attributes:
        description: what it shows, for people who do not see it.
        lines: drawn in this order; points that are not finite are left out.
        x, y: the axes.
        title, note: above and below one of several small figures; plain text.
        mark: a place on the x axis, and its label.
    """

    description: str
    lines: Sequence[Line]
    x: Axis
    y: Axis
    title: str = ""
    note: str = ""
    mark: tuple[float, str] | None = None


def chart(figure: Figure, width: int = 720, height: int = 400) -> str:
    """A figure as an `<svg>` element, as wide as its place; it keeps the shape of these pixels."""
    lines, x, y, mark = figure.lines, figure.x, figure.y, figure.mark
    marked = [mark[0]] if mark else []
    across = _Scale(x, [*(v for line in lines for v in line.x), *marked], LEFT, width - RIGHT)
    values = [v for line in lines for part in (line.y, line.low, line.high) for v in part]
    up = _Scale(y, values, height - BOTTOM, TOP)
    parts = [
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{html.escape(figure.description)}">',
        *_grid(across, up, width, height),
    ]
    if mark:
        at = across(mark[0])
        side = "end" if at > width / 2 else "start"
        gap = -6 if side == "end" else 6
        parts.append(
            f'<path class="mark" d="M{at:.1f} {TOP}V{height - BOTTOM}"/><text class="told" '
            f'x="{at + gap:.1f}" y="{height - BOTTOM - 8}" text-anchor="{side}">'
            f"{html.escape(mark[1])}</text>"
        )
    parts += [_draw_line(line, across, up) for line in lines]
    return "".join([*parts, "</svg>"])


def legend(lines: Sequence[Line]) -> str:
    """The legend: each line's name with a piece of the line; repeated names appear once."""
    items = []
    for line in {each.title: each for each in lines if each.stroke}.values():
        sample = f"<g {_colour(line)}>{_stroke(line, 'M0 7H30')}{_marker(line, 15, 7, '')}</g>"
        key = f'<svg class="chart" viewBox="0 0 30 14" aria-hidden="true">{sample}</svg>'
        items.append(f"<li>{key}<bdi>{html.escape(line.title)}</bdi></li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


class _Scale:
    """From values to pixels, with an axis' ticks."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not axis.log)]
        low, high = (min(finite), max(finite)) if finite else (1.0, 10.0)
        if axis.zero:
            low = min(low, 0.0)
        if low == high:
            low, high = (low / 2, high * 2) if axis.log else (low - 0.5, high + 0.5)
        self.axis, self.start, self.end = axis, start, end
        if axis.log:
            most = 7 if abs(end - start) > 400 else 4
            self.ticks = log_ticks(low, high, most)
            self.low = min([low / 1.08, *self.ticks])
            self.high = max([high * 1.08, *self.ticks])  # no label lies beyond its axis
        elif start > end:  # upwards: the last line of the grid is the top
            self.ticks = _ticks(low, high)
            self.low, self.high = low, max(high, self.ticks[-1])
        else:
            self.ticks = [tick for tick in _ticks(low, high) if tick <= high]
            self.low, self.high = low, high

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if self.axis.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def shows(self, value: float) -> bool:
        """True if a value is inside the axis."""
        return math.isfinite(value) and (value > 0 or not self.axis.log)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to at least `high`, six or a few less of them."""
    rough = (high - low) / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first, last = math.ceil(low / step - 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _grid(across: _Scale, up: _Scale, width: int, height: int) -> list[str]:
    bottom = height - BOTTOM
    ticks_svg = []
    for tick in up.ticks:
        at = up(tick)
        ticks_svg.append(
            f'<path class="grid" d="M{LEFT} {at:.1f}H{width - RIGHT}"/>'
            f'<text x="{LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{up.axis.text(tick)}</text>'
        )
    for tick in across.ticks:
        at = across(tick)
        ticks_svg.append(
            f'<path class="grid" d="M{at:.1f} {bottom}v5"/><text x="{at:.1f}" y="{bottom + 19}" '
            f'text-anchor="middle">{across.axis.text(tick)}</text>'
        )
    return [
        *ticks_svg,
        f'<text x="0" y="13">{html.escape(up.axis.title)}</text>',
        f'<text x="{width - RIGHT}" y="{height - 7}" text-anchor="end">'
        f"{html.escape(across.axis.title)}</text>",
    ]


def _draw_line(line: Line, across: _Scale, up: _Scale) -> str:
    labels = line.labels or [""] * len(line.x)

    def points(ys: Sequence[float]) -> list[tuple[float, float, str]]:
        every = zip(line.x, ys, labels, strict=True)
        return [
            (across(x), up(y), label) for x, y, label in every if across.shows(x) and up.shows(y)
        ]

    parts = []
    if line.low:
        around = [*points(line.low), *reversed(points(line.high))]
        parts.append(f'<path class="band" d="{_path(around)}Z"/>')
    if line.stroke:
        parts.append(_stroke(line, _path(points(line.y))))
        parts += [_marker(line, *each) for each in points(line.y)]
    return f"<g {_colour(line)}>{''.join(parts)}</g>"


def _path(points: Sequence[tuple[float, float, str]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in points) if points else "M0 0"


def _colour(line: Line) -> str:
    return f'style="--c: var(--c-{line.idea})"'


def _stroke(line: Line, path: str) -> str:
    idea = ideas()[line.idea]
    dash = f' stroke-dasharray="{DASHES[idea.line]}"' if idea.line in DASHES else ""
    return f'<path class="line" stroke-width="{idea.width}"{dash} d="{path}"/>'


_MARKERS = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
    "triangle-up": "M0 -5L5 4H-5Z",
    "square": "M-4 -4H4V4H-4Z",
    "diamond": "M0 -5L5 0L0 5L-5 0Z",
    "pentagon": "M0 -5L4.8 -1.5L2.9 4.1H-2.9L-4.8 -1.5Z",
    "x": "M-4 -4L4 4M4 -4L-4 4",
}


def _marker(line: Line, x: float, y: float, label: str) -> str:
    shape = ideas()[line.idea].marker
    if not (shape and line.markers):
        return ""
    kind = "marker open" if shape.endswith("-open") else "marker"
    tooltip = f"<title>{html.escape(label)}</title>" if label else ""
    path = _MARKERS[shape.removesuffix("-open")]
    return (
        f'<path class="{kind}" transform="translate({x:.1f} {y:.1f})" d="{path}">{tooltip}</path>'
    )
