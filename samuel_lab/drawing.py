"""Parts shared by the pages of `report` and `play`: figures, templates, saving.

The style sheet of the page sets the colours of text, grid and background, so that figures suit a light page, a dark
page and paper.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from samuel_lab.files import replace
from samuel_lab.tables import single

REFERENCE = {"color": "#8a8a8a", "dash": "dot", "width": 2}
"""Style of reference lines."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
CLEAR = "rgba(0,0,0,0)"
FAINT = "rgba(138,138,138,0.55)"
MANY = 7
"""With more lines than this, only a selection is drawn at first."""
REST = "rest"
"""Name of the band of the lines that are not drawn."""


@dataclass(frozen=True)
class Drawing:
    """A figure with its heading, caption and text alternative.

    Attributes:
        name: an identifier, unique on the page.
        title: the heading.
        figure: the plotly figure.
        alt: the text alternative, for readers who cannot see the figure.
        caption: the text below the figure.
        half: whether it takes half of the width of a wide screen.
    """

    name: str
    title: str
    figure: go.Figure
    alt: str
    caption: str
    half: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a chart, with an optional band.

    Attributes:
        name: the method or learner, the same in every figure.
        label: its name in the key.
        family: the heading under which it is listed.
        x: positions of its points.
        y: their values; nan leaves a gap.
        style: colour, dash and width.
        low: lower edge of its band; None for no band.
        high: upper edge.
        drawn: whether it is drawn at first; otherwise it is part of the band of the rest until a reader selects it.
    """

    name: str
    label: str
    family: str
    x: np.ndarray
    y: np.ndarray
    style: dict[str, Any]
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    drawn: bool = True


@dataclass(frozen=True)
class Choice:
    """A line that a reader can select; attributes as in `Line`."""

    name: str
    label: str
    family: str
    drawn: bool


def blank(x: str, y: str) -> go.Figure:
    """An empty figure with named axes; the page makes its key."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=400,
        margin={"l": 16, "r": 16, "t": 28, "b": 16},
        font={"family": FONT, "size": 13},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        hovermode="closest",
        hoverlabel={"font": {"family": FONT, "size": 12}},
        dragmode="zoom",
        showlegend=False,
    )
    figure.update_xaxes(title={"text": x, "standoff": 8}, zeroline=False, automargin=True)
    figure.update_yaxes(title={"text": y, "standoff": 8}, zeroline=False, automargin=True)
    return figure


def line(
    figure: go.Figure,
    x: Sequence[float] | np.ndarray,
    y: Sequence[float] | np.ndarray,
    label: str,
    style: dict[str, Any],
    *,
    markers: bool = False,
    height: str = ".4~g",
    **more: Any,
) -> None:
    """Add a line to a figure; `height` is the format of values on hover, `more` is passed to plotly."""
    settings: dict[str, Any] = {
        "name": label,
        "mode": "lines+markers" if markers else "lines",
        "line": style,
        "marker": {"size": 6},
        "hovertemplate": (
            f"<b>%{{fullData.name}}</b><br>%{{xaxis.title.text}} %{{x:.6~g}}: %{{y:{height}}}<extra></extra>"
        ),
        **more,
    }
    figure.add_trace(go.Scatter(x=np.asarray(x, dtype=np.float32), y=single(np.asarray(y, dtype=float)), **settings))


def curves(
    figure: go.Figure, lines: Sequence[Line], *, markers: bool = False, height: str = ".4~g", band: bool = True
) -> None:
    """Add lines, the first on top, and a band from the lowest to the highest of those that are not drawn.

    >>> import numpy as np
    >>> x = np.arange(3)
    >>> figure = blank("round", "loss")
    >>> curves(figure, [Line(f"{n}", f"{n}", "", x, x + n, {"color": "#000000"}, drawn=n == 0) for n in range(3)])
    >>> [(trace.name, trace.visible) for trace in figure.data]
    [('2 others, lowest to highest', None), ('2', False), ('1', False), ('0', None)]
    """
    rest = [line for line in lines if not line.drawn]
    if band and len(rest) > 1:
        x, low, high = _envelope(rest)
        meta = {"line": REST, "family": ""}
        _band(figure, x, low, high, "rgba(138,138,138,0.28)", name=f"{len(rest)} others, lowest to highest", meta=meta)
    for one in reversed(lines):
        if one.low is not None and one.high is not None:
            colour = _clear(one.style["color"], 0.14)
            meta = {"line": one.name, "family": one.family}
            _band(figure, one.x, one.low, one.high, colour, meta=meta, visible=_visible(one), showlegend=False)
    for one in reversed(lines):
        line(
            figure,
            one.x,
            one.y,
            one.label,
            one.style,
            markers=markers,
            height=height,
            visible=_visible(one),
            meta={"line": one.name, "family": one.family},
        )


def the_rest(lines: Sequence[Line]) -> str:
    """A sentence about the lines that are not drawn at first; empty if all are drawn."""
    rest = sum(not line.drawn for line in lines)
    return f" Lines: SAMUEL and the best of every family; grey band: the other {rest}." if rest > 1 else ""


def zoom(figure: go.Figure, lines: Sequence[Line], lower: float, upper: float) -> str:
    """Limit the y axis to the range in which the drawn lines differ; returns a sentence that says so, or "".

    Args:
        figure: the figure of `lines`; a logarithmic y axis must be set before.
        lines: its lines.
        lower: fraction of every drawn line that may lie below the axis.
        upper: fraction that may lie above.
    """
    layout: Any = figure.layout
    logarithmic = layout.yaxis.type == "log"
    spans, seen = [], []
    for one in lines:
        heights = _heights(one, logarithmic)
        if len(heights):
            seen += [heights.min(), heights.max()]
            if one.drawn:
                spans.append(np.quantile(heights, [lower, 1 - upper]))
    if not spans:
        return ""
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    whole = max(seen) - min(seen)
    if high - low > 0.75 * whole or high == low:
        return ""
    margin = 0.08 * (high - low)
    figure.update_yaxes(range=[float(low - margin), float(high + margin)])
    return " The axis is limited to where the lines differ; double-click to see all."


def _heights(one: Line, logarithmic: bool) -> np.ndarray:
    """The values of a line at equidistant positions, as logarithms for a logarithmic axis."""
    known = np.isfinite(one.y) & ((one.y > 0) | (not logarithmic))
    if not known.any():
        return np.zeros(0)
    x, y = one.x[known], np.log10(one.y[known]) if logarithmic else one.y[known]
    return np.interp(np.linspace(x[0], x[-1], 200), x, y)


def _visible(one: Line) -> bool | None:
    return None if one.drawn else False


def _envelope(lines: Sequence[Line]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lowest and the highest of some lines at every position of a point."""
    found: dict[float, list[float]] = {}
    for one in lines:
        for x, y in zip(one.x.tolist(), one.y.tolist(), strict=True):
            if np.isfinite(y):
                found.setdefault(x, []).append(y)
    places = sorted(found)
    return np.array(places), np.array([min(found[x]) for x in places]), np.array([max(found[x]) for x in places])


def _band(figure: go.Figure, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, **more: Any) -> None:
    known = np.isfinite(low) & np.isfinite(high)
    if np.allclose(low[known], high[known], rtol=1e-5, atol=0.0):
        return  # seeds that agree, such as on a schedule, need no band
    figure.add_trace(
        go.Scatter(
            x=np.concatenate([x[known], x[known][::-1]]).astype(np.float32),
            y=single(np.concatenate([high[known], low[known][::-1]])),
            fill="toself",
            fillcolor=colour,
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            **more,
        )
    )


def _clear(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def heat_map(at: np.ndarray, rows: Sequence[str], shares: np.ndarray, x: str, y: str, end: float) -> go.Figure:
    """Heat map of shares of the whole over the course of a run.

    Args:
        at: position of each column on the x axis.
        rows: names of the rows, from below.
        shares: shape (rows, columns).
        x: title of the x axis.
        y: title of the y axis.
        end: end of the x axis.
    """
    figure = blank(x, y)
    figure.add_trace(
        go.Heatmap(
            x=at.astype(np.float32),
            y=list(rows),
            z=shares.astype(np.float32),
            zmin=0.0,
            zmax=brightest(shares),
            colorscale="Cividis",
            colorbar=COLOUR_BAR | {"tickformat": ".0%"},
            hovertemplate=f"{x} %{{x:.6~g}}<br>{y} %{{y}}<br>weight %{{z:.1%}}<extra></extra>",
        )
    )
    figure.update_layout(height=360)
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_xaxes(showgrid=False, range=[0, end])
    return figure


def brightest(shares: np.ndarray) -> float:
    """Upper end of the colour scale: a percentile, since a few columns with one heavy row would darken the rest."""
    return float(np.percentile(shares.max(axis=0), 95))


def brightness(shares: np.ndarray) -> str:
    """A sentence about the upper end of the colour scale; empty if that is the largest share.

    >>> brightness(np.array([[0.2, 0.6], [0.8, 0.4]])), brightness(np.array([[0.0, 0.0], [1.0, 1.0]]))
    (' The brightest colour stands for 79% and more.', '')
    """
    top = brightest(shares)
    return f" The brightest colour stands for {top:.0%} and more." if f"{top:.0%}" != f"{shares.max():.0%}" else ""


COLOUR_BAR: dict[str, Any] = {
    "orientation": "h",
    "thickness": 10,
    "len": 0.6,
    "x": 1.0,
    "xanchor": "right",
    "y": 1.02,
    "yanchor": "bottom",
    "nticks": 4,
    "tickangle": 0,
    "ticks": "",
    "outlinewidth": 0,
}
"""Colour bar of a heat map, above it."""


def mark(figure: go.Figure, places: Iterable[float], end: float) -> None:
    """Draw thin vertical lines, and an x axis from 0 to `end`."""
    for place in places:
        figure.add_vline(x=place, line={"color": FAINT, "width": 1})
    figure.update_xaxes(range=[0, end])


def log_axis(figure: go.Figure, axis: str, *values: Any, ticks: Sequence[float] | None = None) -> None:
    """Make an axis logarithmic, with labels at the given numbers, or at round ones."""
    if ticks is None:
        ticks = round_numbers(np.concatenate([np.ravel(part) for part in values]))
    settings = {"type": "log", "tickvals": list(ticks), "ticktext": [f"{tick:g}" for tick in ticks]}
    figure.update_layout({f"{axis}axis": settings})


def round_numbers(values: np.ndarray) -> list[float]:
    """Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten; only the powers for a wide range.

    >>> round_numbers(np.array([3.0, 40.0]))
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    """
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return [1.0]
    low, high = int(np.floor(np.log10(positive.min()))), int(np.ceil(np.log10(positive.max())))
    steps = (1, 2, 5) if high - low <= 4 else (1,)
    return [*(float(f"{step}e{power}") for power in range(low, high) for step in steps), float(f"1e{high}")]


def only_positive(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The values, with nan for those that a logarithmic axis cannot show."""
    array = np.asarray(values, dtype=float)
    return np.where(array > 0, array, np.nan)


def page(template: str, drawings: Iterable[Drawing], **values: Any) -> str:
    """Render a self-contained HTML page, with its figures and the plotting library.

    Args:
        template: name of a file in `templates/` that extends `base.html`.
        drawings: the figures of the page.
        **values: variables of the template.
    """
    specs = ",".join(f'["{drawing.name}",{drawing.figure.to_json()}]' for drawing in drawings)
    return _templates().get_template(template).render(plotly=plotly(), figures=packed(f"[{specs}]"), **values)


@cache
def plotly() -> str:
    """The plotting library, compressed for a page."""
    return packed(get_plotlyjs())


def packed(text: str) -> str:
    """Text compressed and encoded in base64.

    >>> zlib.decompress(base64.b64decode(packed("figures")))
    b'figures'
    """
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def save(path: Path, text: str) -> None:
    """Write a file atomically, creating parent folders.

    Raises:
        OSError: if it cannot be written; an existing file is then unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text)


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("samuel_lab"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
