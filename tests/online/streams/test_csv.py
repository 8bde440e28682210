"""CSV files as streams: what rounds they make, and what is said of files that cannot be used."""

import bz2
import gzip
import lzma
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel.online import Ball, Single, play
from samuel.online.bases.scale_free import ScaleFreeOGD
from samuel.online.losses import LogisticLoss, PinballLoss, SquaredLoss
from samuel.online.streams import CsvStream, encode

ELECTRICITY = Path(__file__).parents[4] / "shared" / "data" / "electricity.csv.xz"


@pytest.fixture
def written(tmp_path):
    """Write a file of these lines."""

    def write(*lines, name="data.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes("".join(line + "\n" for line in lines).encode(encoding))
        return path

    return write


def everything(stream):
    return stream.data(0, stream.rounds)


class TestRounds:
    def test_the_order_of_the_file_is_kept_and_numbers_can_be_taken_as_they_are(self, written):
        stream = CsvStream(written("a,y,b", "1,10,-1", "2,30,-2.5", "4,20,1e3"), "y", scale=False)
        features, target = everything(stream)
        assert stream.names == ("a", "b", "intercept")
        np.testing.assert_array_equal(features, [[1, -1, 1], [2, -2.5, 1], [4, 1000, 1]])
        np.testing.assert_array_equal(target, [10, 30, 20])
        assert (stream.rounds, stream.dim, stream.warm_up, stream.loss) == (3, 3, 0, SquaredLoss())

    def test_words_become_a_feature_each_in_order_of_appearance(self, written):
        path = written("day,y", "Tue,1", "Mon,2", " Tue ,3", "Wed,4")
        stream = CsvStream(path, "y", scale=False, intercept=False)
        assert stream.names == ("day=Tue", "day=Mon", "day=Wed")
        np.testing.assert_array_equal(everything(stream)[0], [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])

    def test_the_index_that_a_data_frame_writes_is_left_out(self, written):
        stream = CsvStream(written(",a,y", "0,5,1", "1,7,2", "2,6,4"), "y", scale=False)
        assert stream.names == ("a", "intercept")
        np.testing.assert_array_equal(everything(stream)[0], [[5, 1], [7, 1], [6, 1]])
        assert stream.encodings == {
            "": "left out: the first column has no name, so it is an index",
            "a": "number",
            "y": "target",
        }
        with pytest.raises(ValueError, match="there is no column '', the target"):
            CsvStream(stream.path, "")

    def test_the_encoding_of_each_column_is_named(self, written):
        path = written("day,a,b,y", "Tue,1,2,3", "Mon,2,3,4", "Tue,4,5,4")
        stream = CsvStream(path, "y", scale=False, drop=["b"])
        assert stream.encodings == {"day": "words (2)", "a": "number", "b": "left out, as asked for", "y": "target"}

    def test_decimal_commas_are_read_where_they_are_announced(self, written):
        lines = ("day;a;y", "Mo, early;1,5;3", "Tu;-,25;4,5", "Mo, early;2e1;1,5e-1")
        stream = CsvStream(written(*lines), "y", scale=False, intercept=False, separator=";", decimal=",")
        features, target = everything(pickle.loads(pickle.dumps(stream)))
        assert stream.names == ("day=Mo, early", "day=Tu", "a")
        np.testing.assert_array_equal(features[:, 2], [1.5, -0.25, 20])
        np.testing.assert_array_equal(target, [3, 4.5, 0.15])

    def test_two_classes_become_minus_one_and_one_in_their_order(self, written):
        stream = CsvStream(written("a,y", "1,UP", "2,DOWN", "3,UP"), "y", "classification")
        assert stream.classes == ("DOWN", "UP")
        assert stream.loss == LogisticLoss()
        np.testing.assert_array_equal(everything(stream)[1], [1, -1, 1])

    def test_classes_that_are_numbers_are_ordered_as_numbers(self, written):
        stream = CsvStream(written("a,y", "1,10", "2,9", "3,9.0"), "y", "classification")
        assert stream.classes == ("9", "10")
        np.testing.assert_array_equal(everything(stream)[1], [1, -1, -1])

    def test_a_quantile_has_its_level(self, written):
        assert CsvStream(written("a,y", "1,1", "2,3", "3,2"), "y", "quantile", level=0.9).loss == PinballLoss(0.9)

    @pytest.mark.parametrize("choice", [{"columns": ["b"]}, {"drop": ["a", "c"]}, {"columns": "ab", "drop": ["a"]}])
    def test_columns_can_be_chosen(self, written, choice):
        choice = {name: list(value) for name, value in choice.items()}
        stream = CsvStream(written("a,b,c,y", "1,2,x,3", "4,5,z,6"), "y", scale=False, intercept=False, **choice)
        np.testing.assert_array_equal(everything(stream)[0], [[2], [5]])

    @pytest.mark.parametrize(("name", "pack"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
    def test_compressed_files_are_the_same(self, written, tmp_path, name, pack):
        plain = written("a,y", "1,2", "3,4", "5,9")
        packed = tmp_path / f"data.csv.{name}"
        packed.write_bytes(pack.compress(plain.read_bytes()))
        streams = [CsvStream(path, "y", scale=False) for path in (plain, packed)]
        for one, other in zip(*map(everything, streams), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_quotes_marks_blank_lines_and_windows_line_ends_are_read(self, tmp_path):
        path = tmp_path / "data.csv"
        path.write_bytes(b'\xef\xbb\xbf"a, b",y\r\n"1",2\r\n\r\n3,5\r\n')
        stream = CsvStream(path, "y", scale=False)
        assert stream.names == ("a, b", "intercept")
        np.testing.assert_array_equal(everything(stream)[1], [2, 5])

    def test_another_separator_can_be_named(self, written):
        assert CsvStream(written("a;y", "1;2", "3;5"), "y", scale=False, separator=";").rounds == 2

    def test_progress_is_reported(self, written, monkeypatch):
        monkeypatch.setattr(encode, "CELLS_AT_ONCE", 4)
        counts = []
        CsvStream(written("a,y", *(f"{n},{n}" for n in range(5))), "y", progress=counts.append)
        assert counts == [2, 4, 5]

    def test_a_copy_reads_the_file_again(self, written):
        stream = CsvStream(written("a,y", "1,2", "3,5", "4,4"), "y", "quantile", level=0.2, scale=False)
        copy = pickle.loads(pickle.dumps(stream))
        assert (copy.loss, copy.names) == (stream.loss, stream.names)
        np.testing.assert_array_equal(everything(copy)[0], everything(stream)[0])


def by_the_past(values):
    """Each value standardised by those before it, worked out one at a time; nan where they have no deviation."""
    standard = np.full(len(values), np.nan)
    for t in range(len(values)):
        if t and np.std(values[:t]) > 0:
            standard[t] = (values[t] - np.mean(values[:t])) / np.std(values[:t])
    return standard


class TestScale:
    def file(self, tmp_path, numbers, **options):
        path = tmp_path / "numbers.csv"
        np.savetxt(path, numbers, delimiter=",", header="a,b,y", comments="", fmt="%.17g")
        return CsvStream(path, "y", **options)

    @pytest.mark.parametrize("offset", [0.0, 1e6])
    @pytest.mark.parametrize("at_once", [3, 21, 100_000])
    def test_numbers_are_standardised_by_the_rows_before_them(self, tmp_path, monkeypatch, offset, at_once):
        monkeypatch.setattr(encode, "CELLS_AT_ONCE", at_once)
        numbers = np.random.default_rng(0).normal(size=(60, 3)) * (1, 100, 5) + offset
        stream = self.file(tmp_path, numbers)
        features, target = everything(stream)
        assert (stream.rounds, stream.warm_up) == (50, 10)
        for column in (0, 1):
            expected = np.clip(by_the_past(numbers[:, column])[10:], -5, 5)
            np.testing.assert_allclose(features[:, column], expected, rtol=1e-6)
        np.testing.assert_allclose(target, by_the_past(numbers[:, 2])[10:], rtol=1e-6)

    def test_later_rows_change_nothing(self, tmp_path):
        numbers = np.random.default_rng(1).normal(size=(80, 3))
        early, late = self.file(tmp_path, numbers[:40]), self.file(tmp_path, numbers)
        for one, other in zip(everything(early), late.data(0, early.rounds), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_the_way_back_to_the_units_of_the_file_is_told(self, tmp_path):
        numbers = np.random.default_rng(2).normal(size=(40, 3)) * 300 + 5000
        stream = self.file(tmp_path, numbers)
        mean, deviation = stream.target_scale(5, 20)
        np.testing.assert_allclose(mean + deviation * stream.data(5, 20)[1], numbers[15:30, 2])

    def test_a_target_that_was_not_standardised_has_the_scale_one(self, tmp_path):
        stream = self.file(tmp_path, np.random.default_rng(2).normal(size=(9, 3)), scale=False)
        np.testing.assert_array_equal(stream.target_scale(1, 3), [[0, 0], [1, 1]])

    def test_a_column_that_was_still_for_long_does_not_explode(self, tmp_path):
        numbers = np.random.default_rng(3).normal(size=(300, 3))
        numbers[:200, 0] = 7.0
        features, _ = everything(self.file(tmp_path, numbers))
        assert (features[:190, 0] == 0).all()
        assert np.abs(features).max() == 5.0

    def test_rounds_begin_when_the_target_has_a_scale(self, tmp_path):
        numbers = np.random.default_rng(4).normal(size=(40, 3))
        numbers[:25, 2] = 3.0
        stream = self.file(tmp_path, numbers)
        assert stream.warm_up == 26  # the first row with two values of the target before it
        assert np.isfinite(everything(stream)[1]).all()

    def test_short_files_keep_half_of_their_rows(self, tmp_path):
        assert self.file(tmp_path, np.random.default_rng(5).normal(size=(6, 3))).rounds == 3


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=3, max_size=30), st.integers(1, 9))
def test_running_means_and_deviations_are_those_of_the_rows_before_however_rows_are_grouped(values, group):
    past = encode._Past(1)
    column = np.array(values)[:, None]
    parts = [past.then(column[start : start + group]) for start in range(0, len(values), group)]
    mean, deviation = (np.concatenate(part)[:, 0] for part in zip(*parts, strict=True))
    assert mean[0] == deviation[0] == 0
    for t in range(1, len(values)):
        size = np.abs(values[:t]).max()
        assert mean[t] == pytest.approx(np.mean(values[:t]), rel=1e-9, abs=1e-9 * size)
        assert deviation[t] == pytest.approx(np.std(values[:t]), rel=1e-6, abs=1e-6 * size)


class TestMissing:
    LINES = ("a,w,y", "1,u,1", ",v,2", "3,NA,4", "5,u,nan", "7,v,3")

    def test_they_are_refused_with_place_and_number_and_the_ways_out(self, written):
        with pytest.raises(ValueError, match=r"line 3, column 'a': there is no value") as caught:
            CsvStream(written(*self.LINES), "y")
        message = str(caught.value)
        assert "3 cells in all ('a': 1, 'w': 1, 'y': 1)" in message
        assert "missing='skip'" in message
        assert "missing='past mean'" in message

    def test_their_rows_can_be_skipped(self, written):
        stream = CsvStream(written(*self.LINES), "y", missing="skip", scale=False)
        np.testing.assert_array_equal(everything(stream)[1], [1, 3])
        assert stream.skipped == 3
        assert stream.missing == {"a": 1, "w": 1, "y": 1}

    def test_the_mean_of_the_past_can_take_their_place_but_not_of_a_target(self, written):
        path = written(*self.LINES)
        stream = CsvStream(path, "y", missing="past mean", scale=False, intercept=False)
        features, target = everything(stream)
        assert stream.names == ("a", "w=u", "w=v")
        np.testing.assert_array_equal(features, [[1, 1, 0], [1, 0, 1], [3, 0, 0], [7, 0, 1]])
        np.testing.assert_array_equal(target, [1, 2, 4, 3])
        assert stream.skipped == 1

    def test_standardised_they_are_zero(self, written):
        stream = CsvStream(written("a,y", "1,0", "3,1", "?,0", "5,1"), "y", "classification", missing="past mean")
        np.testing.assert_allclose(everything(stream)[0][:, 0], [0, 0, 0, 3])

    @pytest.mark.parametrize(
        ("first", "expected"),
        [("9", [[0], [0], [9], [8]]), ("v", [[0, 0], [0, 0], [1, 0], [0, 1]])],
        ids=["a number", "a word"],
    )
    def test_a_column_may_begin_with_them(self, written, monkeypatch, first, expected):
        monkeypatch.setattr(encode, "CELLS_AT_ONCE", 2)  # the column's kind shows in a later chunk
        path = written("a,y", ",1", ",2", f"{first},3", "8,5")
        stream = CsvStream(path, "y", missing="past mean", scale=False, intercept=False)
        np.testing.assert_array_equal(everything(stream)[0], expected)


NUMBERS = ("1,2,3", "4,5,6", "7,8,10")


class TestBadFiles:
    @pytest.mark.parametrize(
        ("lines", "options", "complaint"),
        [
            ((), {}, "is empty; its first line must name the columns"),
            (("a,b,y",), {}, "there are no rows of data; a stream needs at least 2"),
            (("a,b,y", "1,2,3"), {}, "there is 1 row of data; a stream needs at least 2"),
            (("a,b,y", "1,2,3", "2,1,5"), {}, "no row is left once the scale of the target 'y' is known"),
            (("a,b,Y", *NUMBERS), {}, "no column 'y', the target. Did you mean 'Y'\\? The columns are 'a', 'b', 'Y'"),
            (("a,b,z", *NUMBERS), {}, "no column 'y', the target. The columns are 'a', 'b', 'z'"),
            (("a,a,y", *NUMBERS), {}, "two columns are called 'a'"),
            (("a,,y", *NUMBERS), {}, "column 2 of 3 has no name"),
            (("a;y", "1,5;3", "2,5;4"), {"separator": ";"}, "line 2, .*'1,5' has a comma .*say decimal=','"),
            (("a;y", "1;3", "2,5;4"), {"separator": ";"}, "line 3, .*'2,5' is not a number; .*say decimal=','"),
            (("a;y", "1;3,5", "2;4"), {"separator": ";"}, "line 2, column 'y': '3,5' .*say decimal=','"),
            (("a;y", "1,5;3", "2.5;4"), {"separator": ";", "decimal": ","}, "line 3: '2.5' has a decimal point"),
            (("a,b,y", *NUMBERS), {"decimal": ";"}, "decimal must be one of .*, got ';'"),
            (("a,b,y", "1,2,3", "4,5", "7,8,9"), {}, "line 3 has 2 cells, and the header 3"),
            (("a,b,y", *NUMBERS, "", "1,2,3,4"), {}, "line 6 has 4 cells, and the header 3"),
            (("a,b,y", "1,2,3", "4,oops,6"), {}, "line 3, column 'b': 'oops' is not a number; .*drop=\\['b'\\]"),
            (("a,b,y", "1,2,3", "4,1_000,6"), {}, "line 3, column 'b': '1_000' is not a number"),
            (('"a\nb",b,y', "1,2,3", "4,x,6"), {}, "line 4, column 'b': 'x' is not a number"),
            (("a,b,y", "1,2,3", "4,5,up"), {}, "line 3, column 'y': 'up' is not a number; task='classification'"),
            (("a,b,y", "1,2,3", "4,-inf,6"), {}, "line 3, column 'b': '-inf' is not a finite number"),
            (("a,b,y", "1,2,3", "4,1e200,6"), {}, "line 3, column 'b': '1e200' is too large"),
            (("a,b,y", "1,2,3", "4,2,5", "5,2,1"), {}, "column 'b' has the same value in every row.*drop=\\['b'\\]"),
            (("a,b,y", "1,k,3", "4,k,5", "5,k,1"), {}, "column 'b' has the same value in every row"),
            (("a,b,y", "1,,3", "4,,5"), {"missing": "past mean"}, "column 'b' has no value at all"),
            (("a,b,y", "1,,3", "4,,5"), {"missing": "skip"}, "2 rows of data, of which 0 can be used"),
            (("a,b,y", "1,2,3", "4,5,3", "7,8,3"), {}, "the target 'y' is the same in every row"),
            (("a,b,y", *NUMBERS), {"task": "classification"}, "line 4, .*'10' is a third class beside '3' and '6'"),
            (("a,b,y", "1,2,k", "3,4,k"), {"task": "classification"}, "the target 'y' is the same in every row"),
            (("a,b,y", '1,"2,3', "4,5,6"), {}, "line 2 to 3: unexpected end of data"),
            (("a,b,y", '1,"2"x,3'), {}, "line 2: .*expected after"),
            (("a;b;y", "1;2;3"), {}, "one column only, 'a;b;y'; if cells are separated by ';', say separator=';'"),
            (("y", "1", "2"), {}, "no column left to learn from beside the target 'y'"),
            (("a,b,y", *NUMBERS), {"drop": ["c"]}, "no column 'c', given as drop="),
            (("a,b,y", *NUMBERS), {"columns": ["y"]}, "'y' is the target, so it cannot be given as columns="),
            (("a,b,y", *NUMBERS), {"drop": "b"}, "drop must be a list of column names, got 'b'"),
            (("a,b,y", *NUMBERS), {"task": "ranking"}, "task must be one of .*, got 'ranking'"),
            (("a,b,y", *NUMBERS), {"missing": "guess"}, "missing must be one of .*, got 'guess'"),
            (("a,b,y", *NUMBERS), {"task": "quantile", "level": 2.0}, "level must lie between 0 and 1, got 2.0"),
            (("a,b,y", *NUMBERS), {"most_features": 0}, "most_features must be a whole number of at least 1, got 0"),
            (("a,b,y", *NUMBERS), {"separator": "ab"}, "separator must be a single character, got 'ab'"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place(self, written, lines, options, complaint):
        with pytest.raises(ValueError, match=complaint):
            CsvStream(written(*lines), "y", **options)

    def test_the_file_is_named(self, written):
        for lines in ((), ("a,y", "1"), ("a,y", "1,2", "x,1"), ("a,y", "1,2", ",1")):
            with pytest.raises(ValueError, match="broken.csv"):
                CsvStream(written(*lines, name="broken.csv"), "y")

    def test_bytes_that_are_not_utf8_are_named(self, written):
        path = written("town,y", "Bern,1", "Zürich,2", encoding="latin-1")
        with pytest.raises(ValueError, match=r"line 3, byte 2 of the line is 0xfc, which is not UTF-8"):
            CsvStream(path, "y")

    def test_two_hundred_columns_are_refused_and_can_be_allowed(self, written):
        names = ",".join(f"c{n}" for n in range(199))
        rows = [",".join(str(n * k) for n in range(1, 201)) for k in range(1, 4)]
        path = written(f"{names},y", *rows)
        with pytest.raises(ValueError, match="199 features or more, and at most 100 are allowed.*most_features="):
            CsvStream(path, "y")
        assert CsvStream(path, "y", scale=False, most_features=199).dim == 200
        assert CsvStream(path, "y", scale=False, columns=["c7"]).dim == 2

    def test_words_that_make_too_many_features_are_refused(self, written):
        path = written("w,a,y", *(f"word {n},{n},{n}" for n in range(20)))
        with pytest.raises(ValueError, match="21 features or more .each value of 'w' is a feature of its own"):
            CsvStream(path, "y", most_features=20)

    def test_a_column_with_a_new_word_in_every_row_is_refused(self, written):
        path = written("date,y", *(f"day {n},{n}" for n in range(60)))
        with pytest.raises(ValueError, match=r"line 52, column 'date': 'day 50' is the 51st value.*drop=\['date'\]"):
            CsvStream(path, "y")

    def test_files_that_are_not_there_and_folders_are_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file .*nothing.csv"):
            CsvStream(tmp_path / "nothing.csv", "y")
        with pytest.raises(ValueError, match="is a folder"):
            CsvStream(tmp_path, "y")

    @pytest.mark.parametrize("name", ["gz", "bz2", "xz"])
    @pytest.mark.parametrize("damage", ["not packed", "cut off"])
    def test_damaged_archives_are_refused(self, tmp_path, name, damage):
        content = b"a,y\n1,2\n" + b"3,4\n" * 5000
        pack = {"gz": gzip, "bz2": bz2, "xz": lzma}[name].compress
        path = tmp_path / f"data.csv.{name}"
        path.write_bytes(content if damage == "not packed" else pack(content)[:-15])
        with pytest.raises(ValueError, match="cannot be read to its end"):
            CsvStream(path, "y")

    def test_rounds_beyond_the_end_are_refused(self, written):
        stream = CsvStream(written("a,b,y", *NUMBERS), "y", scale=False)
        with pytest.raises(ValueError, match="0 <= start <= stop <= 3, got start=0 and stop=4"):
            stream.data(0, 4)


@pytest.mark.skipif(not ELECTRICITY.exists(), reason=f"{ELECTRICITY.name} is not in ../shared/data")
def test_the_electricity_market_is_played_and_learned():
    stream = CsvStream(ELECTRICITY, "class", "classification")
    assert (stream.rounds, stream.dim, stream.classes) == (45_312, 7, ("0", "1"))
    trace = play(Single(ScaleFreeOGD(1.0), dim=7, domain=Ball(10.0)), stream, 3000, record="decisions", backend="numpy")
    features, labels = stream.data(0, 3000)
    right = np.sign(np.sum(features * trace.decisions, axis=-1)) == labels
    assert right.mean() > max(np.mean(labels == 1), np.mean(labels == -1)) + 0.05


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "long.csv"
    rows = 50_000  # as text in Python's lists they would take 15 MB
    with path.open("w") as file:
        file.write("a,b,c,y\n0.5,other,-1,3\n")
        file.writelines(f"0.125,word,{number},17\n" for number in range(1, rows))
    tracemalloc.start()
    try:
        stream = CsvStream(path, "y")
        for start in range(0, stream.rounds - 1000, 1000):
            stream.data(start, start + 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.rounds == rows - 10
    assert peak < 8e6


def test_lines_of_nothing_but_spaces_are_left_out(tmp_path):
    plain, spaced = tmp_path / "plain.csv", tmp_path / "spaced.csv"
    rows = [f"{i},{i % 7}" for i in range(40)]
    plain.write_text("\n".join(["a,b", *rows]))
    spaced.write_text("\n  \n".join(["a,b", *rows]))
    for one, other in zip(*(CsvStream(path, "b").data(0, 30) for path in (plain, spaced)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x" * 300 + ".csv", None, "cannot be read: File name too long"),
        ("mac.csv", b"a,b\r1,2\r3,4\r", "carriage return"),
        ("thin.csv", b"a,b\n1,2\n3\n", "line 3 has 1 cell, and the header 2"),
    ],
    ids=["long-name", "old-line-ends", "one-cell"],
)
def test_odd_files_are_refused_in_words(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        CsvStream(tmp_path / name, "b")
