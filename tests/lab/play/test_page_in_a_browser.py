"""The report as a reader meets it: opened in a real browser, from a file, with no network."""

import pytest

from samuel_lab.play import page
from tests.lab.browsing import (
    assert_no_complaints_and_no_requests,
    colours,
    drawn,
    entry,
    visit,
    wait,
    widths,
)


@pytest.fixture(scope="module")
def address(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    page.save(path, page.render(report))
    return path.as_uri()


def test_it_loads_without_complaints_and_asks_for_nothing(browser, address):
    visit(browser, address)
    assert_no_complaints_and_no_requests(browser, address)


def test_every_figure_is_drawn(browser, address, report):
    visit(browser, address)
    found = drawn(browser)
    assert [plot["name"] for plot in found] == [
        drawing.name for contest in report.contests for drawing in page.drawings(contest)
    ]
    for plot in found:
        assert plot["lines"] + plot["heat"] == plot["wanted"] > 0, plot["name"]
        assert plot["role"] == "img"
        assert len(plot["alt"]) > 40
        assert len(plot["caption"]) > 40


def test_a_learner_is_hidden_by_its_entry_and_another_drawn_by_its_box(browser, address):
    visit(browser, address)
    lines = "return document.querySelectorAll('#two-valleys-loss .scatterlayer .trace path.js-line').length"
    before = browser.execute_script(lines)
    entry(browser, "two-valleys-loss", "samuel").click()
    wait(browser, f"{lines} === {before - 1}")
    box = "document.querySelector('#two-valleys input:not(:checked)')"
    browser.execute_script(f"{box}.click()")
    wait(browser, f"{lines} === {before}")


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_sticks_out_at_the_side(browser, address, width):
    visit(browser, address, width=width)
    room, page_width, figures = widths(browser)
    assert page_width <= room <= width
    assert figures <= room


def test_figures_follow_the_page_into_the_dark(browser, address):
    visit(browser, address)
    text, ink, paper = colours(browser)
    assert text == ink
    visit(browser, address, dark=True)
    dark_text, dark_ink, dark_paper = colours(browser)
    assert dark_text == dark_ink
    assert (dark_ink, dark_paper) != (ink, paper)


def test_figures_fit_the_paper_and_come_back(browser, address):
    visit(browser, address)
    width = "return document.getElementById('drift-loss')._fullLayout.width"
    before = browser.execute_script(width)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(width) == 660
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    wait(browser, f"return document.getElementById('drift-loss')._fullLayout.width === {before}")
