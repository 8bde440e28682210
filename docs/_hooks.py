"""Turns the formulas of the documentation into MathML while it is built, so that no script has to.

Write `$x_t$` inside a sentence and `$$ ... $$` around a displayed formula, in pages and in docstrings alike.
"""

from __future__ import annotations

import html
import logging
import re

from latex2mathml.converter import convert

log = logging.getLogger("mkdocs.hooks.formulas")

# What pymdownx.arithmatex (generic) leaves in the page.
FORMULA = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<block>.*?)\\\]\s*</div>',
    re.DOTALL,
)


def mathml(formula: str, display: str) -> str:
    r"""One LaTeX formula as MathML; `display` is `inline` or `block`.

    >>> mathml("x_t", "inline").partition(">")[2]
    '<mrow><msub><mi>x</mi><mi>t</mi></msub></mrow></math>'
    >>> mathml(r"\nosuchthing", "inline")
    Traceback (most recent call last):
        ...
    ValueError: MathML cannot be made of '\\nosuchthing': \nosuchthing is not known
    """
    try:
        result = convert(formula, display=display)
    except Exception as error:  # the converter has many kinds, and none says which formula it was
        raise ValueError(f"MathML cannot be made of {formula!r}: {error or type(error).__name__}") from error
    unknown = re.search(r"\\[A-Za-z]+", result)  # the converter copies what it does not know
    if unknown:
        raise ValueError(f"MathML cannot be made of {formula!r}: {unknown.group()} is not known")
    return result


def on_page_content(content: str, page, **_) -> str:
    """Called by MkDocs with the HTML of each page."""

    def replace(match: re.Match[str]) -> str:
        display = "inline" if match["inline"] is not None else "block"
        try:
            made = mathml(html.unescape(match[display]).strip(), display)
            return made if display == "inline" else f'<div class="formula">{made}</div>'  # which scrolls by itself
        except ValueError as error:
            log.warning("%s: %s", page.file.src_uri, error)  # fails the build under --strict
            return match.group()

    return FORMULA.sub(replace, content)
