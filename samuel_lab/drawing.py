"""What the pages of all studies share: how figures look, how a page is put together, how a file is saved.

Colours of text, grid and background are left to the page's style sheet, so that a figure fits a light page, a
dark page and paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from samuel_lab.files import replace

REFERENCE = {"color": "#8a8a8a", "dash": "dot", "width": 2}
"""How a line looks that belongs to nobody."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
CLEAR = "rgba(0,0,0,0)"
FAINT = "rgba(138,138,138,0.55)"


@dataclass(frozen=True)
class Drawing:
    """A figure and the words that go with it.

    Attributes:
        name: an identifier, unique on the page.
        title: a heading.
        figure: what to draw.
        alt: what it shows, for readers who cannot see it.
        caption: what it shows, for all.
        half: whether two of its kind fit side by side on a wide screen.
    """

    name: str
    title: str
    figure: go.Figure
    alt: str
    caption: str
    half: bool = False


def blank(x: str, y: str) -> go.Figure:
    """A figure with named axes and nothing in it yet."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=430,
        margin={"l": 16, "r": 16, "t": 36, "b": 16},
        font={"family": FONT, "size": 13},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        legend={"orientation": "h", "y": -0.17, "yanchor": "top", "x": 0.0, "bgcolor": CLEAR},
        hovermode="x unified",
        hoverlabel={"font": {"family": FONT, "size": 12}},
        dragmode="zoom",
        showlegend=True,
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
    **more: Any,
) -> None:
    """Add a line to a figure; `more` goes to plotly as it is."""
    settings: dict[str, Any] = {
        "name": label,
        "mode": "lines+markers" if markers else "lines",
        "line": style,
        "marker": {"size": 6},
        "hovertemplate": "%{y:.4~g}",
        **more,
    }
    most = float(np.finfo(np.float32).max)
    heights = np.clip(np.asarray(y, dtype=float), -most, most).astype(np.float32)
    figure.add_trace(go.Scatter(x=np.asarray(x, dtype=np.float32), y=heights, **settings))


def heat_map(at: np.ndarray, rows: list[str], values: np.ndarray, x: str, y: str, end: float) -> go.Figure:
    """How shares of one are spread over named rows, from the start of a run to its end.

    Args:
        at: where on the x axis each column belongs.
        rows: the names of the rows, from below.
        values: shape (rows, columns).
        x: the title of the x axis.
        y: what a row is.
        end: where the x axis ends.
    """
    figure = blank(x, y)
    figure.add_trace(
        go.Heatmap(
            x=at.astype(np.float32),
            y=rows,
            z=values.astype(np.float32),
            zmin=0.0,
            zmax=brightest(values),
            colorscale="Cividis",
            colorbar={
                "orientation": "h",
                "thickness": 10,
                "len": 0.6,
                "x": 1.0,
                "xanchor": "right",
                "y": 1.02,
                "yanchor": "bottom",
                "tickformat": ".0%",
                "nticks": 5,
                "ticks": "",
                "outlinewidth": 0,
            },
            hovertemplate=f"{x} %{{x:.6~g}}<br>{y} %{{y}}<br>weight %{{z:.1%}}<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest", height=360)
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_xaxes(showgrid=False, range=[0, end])
    return figure


def brightest(values: np.ndarray) -> float:
    """The share at which the colours end, so that a few rounds with one heavy row do not darken the rest."""
    return float(np.percentile(values.max(axis=0), 95))


def brightness(values: np.ndarray) -> str:
    """A sentence about where the colours of a heat map end."""
    return f"The brightest colour stands for {brightest(values):.0%} and more."


def mark(figure: go.Figure, places: Iterable[float], end: float) -> None:
    """Mark places on the x axis, which goes from 0 to `end`, with thin vertical lines."""
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
    """Numbers to label a logarithmic axis with: 1, 2 and 5 times the powers of ten, or few of them.

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
    """The values, with gaps where they have no place on a logarithmic axis."""
    array = np.asarray(values, dtype=float)
    return np.where(array > 0, array, np.nan)


def page(template: str, drawings: Iterable[Drawing], **values: Any) -> str:
    """A self-contained HTML page made from one of the templates, with its figures and what draws them.

    Args:
        template: the name of a file in `templates/` that extends `base.html`.
        drawings: the figures that the page has a place for.
        **values: what the template shows.
    """
    specs = ",".join(f'["{drawing.name}",{drawing.figure.to_json()}]' for drawing in drawings)
    return _templates().get_template(template).render(plotly=plotly(), figures=script(f"[{specs}]"), **values)


@cache
def plotly() -> Markup:
    """The library that draws the figures, to stand inside a page."""
    return script(get_plotlyjs())


def script(text: str) -> Markup:
    """Text that may stand inside a script element: nothing in it may look like the element's end."""
    return Markup(text.replace("</", "<\\/").replace("<!--", "<\\!--"))


def save(path: Path, text: str) -> None:
    """Write a file whole or not at all, making the folders it needs.

    Raises:
        OSError: if it cannot be written; nothing is left behind then, and an older file stays as it was.
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
