import json
import tarfile

import numpy as np
import pytest

from samuel_lab.data.sst2 import sst2, tokens

TRAIN = "label\tsentence\n1\ta fine film\n0\ta dull film\n1\tfine , fine !\n"
DEV = "label\tsentence\n0\tA DULL farce\n1\tfine\n"


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "sst2")


def written(folder, train=TRAIN, dev=DEV):
    folder.mkdir(exist_ok=True)
    (folder / "train.tsv").write_bytes(train.encode() if isinstance(train, str) else train)
    (folder / "dev.tsv").write_bytes(dev.encode() if isinstance(dev, str) else dev)
    return folder


def by_label(split):
    return sorted((int(label), row.tolist()) for row, label in zip(split.inputs, split.labels, strict=True))


def test_words_are_numbered_by_frequency_and_what_training_never_saw_is_unknown(tmp_path, folder):
    data = sst2(folder, cache=tmp_path / "cache", length=4, least=1)
    # fine: 2, then a and film, then the rest, each in alphabetical order: ! , dull
    assert by_label(data.train) == [(0, [3, 7, 4, 0]), (1, [2, 6, 2, 5]), (1, [3, 2, 4, 0])]
    assert by_label(data.test) == [(0, [3, 7, 1, 0]), (1, [2, 0, 0, 0])]
    assert data.facts["vocabulary"] == 8
    assert data.facts["test_from"] == "dev.tsv"
    assert data.facts["unknown_share"] == {"train": 0.0, "test": 0.25}
    assert data.train.inputs.dtype == np.int32
    assert json.loads(json.dumps(data.facts)) == data.facts


def test_rare_words_are_unknown_and_long_sentences_are_cut_and_counted(tmp_path, folder):
    data = sst2(folder, cache=tmp_path / "cache", length=3, least=2)
    assert by_label(data.train) == [(0, [3, 1, 4]), (1, [2, 1, 2]), (1, [3, 2, 4])]
    assert data.facts["vocabulary"] == 5
    assert data.facts["cut"] == {"train": 1, "test": 0}


def test_an_archive_of_the_folder_gives_the_same(tmp_path, folder):
    with tarfile.open(tmp_path / "sst2.tar.xz", "w:xz") as tar:
        tar.add(folder, "sst2")
    of_archive = sst2(tmp_path / "sst2.tar.xz", cache=tmp_path / "cache")
    assert of_archive.facts["checksum"] == sst2(folder, cache=tmp_path / "cache").facts["checksum"]


def test_options_and_changes_make_new_entries_of_the_cache(tmp_path, folder):
    assert sst2(folder, cache=tmp_path / "cache", length=3).train.inputs.shape == (3, 3)
    assert sst2(folder, cache=tmp_path / "cache", length=5).train.inputs.shape == (3, 5)
    written(folder, train=TRAIN + "1\tmore\n")
    assert sst2(folder, cache=tmp_path / "cache", length=3).train.inputs.shape == (4, 3)


def test_columns_may_be_the_other_way_round_and_lines_may_end_as_on_windows(tmp_path):
    turned = "sentence\tlabel\r\na fine film\t1\r\na dull film\t0\r\nfine , fine !\t1\r\n"
    one = sst2(written(tmp_path / "one"), cache=tmp_path / "cache")
    other = sst2(written(tmp_path / "other", train=turned), cache=tmp_path / "cache")
    assert np.array_equal(one.train.inputs, other.train.inputs)
    assert np.array_equal(one.train.labels, other.train.labels)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("label\tsentence\n1\tfine\nno tab here\n", "train.tsv, line 3: 1 columns instead of 2"),
        ("label\tsentence\n1\tfine\ttoo\n", "line 2: 3 columns"),
        ("label\tsentence\n1\tfine\n2\tfine\n", "line 3: the label must be 0 or 1, it is '2'"),
        ("label\tsentence\n1\tfine\n\n0\tdull\n", "line 3: 1 columns"),
        ("label\tsentence\n1\t   \n", "line 2: the sentence is empty"),
        (b"label\tsentence\n1\tfine\n0\t\xff\n", "line 3: not UTF-8"),
        ("1\tfine\n0\tdull\n", "line 1: the header must name a column `label`"),
        ("label\tsentence\n", "train.tsv has no examples"),
        ("", "line 1: 1 columns"),
    ],
    ids=["no tab", "two tabs", "label 2", "empty line", "no words", "not UTF-8", "no header", "no lines", "empty file"],
)
def test_malformed_lines_are_told_with_their_file_and_number(tmp_path, train, message):
    with pytest.raises(ValueError, match=message):
        sst2(written(tmp_path / "sst2", train=train), cache=tmp_path / "cache")


def test_missing_files_and_impossible_options_are_told(tmp_path, folder):
    with pytest.raises(ValueError, match="at least 1, got 0 and 3"):
        sst2(folder, length=0)
    (folder / "dev.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="dev.tsv; SST-2 is a folder with train.tsv and dev.tsv"):
        sst2(folder, cache=tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match="nowhere; SST-2 is"):
        sst2(tmp_path / "nowhere")


def test_tokens_are_words_and_marks_in_lower_case():
    assert tokens("Crème brûlée -- it's k-19's") == ["crème", "brûlée", "-", "-", "it's", "k-19's"]
    assert tokens("you 've (really)…") == ["you", "'ve", "(", "really", ")", "…"]
    assert tokens(" \u2028 ") == []


def test_the_real_sst2_is_read_whole(tmp_path, shared):
    data = sst2(shared("sst2.tar.xz"), cache=tmp_path)
    assert (len(data.train), len(data.test)) == (67_349, 872)
    assert data.facts["cut"] == {"train": 0, "test": 0}
    assert data.train.inputs.max() == data.facts["vocabulary"] - 1
    assert 0.4 < data.train.labels[:1000].mean() < 0.7
    assert 0.4 < data.test.labels[:100].mean() < 0.6
