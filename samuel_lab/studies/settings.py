"""The settings of a study: typed fields with a help text and a range, validated before any work begins.

A field is an option on the command line, an entry of `config.json` and an argument of the class, with one name and one
validation.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin


class BadSetting(ValueError):
    """An invalid setting; `name` is that of the field."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    shown: str | None = None,
) -> Any:
    """A field of `Settings`.

    Args:
        default: the default value.
        help: the text for `--help`.
        least: inclusive lower limit of a number, or of every number of a list.
        above: exclusive lower limit.
        most: inclusive upper limit.
        choices: the allowed words.
        shown: the default as the help displays it, if not by its value.
    """
    limits = {"help": help, "least": least, "above": above, "most": most, "choices": choices, "shown": shown}
    return field(default=default, metadata=limits)


def changed(kind: type[Settings], name: str, default: Any, help: str | None = None, shown: str | None = None) -> Any:
    """The option of a base class with another default, and optionally another help text."""
    limits = dict(kind.__dataclass_fields__[name].metadata)
    own = {key: text for key, text in (("help", help), ("shown", shown)) if text is not None}
    return field(default=default, metadata=limits | own)


@dataclass(frozen=True)
class Settings:
    """Typed, validated values. Derive a frozen dataclass whose fields are made with `option`.

    >>> @dataclass(frozen=True)
    ... class Coffee(Settings):
    ...     cups: int = option(1, "How many.", least=1, most=3)
    ...     sizes: tuple[float, ...] = option((0.2,), "Litres.", above=0)
    >>> Coffee.read({"cups": "2", "sizes": "0.1,0.3"})
    Coffee(cups=2, sizes=(0.1, 0.3))
    >>> Coffee(cups=4)
    Traceback (most recent call last):
        ...
    samuel_lab.studies.settings.BadSetting: cups must be a whole number from 1 to 3, got 4
    """

    def __post_init__(self) -> None:
        kinds = self.kinds()
        for entry in fields(self):
            value = check(entry.name, getattr(self, entry.name), kinds[entry.name], entry.metadata)
            object.__setattr__(self, entry.name, value)
        self.check()

    def check(self) -> None:
        """Raise `BadSetting` for values that are valid one by one and contradict each other."""

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """The type of every setting."""
        return typing.get_type_hints(cls)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> typing.Self:
        """Parse settings from the text of a command line, or from JSON.

        Raises:
            BadSetting: for an unknown name or an invalid value.
        """
        kinds, known = cls.kinds(), [entry.name for entry in fields(cls)]
        for name in values:
            if name not in known:
                raise BadSetting(name, f"unknown setting {name!r}; choose from {', '.join(known)}")
        return cls(**{name: parse(name, value, kinds[name]) for name, value in values.items()})

    def as_json(self) -> dict[str, Any]:
        """The values as JSON; `read` is the inverse."""
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}

    def changed(self) -> dict[str, Any]:
        """The values that differ from their defaults."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if getattr(self, entry.name) != entry.default
        }


def words(value: Any) -> str:
    """Format a value as on a command line.

    >>> words((0.1, 1.0)), words(3), words(True)
    ('0.1,1', '3', 'yes')
    """
    if isinstance(value, tuple):
        return ",".join(words(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def parse(name: str, value: Any, kind: Any) -> Any:
    """Parse a value of a type from text; other values are unchanged, but lists become tuples.

    >>> parse("rates", "0.1, 1", tuple[float, ...])
    (0.1, 1.0)
    """
    inner, optional = _without_none(kind)
    if value is None or (optional and isinstance(value, str) and value.lower() == "none"):
        return None
    if get_origin(inner) is tuple:
        one = get_args(inner)[0]
        parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        # `check` refuses what is neither text nor a list.
        return tuple(parse(name, part, one) for part in parts) if isinstance(parts, list | tuple) else value
    if not isinstance(value, str):
        return value
    if inner is bool:
        if value.lower() in ("yes", "true", "on", "1"):
            return True
        if value.lower() in ("no", "false", "off", "0"):
            return False
        raise BadSetting(name, f"{name} must be yes or no, got {value!r}")
    if inner in (int, float):
        try:
            return inner(value)
        except ValueError:
            raise BadSetting(name, f"{name} must be {_article(inner)}, got {value!r}") from None
    if inner is Path and not value.strip():  # Path("") is the current folder
        raise BadSetting(name, f"{name} must be a path, got {value!r}")
    return inner(value)


def check(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> Any:
    """Validate the value of a setting."""
    inner, optional = _without_none(kind)
    if value is None:
        if not optional:
            raise BadSetting(name, f"{name} must be {_expected(inner, limits)}, got None")
        return None
    if get_origin(inner) is tuple:
        one = get_args(inner)[0]
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise BadSetting(name, f"{name} must be a list of values, got {value!r}")
        if not value and not limits.get("shown"):
            raise BadSetting(name, f"{name} is empty: give at least one value")
        return tuple(check(name, entry, one, limits) for entry in value)
    if inner is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    good = isinstance(value, inner) and (inner is bool or not isinstance(value, bool))
    if good and inner in (int, float):
        good = _within(value, limits)
    if good and inner is str and limits.get("choices"):
        good = value in limits["choices"]
    if not good:
        shown = str(value) if isinstance(value, Path) else repr(value)
        raise BadSetting(name, f"{name} must be {_expected(inner, limits)}, got {shown}")
    return value


def _within(value: float, limits: Mapping[str, Any]) -> bool:
    low, above, high = limits.get("least"), limits.get("above"), limits.get("most")
    return (
        (isinstance(value, int) or math.isfinite(value))  # whole numbers may be too large for a float
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
    )


def _expected(kind: Any, limits: Mapping[str, Any]) -> str:
    if limits.get("choices"):
        return f"one of {', '.join(limits['choices'])}"
    low, above, high = limits.get("least"), limits.get("above"), limits.get("most")
    text = _article(kind)
    if above is not None:
        return f"{text} above {above:g}" + ("" if high is None else f" and at most {high:g}")
    if low is not None and high is not None:
        return f"{text} from {low:g} to {high:g}"
    if low is not None:
        return f"{text} of at least {low:g}"
    return text if high is None else f"{text} of at most {high:g}"


_ARTICLES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "yes or no", str: "a word", Path: "a path"}


def _article(kind: Any) -> str:
    return _ARTICLES.get(kind, getattr(kind, "__name__", str(kind)))


def _without_none(kind: Any) -> tuple[Any, bool]:
    """The type inside `X | None`, and whether None is allowed."""
    if get_origin(kind) in (types.UnionType, Union):
        inner = [one for one in get_args(kind) if one is not type(None)]
        return inner[0], True
    return kind, False


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
