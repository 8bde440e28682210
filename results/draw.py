"""The picture of the searches: every schedule as a dot, and runs without a search as lines. generate.py draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

LOOKS = (
    ("#d55e00", "3.5", ""),
    ("#1c1c1c", "2", "2 3"),
    ("#0072b2", "2", "8 4"),
    ("#009e73", "2", "10 3 2 3"),
    ("#cc79a7", "2", ""),
)
"""Colour, width and dashes of the lines, in their order."""
WIDE, HIGH, LEFT, TOP = 250, 240, 52, 44
"""Of a panel, in pixels: the size of its inside, and the room beside and above it."""
BELOW, ABOVE = 16.0, 2.5
"""Points of accuracy that a panel shows below its best schedule, and above the best of all."""


class Panel(NamedTuple):
    """One study, in percent."""

    title: str
    search: Sequence[float]
    """The accuracy of every schedule."""
    lines: Mapping[str, float]
    """The accuracy of what needs no search, by its label; what was not trained is left out."""


def panel(study: Panel, labels: Sequence[str], x: float) -> list[str]:
    """The drawing of one study."""
    search = sorted(study.search)
    low, high = search[-1] - BELOW, max(search[-1], *study.lines.values()) + ABOVE

    def height(accuracy: float) -> str:
        return f"{TOP + HIGH * (high - accuracy) / (high - low):.1f}"

    parts = [f'<text x="{x}" y="{TOP - 16}" font-size="15" font-weight="bold">{study.title}</text>']
    for tick in range(int(-(-low // 5)) * 5, int(high) + 1, 5):
        y = height(tick)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + WIDE}" y2="{y}" stroke="#8a8a8a" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{x - 6}" y="{y}" font-size="12" text-anchor="end" dy="4">{tick} %</text>')
    for place, accuracy in enumerate(search):
        if accuracy >= low:
            across = x + WIDE * (place + 0.5) / len(search)
            parts.append(f'<circle cx="{across:.1f}" cy="{height(accuracy)}" r="2.2" fill="#8a8a8a"/>')
    lost = sum(accuracy < low for accuracy in search)
    parts.append(f'<text x="{x}" y="{TOP + HIGH - 6}" font-size="12" fill="#6a6a6a">{lost} are lower</text>')
    for label, look in zip(labels, LOOKS, strict=False):
        if label in study.lines:
            y = height(study.lines[label])
            parts.append(f'<line x1="{x}" y1="{y}" x2="{x + WIDE}" y2="{y}" {stroke(*look)}/>')
    parts.append(
        f'<text x="{x + WIDE / 2}" y="{TOP + HIGH + 22}" font-size="12" text-anchor="middle">'
        f"{len(search)} schedules, worst to best</text>"
    )
    return parts


def stroke(colour: str, width: str, dashes: str) -> str:
    """How a line looks."""
    return f'stroke="{colour}" stroke-width="{width}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def draw(panels: Sequence[Panel], labels: Sequence[str]) -> str:
    """The whole picture as SVG."""
    step = LEFT + WIDE + 16
    parts = [part for i, one in enumerate(panels) for part in panel(one, labels, LEFT + i * step)]
    wide, high = len(panels) * step, TOP + HIGH + 92
    for i, (label, look) in enumerate(zip(labels, LOOKS, strict=False)):
        x, y = LEFT + i % 2 * wide / 2, TOP + HIGH + 50 + i // 2 * 24
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 34}" y2="{y}" {stroke(*look)}/>')
        parts.append(f'<text x="{x + 42}" y="{y}" font-size="13" dy="4">{label}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
            'font-family="system-ui, sans-serif" fill="#1c1c1c" role="img">',
            "<title>Test accuracy of every schedule of three searches, beside single runs</title>",
            f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )
