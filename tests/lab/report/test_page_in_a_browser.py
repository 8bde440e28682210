"""The report as a reader meets it: opened in a real browser, from a file, with no network."""

import pytest

from samuel_lab.report import page
from tests.lab.browsing import (
    assert_no_complaints_and_no_requests,
    click_in_the_legend,
    colours,
    drawn,
    visit,
    wait,
    widths,
)

ACCURACY = "digits-0-accuracy"


@pytest.fixture(scope="module")
def address(shifted, searched, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    page.write([shifted, searched], path)
    return path.as_uri()


def visible(browser, plot):
    return browser.execute_script(f"return {count(plot)}")


def count(plot):
    return f"document.querySelectorAll('#{plot} .scatterlayer .trace path.js-line').length"


def test_it_loads_quietly_and_draws_every_figure(browser, address, shifted, searched):
    visit(browser, address)
    assert_no_complaints_and_no_requests(browser, address)
    found = drawn(browser)
    sections = [page.section(study, place) for place, study in enumerate(page.studies([shifted, searched]))]
    assert [plot["name"] for plot in found] == [drawing.name for part in sections for drawing in part.drawings]
    for plot in found:
        assert plot["lines"] + plot["heat"] == plot["wanted"] > 0, plot["name"]
        assert plot["role"] == "img"
        assert min(len(plot["alt"]), len(plot["caption"])) > 40


def test_what_is_toggled_disappears_with_its_band(browser, address):
    visit(browser, address)
    assert visible(browser, ACCURACY) == 26  # 13 methods and their bands
    click_in_the_legend(browser, ACCURACY)
    shown = count(ACCURACY)
    wait(browser, f"return {shown} === 24")
    gone = "data.filter((trace) => trace.visible === 'legendonly').map((trace) => trace.meta.line)"
    assert browser.execute_script(f"return document.getElementById('{ACCURACY}').{gone}") == ["samuel", "samuel"]
    # A box of the page does the same for a family, in all figures of its section and in no other.
    adam = "document.querySelector('#digits-0 input[data-family=Adam]')"
    browser.execute_script(f"{adam}.click()")
    wait(browser, f"return {shown} === 16")
    wait(browser, f"return {count('digits-0-rates')} === 9")
    browser.execute_script(f"{adam}.click()")
    wait(browser, f"return {shown} === 24")
    before = visible(browser, "digits-offline-1-search")
    browser.execute_script("document.querySelector('#digits-offline-1 input[data-family=search]').click()")
    wait(browser, f"return {count('digits-offline-1-search')} === {before - 8}")
    assert visible(browser, ACCURACY) == 24


def test_it_fits_a_phone_in_the_dark(browser, address):
    visit(browser, address)
    text, ink, paper = colours(browser)
    assert text == ink
    visit(browser, address, width=390, dark=True)
    room, page_width, figures = widths(browser)
    assert page_width <= room <= 390
    assert figures <= room
    dark_text, dark_ink, dark_paper = colours(browser)
    assert dark_text == dark_ink
    assert (dark_ink, dark_paper) != (ink, paper)
    # No legend is cut off: it would have a bar to scroll with.
    bars = "return [...document.querySelectorAll('.plot .scrollbar')].map((bar) => Number(bar.getAttribute('height')))"
    assert set(browser.execute_script(bars)) == {0}
