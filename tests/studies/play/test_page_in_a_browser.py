"""The report as a reader meets it: opened in a real browser, from a file, with no network."""

import json
import shutil

import pytest

from samuel.studies.play import page

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LONG = 30


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are needed to open the page, and are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def address(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    page.save(path, page.render(report))
    return path.as_uri()


def wait(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, LONG, poll_frequency=0.05).until(lambda _: browser.execute_script(condition))


def visit(browser, address, width=1200, dark=False):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    for log in ("browser", "performance"):
        browser.get_log(log)  # reading empties it
    browser.get(address)
    wait(browser, "return document.documentElement.dataset.drawn")


def test_it_loads_without_complaints_and_asks_for_nothing(browser, address):
    visit(browser, address)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert address in asked  # the log does record
    assert [url for url in asked if url != address and not url.startswith(("data:", "blob:"))] == []


def test_every_figure_is_drawn(browser, address, report):
    visit(browser, address)
    found = browser.execute_script(
        """return [...document.querySelectorAll(".plot")].map((plot) => ({
            name: plot.id,
            role: plot.getAttribute("role"),
            alt: plot.getAttribute("aria-label"),
            caption: plot.parentElement.querySelector("figcaption").innerText,
            lines: plot.querySelectorAll("svg .scatterlayer .trace path.js-line").length,
            heat: plot.querySelectorAll("svg .heatmaplayer image").length,
            wanted: plot.data.length,
        }))"""
    )
    assert [plot["name"] for plot in found] == [
        drawing.name for contest in report.contests for drawing in page.drawings(contest)
    ]
    for plot in found:
        assert plot["lines"] + plot["heat"] == plot["wanted"] > 0, plot["name"]
        assert plot["role"] == "img"
        assert len(plot["alt"]) > 40
        assert len(plot["caption"]) > 40


def test_a_click_in_the_legend_hides_a_line(browser, address):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    visit(browser, address)
    plot = browser.find_element(By.ID, "two-valleys-loss")
    lines = "return document.querySelectorAll('#two-valleys-loss .scatterlayer .trace path.js-line').length"
    before = browser.execute_script(lines)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(browser).move_to_element(plot.find_element(By.CSS_SELECTOR, ".legendtoggle")).click().perform()
    wait(browser, "return document.getElementById('two-valleys-loss').data[0].visible === 'legendonly'")
    assert browser.execute_script(lines) == before - 1


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_sticks_out_at_the_side(browser, address, width):
    visit(browser, address, width=width)
    room, page_width, *figures = browser.execute_script(
        """const root = document.documentElement;
        const figures = [...document.querySelectorAll(".plot svg")];
        return [root.clientWidth, root.scrollWidth, ...figures.map((e) => e.getBoundingClientRect().right)]"""
    )
    assert page_width <= room <= width
    assert max(figures) <= room


def test_figures_follow_the_page_into_the_dark(browser, address):
    look = """const text = document.querySelector(".plot .xtick text");
        return [getComputedStyle(text).fill, getComputedStyle(document.body).color,
                getComputedStyle(document.body).backgroundColor]"""
    visit(browser, address)
    text, ink, paper = browser.execute_script(look)
    assert text == ink
    visit(browser, address, dark=True)
    dark_text, dark_ink, dark_paper = browser.execute_script(look)
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
