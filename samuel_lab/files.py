"""Atomic writing of files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace(path: Path, text: str, new: bool = False) -> None:
    """Write a file whole or not at all; FileExistsError for a `new` one that exists."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(part, path)
            part.unlink()
        else:
            os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
