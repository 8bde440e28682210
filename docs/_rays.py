"""Draws docs/images/rays.svg: the candidate rates of one block as points on a ray, from the formula in the code.

python docs/_rays.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from samuel.core import RateSearch

PICTURE = Path(__file__).parent / "images" / "rays.svg"
WIDE, HIGH, SCALE = 640, 340, 62.0
ORIGIN = (425.0, 210.0)
"""Where the minimum of the loss lies, in pixels."""
HESSIAN = np.array([[0.16, 0.10], [0.10, 0.50]])
START = np.array([-5.9, 2.6])
SEARCH = RateSearch(learning_rates=(0.08, 0.16, 0.32, 0.64, 1.28), prior=-0.5, lag=0.3, settle=30.0)
SHOWN = {2: "#7fb0d8", 4: "#3f83c0", 9: "#12467c"}
"""The steps after which the ray is drawn, and its colour."""
ORANGE, GREY = "#d55e00", "#8a8a8a"


def run() -> tuple[list[np.ndarray], dict[int, tuple[np.ndarray, np.ndarray]]]:
    """The parameters of every step, and after the steps to draw: `s` and the weights of the rates."""
    state = SEARCH.start(np.zeros(()))
    x, s, lag = START.copy(), np.zeros(2), np.zeros(2)
    path, rays = [x.copy()], {}
    for t in range(1, max(SHOWN) + 1):
        g = HESSIAN @ x
        state, step = SEARCH.advance(state, dots=np.array([g @ s, g @ lag]))
        x = x + step.slide * s + step.along * g
        s, lag = step.keep * s + step.enter * g, SEARCH.lag * (step.keep * lag + step.enter * g)
        path.append(x.copy())
        if t in SHOWN:
            rays[t] = s.copy(), SEARCH.shares(state)
    return path, rays


def place(x: np.ndarray) -> tuple[float, float]:
    """A point of the plane in pixels."""
    return ORIGIN[0] + SCALE * x[0], ORIGIN[1] - SCALE * x[1]


def dot(x: np.ndarray, radius: float, look: str) -> str:
    """A circle at a point of the plane."""
    across, down = place(x)
    return f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:.1f}" {look}/>'


def line(a: np.ndarray, b: np.ndarray, look: str) -> str:
    """A line between two points of the plane."""
    (x1, y1), (x2, y2) = place(a), place(b)
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {look}/>'


def text(x: float, y: float, words: str, look: str = "") -> str:
    """Some words, in pixels."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="18" {look}>{words}</text>'


def contours() -> list[str]:
    """Ellipses of equal loss."""
    values, vectors = np.linalg.eigh(HESSIAN)
    turn = -np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
    return [
        f'<ellipse cx="0" cy="0" rx="{SCALE * np.sqrt(2 * level / values[0]):.1f}" '
        f'ry="{SCALE * np.sqrt(2 * level / values[1]):.1f}" fill="none" stroke="{GREY}" stroke-opacity="0.35" '
        f'transform="translate({ORIGIN[0]} {ORIGIN[1]}) rotate({turn:.1f})"/>'
        for level in (0.02, 0.15, 0.5, 1.2, 2.2, 3.6)
    ]


def drawing() -> str:
    """The picture as SVG."""
    path, rays = run()
    parts = contours()
    for t, (s, shares) in rays.items():
        colour = SHOWN[t]
        points = [START - rate * s for rate in SEARCH.learning_rates]
        parts.append(line(START, points[-1], f'stroke="{colour}" stroke-width="1.5"'))
        parts += [
            dot(point, 2 + 9 * np.sqrt(share), f'fill="{colour}" fill-opacity="0.65"')
            for point, share in zip(points, shares, strict=True)
        ]
        across, down = place(points[-1])
        parts.append(text(across - 12, down + 10, f"after {t} steps", f'fill="{colour}" text-anchor="end"'))
    corners = " ".join("{:.1f},{:.1f}".format(*place(x)) for x in path)
    parts.append(f'<polyline points="{corners}" fill="none" stroke="{ORANGE}" stroke-width="2"/>')
    parts += [dot(path[t], 4, f'fill="{ORANGE}"') for t in (0, *SHOWN)]
    parts.append(dot(START, 4, 'fill="#222"'))
    parts.append(text(place(START)[0] - 4, place(START)[1] - 12, "c", 'font-style="italic"'))
    parts.append(dot(np.zeros(2), 3, f'fill="{GREY}"'))
    parts.append(text(ORIGIN[0] + 8, ORIGIN[1] - 6, "minimum", f'fill="{GREY}"'))
    parts.append(text(across + 12, down + 6, "largest rate", f'fill="{SHOWN[max(SHOWN)]}"'))
    across, down = place(path[-1])
    parts.append(text(across - 6, down + 22, "x", f'font-style="italic" fill="{ORANGE}"'))
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" '
        f'font-family="sans-serif" role="img">\n<rect width="{WIDE}" height="{HIGH}" fill="#fff"/>\n{inside}\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawing())
