"""SST-2: phrases from film reviews, each positive or negative."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from samuel_lab.data import MIXED, Dataset, Progress, Split, permutation
from samuel_lab.data.cache import cached
from samuel_lab.data.sources import Source, existing, open_source, state_of

PADDING, UNKNOWN = 0, 1
"""Ids that are not words. Words follow by descending frequency."""
CLASSES = ("negative", "positive")
FILES = {"train": "train.tsv", "test": "dev.tsv"}
"""File of each split. The test split is dev, as in the flax example that the paper follows; the labels of the official
test.tsv are not generally published."""
WANTED = tuple(FILES.values())
RIGHT = "SST-2 is a folder with train.tsv and dev.tsv: a header line, then label<TAB>sentence"

TOKEN = re.compile(r"'?\w+(?:['-]\w+)*|[^\w\s]")


def tokens(sentence: str) -> list[str]:
    """The words and punctuation marks of a sentence, in lower case.

    A word is a run of letters and digits, with the hyphens and apostrophes inside it and an apostrophe before it.
    Every other character that is not a space is a token of its own.

    Args:
        sentence: any text.

    >>> tokens("K-19 is n't bad, you 've seen worse!")
    ['k-19', 'is', "n't", 'bad', ',', 'you', "'ve", 'seen', 'worse', '!']
    """
    return TOKEN.findall(sentence.lower())


def sst2(
    path: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    length: int = 64,
    least: int = 3,
    *,
    verify: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read SST-2 as ids of words, with a vocabulary from the training split only.

    Id 0 is padding and 1 any word outside the vocabulary. `facts["vocabulary"]` is the number of ids.
    The test split is `dev.tsv`.

    Args:
        path: a folder with `train.tsv` and `dev.tsv`, or an archive of it. A header line names the two columns; one
            is `label` (0 or 1) and the other has the sentence.
        cache: the folder of the cache; see `samuel_lab.data.cache.cache_folder`.
        length: maximum number of tokens of a sentence; longer ones are truncated, and counted in `facts["cut"]`.
        least: minimum count of a word in the training split to be in the vocabulary.
        verify: compare the checksums of the cache as well.
        progress: progress callback; see `samuel_lab.data.Progress`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train.tsv", "dev.tsv"):
    ...         _ = Path(folder, name).write_text("label\\tsentence\\n1\\tgood , good\\n0\\tnot good\\n")
    ...     data = sst2(folder, cache=f"{folder}/cache", length=4, least=1)
    >>> data.train.inputs.tolist(), data.train.labels.tolist(), data.facts["vocabulary"]
    ([[2, 3, 2, 0], [4, 2, 0, 0]], [1, 0], 5)
    """
    if length < 1 or least < 1:
        raise ValueError(f"length and least must be at least 1, got {length} and {least}")
    path = existing(path, RIGHT)

    def build(folder: Path) -> dict[str, Any]:
        return _encoded(open_source(path, WANTED, progress=progress), folder, length, least, progress)

    key = {"path": str(path), "length": length, "least": least}
    entry = cached("sst2", key, state_of(path, WANTED), build, cache=cache, verify=verify)
    arrays = entry.arrays
    return Dataset(
        name="SST-2",
        train=Split(arrays["train_inputs"], np.array(arrays["train_labels"])),
        test=Split(arrays["test_inputs"], np.array(arrays["test_labels"])),
        classes=CLASSES,
        facts={"source": str(path), **entry.facts, "checksum": entry.checksum},
    )


def _encoded(source: Source, folder: Path, length: int, least: int, progress: Progress | None) -> dict[str, Any]:
    """Write the arrays of both splits into a folder; returns their facts."""
    read = {split: list(_examples(source, name)) for split, name in FILES.items()}
    counts = Counter(word for _, words in read["train"] for word in words)
    frequent = sorted(
        (word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word)
    )
    ids = {word: number for number, word in enumerate(frequent, start=UNKNOWN + 1)}
    facts: dict[str, Any] = {"vocabulary": len(ids) + 2, "length": length, "least": least, "test_from": FILES["test"]}
    cut, unknown = {}, {}
    for split, examples in read.items():
        if not examples:
            raise ValueError(f"{FILES[split]} has no examples; {RIGHT}")
        inputs = np.full((len(examples), length), PADDING, np.int32)
        for row, (_, words) in zip(inputs, examples, strict=True):
            known = [ids.get(word, UNKNOWN) for word in words[:length]]
            row[: len(known)] = known
        labels = np.array([label for label, _ in examples], np.int32)
        order = permutation(len(examples), MIXED)
        np.save(folder / f"{split}_inputs.npy", inputs[order])
        np.save(folder / f"{split}_labels.npy", labels[order])
        facts[split] = len(examples)
        cut[split] = sum(len(words) > length for _, words in examples)
        unknown[split] = round(float(np.sum(inputs == UNKNOWN) / np.sum(inputs != PADDING)), 4)
        if progress:
            progress(f"reading SST-2, {split}", len(examples), len(examples))
    return {**facts, "cut": cut, "unknown_share": unknown}


def _examples(source: Source, name: str) -> Iterator[tuple[int, list[str]]]:
    """The label and the tokens of every line after the header."""
    path = source.describe(name)
    if name not in source.names:
        raise FileNotFoundError(f"there is no {path}; {RIGHT}")
    # In bytes, since `str.splitlines` knows more line endings than this format.
    lines = source.read(name).removesuffix(b"\n").split(b"\n")
    header = _columns(lines[0], path, 1)
    if "label" not in header:
        raise ValueError(f"{path}, line 1: the header must name a column `label`, it is {header}")
    place = header.index("label")
    for number, line in enumerate(lines[1:], start=2):
        columns = _columns(line, path, number)
        label, words = columns[place], tokens(columns[1 - place])
        if label not in ("0", "1"):
            raise ValueError(f"{path}, line {number}: the label must be 0 or 1, it is {label!r}")
        if not words:
            raise ValueError(f"{path}, line {number}: the sentence is empty")
        yield int(label), words


def _columns(line: bytes, path: str, number: int) -> list[str]:
    try:
        columns = line.removesuffix(b"\r").decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start})") from None
    if len(columns) != 2:
        raise ValueError(f"{path}, line {number}: {len(columns)} columns instead of 2, which a tab separates")
    return columns
