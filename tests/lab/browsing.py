"""What a reader does with a page, and what is asked of every page."""

import json

LONG = 30


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


def assert_no_complaints_and_no_requests(browser, address):
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert address in asked  # the log does record
    assert [url for url in asked if url != address and not url.startswith(("data:", "blob:"))] == []


def entry(browser, plot, line):
    """The entry of a line in the key of a figure."""
    from selenium.webdriver.common.by import By

    found = browser.find_element(By.CSS_SELECTOR, f"#{plot}-key [data-entry='{line}']")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    return found


def point_at(browser, element):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).move_to_element(element).perform()


def widths(browser):
    """How wide the window is, how wide the page, and where the figures end."""
    return browser.execute_script(
        """const root = document.documentElement;
        const figures = [...document.querySelectorAll(".plot svg")];
        return [root.clientWidth, root.scrollWidth, Math.max(...figures.map((e) => e.getBoundingClientRect().right))]"""
    )


def colours(browser):
    """Of the text in a figure, of the text of the page, and of the page."""
    return browser.execute_script(
        """const text = document.querySelector(".plot .xtick text");
        return [getComputedStyle(text).fill, getComputedStyle(document.body).color,
                getComputedStyle(document.body).backgroundColor]"""
    )


def drawn(browser):
    """What the page shows of each figure."""
    return browser.execute_script(
        """return [...document.querySelectorAll(".plot")].map((plot) => ({
            name: plot.id,
            role: plot.getAttribute("role"),
            alt: plot.getAttribute("aria-label"),
            caption: plot.parentElement.querySelector("figcaption").innerText,
            lines: plot.querySelectorAll("svg .scatterlayer .trace path.js-line").length,
            heat: plot.querySelectorAll("svg .heatmaplayer image").length,
            wanted: plot.data.filter((trace) => trace.visible !== false).length,
        }))"""
    )
