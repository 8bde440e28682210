"""README and the pages: what is generated is what the files have, links lead somewhere, the first page is short."""

import importlib.util
import re
from pathlib import Path

import pytest

from samuel.core.options import REPLACED

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load(ROOT / "results" / "generate.py")
PAGES = generate.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_generating_the_tables_again_changes_nothing(page):
    text = page.read_text()
    assert generate.generated(text) == text, "run: python results/generate.py"


def test_a_table_that_nobody_makes_is_named():
    with pytest.raises(ValueError, match="there is no table 'nonsense'; choose from headline"):
        generate.generated("<!-- table: nonsense -->\n<!-- end of table -->")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_drawing_the_rays_again_changes_nothing():
    rays = load(ROOT / "docs" / "_rays.py")
    assert rays.drawing() == rays.PICTURE.read_text(), "run: python docs/_rays.py"


def test_the_first_page_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 600
    words = [word for word in text.split("## ")[0].split() if re.search(r"\w", word)]
    assert len(words) <= 300


def test_the_changelog_has_every_option_that_was_removed():
    options = re.findall(r"^\| (.*?) \|", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {name for cell in options for name in re.findall(r"`(\w+)`", cell)} >= set(REPLACED)
