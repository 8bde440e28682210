"""The report as a reader meets it: opened in a real browser, from a file, with no network."""

import pytest

from samuel_lab.report import page
from tests.lab.browsing import (
    assert_no_complaints_and_no_requests,
    colours,
    drawn,
    entry,
    point_at,
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


def test_a_line_is_hidden_with_its_band_and_others_can_be_chosen(browser, address):
    visit(browser, address)
    assert visible(browser, ACCURACY) == 9  # SAMUEL, the best of three optimizers, their bands, the band of the rest
    entry(browser, ACCURACY, "samuel").click()
    shown = count(ACCURACY)
    wait(browser, f"return {shown} === 7")
    assert entry(browser, ACCURACY, "samuel").get_attribute("aria-pressed") == "false"
    entry(browser, ACCURACY, "samuel").click()
    wait(browser, f"return {shown} === 9")
    # A box of the page draws a line in all wide figures of its section and in no other.
    zoomed, offline = visible(browser, "digits-0-after-0"), visible(browser, "digits-offline-1-accuracy")
    (hidden, *_) = browser.execute_script(
        "return [...document.querySelectorAll('#digits-0 input:not(:checked)')].map((box) => box.dataset.line)"
    )
    box = f"document.querySelector('#digits-0 input[data-line=\"{hidden}\"]')"
    browser.execute_script(f"{box}.click()")
    wait(browser, f"return {shown} === 11")
    wait(browser, f"return {count('digits-0-rates')} === 6")  # four methods, the rest, and the chosen one
    assert entry(browser, ACCURACY, hidden).is_displayed()
    browser.execute_script(f"{box}.click()")
    wait(browser, f"return {shown} === 9")
    assert visible(browser, "digits-0-after-0") == zoomed
    assert visible(browser, "digits-offline-1-accuracy") == offline


def test_a_line_stands_out_when_its_entry_is_pointed_at(browser, address):
    visit(browser, address)
    opacities = f"""return Object.fromEntries([...document.querySelectorAll("#{ACCURACY} .scatterlayer .trace")].map(
        (drawn) => [drawn.__data__[0].trace.meta.line, Number(getComputedStyle(drawn).opacity)]))"""
    assert set(browser.execute_script(opacities).values()) == {1}
    point_at(browser, entry(browser, ACCURACY, "samuel"))
    found = browser.execute_script(opacities)
    assert found.pop("samuel") == 1
    assert max(found.values()) < 0.3
    point_at(browser, browser.find_element("tag name", "h1"))
    assert set(browser.execute_script(opacities).values()) == {1}


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
    # What names the lines takes less room than the lines.
    keys = "return [...document.querySelectorAll('.plot')].map((plot) => [plot.previousElementSibling, plot]"
    sizes = browser.execute_script(keys + ".map((element) => element.getBoundingClientRect().height))")
    assert all(key < 0.45 * plot for key, plot in sizes)
