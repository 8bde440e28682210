"""The paper's figures, against what its text says of them."""

import itertools

from samuel_lab.studies import paper
from samuel_lab.trial.methods import GROUPS


def test_table_2_has_thirteen_rows_of_five_metrics():
    assert list(paper.TABLE_2) == ["samuel-full", *GROUPS["baselines"]]
    assert {tuple(row) for row in paper.TABLE_2.values()} == {paper.COLUMNS}


def test_samuel_surpasses_all_baselines_for_every_metric():
    for column, baseline in itertools.product(paper.COLUMNS, GROUPS["baselines"]):
        assert paper.TABLE_2["samuel-full"][column].mean > paper.TABLE_2[baseline][column].mean


def test_accuracy_rises_with_the_window_and_is_higher_before_the_shift_than_after():
    for row in paper.TABLE_2.values():
        means = [row[column].mean for column in paper.COLUMNS]
        assert means[0] < means[1] < means[2] < means[4] < means[3]


def test_a_run_of_samuel_is_a_little_below_the_best_of_the_search_and_far_cheaper():
    for name, found in paper.OFFLINE.items():
        assert 0 < found.search - found.samuel_mean < 0.6
        assert paper.COMPUTE[name].search > 9 * paper.COMPUTE[name].samuel
