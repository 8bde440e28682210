"""Draws docs/images/offline.svg from the files here: every schedule of the searches, and runs without a search.

python results/draw.py
"""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent
PICTURE = RESULTS.parent / "docs" / "images" / "offline.svg"
PANELS = {
    "CIFAR-10, 25 epochs": "cifar10_25_epochs",
    "Imagenette, 15 epochs": "imagenette",
    "SST-2, 25 epochs": "sst2",
}
"""What each panel is called, and the file that it shows."""
LINES = {
    "samuel (one search)": ("SAMUEL over Muon", "#d55e00", "3", ""),
    "samuel-adam (one search)": ("SAMUEL over Adam", "#d55e00", "2", "6 4"),
    "schedule-free": ("Schedule-Free AdamW", "#0072b2", "2", ""),
    "dadapt-adamw": ("D-Adapt AdamW", "#009e73", "2", ""),
    "momo": ("MoMo", "#cc79a7", "2", "2 3"),
    "adam/warmup-cosine": ("Adam, warm-up cosine", "#56507a", "2", "8 3 2 3"),
}
"""The methods that are drawn as lines: label, colour, width, dashes."""
WIDE, HIGH, LEFT, TOP = 250, 240, 52, 44
"""Of a panel, in pixels: the size of its inside, and the room beside and above it."""
BELOW, ABOVE = 16.0, 2.5
"""Points of accuracy that a panel shows below its best schedule, and above the best of all."""


def panel(title: str, name: str, x: float) -> list[str]:
    """The drawing of one study."""
    (study,) = json.loads((RESULTS / f"{name}.json").read_text())["studies"]
    search = sorted(100 * value for value in study["search"]["last_accuracy"])
    means = {row["method"]: 100 * row["values"]["last_accuracy"]["mean"] for row in study["rows"]}
    low, high = search[-1] - BELOW, max(search[-1], *(means[method] for method in LINES)) + ABOVE

    def height(accuracy: float) -> str:
        return f"{TOP + HIGH * (high - max(accuracy, low)) / (high - low):.1f}"

    parts = [f'<text x="{x}" y="{TOP - 16}" font-size="15" font-weight="bold">{title}</text>']
    for tick in range(int(-(-low // 5)) * 5, int(high) + 1, 5):
        y = height(tick)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + WIDE}" y2="{y}" stroke="#8a8a8a" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{x - 6}" y="{y}" font-size="12" text-anchor="end" dy="4">{tick} %</text>')
    for place, accuracy in enumerate(search):
        across = x + WIDE * (place + 0.5) / len(search)
        parts.append(f'<circle cx="{across:.1f}" cy="{height(accuracy)}" r="2.2" fill="#8a8a8a"/>')
    for method, (_, colour, width, dashes) in LINES.items():
        y = height(means[method])
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + WIDE}" y2="{y}" {stroke(colour, width, dashes)}/>')
    parts.append(
        f'<text x="{x + WIDE / 2}" y="{TOP + HIGH + 22}" font-size="12" text-anchor="middle">'
        f"{len(search)} schedules, worst to best</text>"
    )
    return parts


def stroke(colour: str, width: str, dashes: str) -> str:
    """How a line looks."""
    return f'stroke="{colour}" stroke-width="{width}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def draw() -> str:
    """The whole picture."""
    step = LEFT + WIDE + 16
    parts = [part for i, (title, name) in enumerate(PANELS.items()) for part in panel(title, name, LEFT + i * step)]
    for i, (label, colour, width, dashes) in enumerate(LINES.values()):
        x, y = LEFT + i % 3 * step, TOP + HIGH + 54 + i // 3 * 24
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 34}" y2="{y}" {stroke(colour, width, dashes)}/>')
        parts.append(f'<text x="{x + 42}" y="{y}" font-size="13" dy="4">{label}</text>')
    wide, high = len(PANELS) * step, TOP + HIGH + 96
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
            'font-family="system-ui, sans-serif" fill="#1c1c1c">',
            f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(f"Wrote {PICTURE}")
