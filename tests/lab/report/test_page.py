import re
from dataclasses import replace

import pytest

from samuel_lab.drawing import packed, plotly
from samuel_lab.report import page
from samuel_lab.report.reading import read
from tests.lab.report.folders import cut, shift_run


def own(html):
    """The page without the library inside it."""
    return html.replace(plotly(), "")


@pytest.fixture(scope="module")
def everything(shifted, searched, varied):
    return page.render([shifted, searched, varied])


def test_every_study_has_a_section(everything):
    assert re.findall(r'<section id="([^"]+)"', everything) == ["digits-0", "digits-offline-1", "stability-2"]
    assert re.findall(r"<h2>([^<]+)</h2>", everything) == ["Digits", "Digits offline", "Stability"]


def test_the_page_names_nothing_outside_itself(everything):
    assert not re.search(r"https?://|//cdn|<link(?! rel=\"icon\" href=\"data:,\")|src=", own(everything))
    assert "default-src 'none'" in everything
    assert len(everything) < 2.5e6


def test_names_on_the_page_are_unique(everything):
    names = re.findall(r'\bid="([^"]+)"', own(everything))
    assert len(names) == len(set(names))


def test_the_page_says_how_to_make_it_again_and_with_what(shifted):
    html = own(page.render([shifted]))
    assert "<pre>samuel run digits --seeds 3\n</pre>" in html
    for fact in ("1440", "ConvNet", "4321", "0.10.0", "128"):
        assert f"<td>{fact}</td>" in html
    assert "Not finished" not in html


def test_facts_about_the_data_are_told(shifted):
    data = {**shifted.plan["data"], "damaged_count": 2, "damaged": ["a.jpg", "b.jpg"]}
    html = own(page.render([replace(shifted, plan={**shifted.plan, "data": data})]))
    assert '<th scope="row">damaged count</th><td>2</td>' in html
    assert '<th scope="row">damaged</th><td>a.jpg, b.jpg</td>' in html


def test_the_best_is_bold(searched):
    html = own(page.render([searched]))
    table = page.summary.results_table(page.studies([searched])[0])
    best = [cell.text for _, cells in table.rows for cell in cells if cell.best]
    assert best
    assert all(f"<strong>{text}</strong>" in html for text in best)


def test_an_unfinished_run_is_marked_as_such(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel", "adam/cosine"], seeds=(0, 1))
    cut(folder, 30, '{"event')
    html = own(page.render([read(folder)]))
    assert "<strong>Not finished.</strong>" in html
    assert "<li>The last line of metrics.jsonl is truncated and ignored.</li>" in html
    assert "<li>The run is not complete: 1 of 4 trials have ended.</li>" in html
    assert "* Some seeds are not complete." in html


def test_a_star_is_explained_where_there_is_one(shifted, tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel", "adam/cosine"], seeds=(0, 1))
    assert "* So far." not in own(page.render([read(folder)]))
    cut(folder, 30)
    assert "* So far." in own(page.render([read(folder)]))


def test_a_run_that_has_measured_nothing_has_a_page(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel"], seeds=(0,))
    cut(folder, 0)
    html = own(page.render([read(folder)]))
    assert f'id="figures">{packed("[]")}</script>' in html
    assert "Not finished" in html


def test_names_are_escaped(shifted):
    html = page.render([replace(shifted, plan={**shifted.plan, "about": "1 < 2 & </script>", "title": "<b>"})])
    assert "1 &lt; 2 &amp; &lt;/script&gt;" in html
    assert "<h1>&lt;b&gt;</h1>" in html
    assert html.count("</script>") == 3


def test_a_page_needs_a_run():
    with pytest.raises(ValueError, match="name at least one run"):
        page.render([])


def test_writing_makes_folders_and_leaves_nothing_else(shifted, tmp_path):
    path = tmp_path / "new" / "report.html"
    page.write([shifted], path)
    assert path.read_text().startswith("<!doctype html>")
    assert list(path.parent.iterdir()) == [path]
