"""Shows the examples of docstrings as code in the reference; plain Markdown takes `>>>` for a quotation."""

from __future__ import annotations

import re

import griffe

# From a line that starts with >>> to the next empty line. Indented ones stand in a section, parsed anyway.
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """The docstring with a fence around every example.

    >>> text = "Twice.\\n\\n>>> 2 * [1]\\n[1, 1]\\n\\nAnd more."
    >>> fenced(text).splitlines()
    ['Twice.', '', '```pycon', '>>> 2 * [1]', '[1, 1]', '```', '', 'And more.']
    """
    return EXAMPLE.sub(lambda example: f"```pycon\n{example.group()}\n```", docstring)


class Doctests(griffe.Extension):
    """Applies `fenced` to every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Called by griffe once for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
