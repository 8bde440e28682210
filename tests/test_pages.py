"""README and the pages: what is generated is what the files have, links lead somewhere, the first page is short."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from samuel.core.options import REPLACED

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


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
def test_links_lead_to_files_and_headings(page):
    for target, heading in LINK.findall(page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}, heading


def test_drawing_the_picture_again_changes_nothing():
    assert generate.picture() == generate.PICTURE.read_text(), "run: python results/generate.py"


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


def directives():
    """What the reference pages have, by module: the lines that name it and its options."""
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    return [(text.split()[0], text) for text in re.split(r"^::: ", pages, flags=re.MULTILINE)[1:]]


def documented():
    """Every object in the reference, but the hooks, which need what they are for."""
    for name, directive in directives():
        if name.startswith("samuel.torch.hooks"):
            continue
        module = importlib.import_module(name)
        members = re.search(r"members: \[(.*)\]", directive)
        if members:
            yield from (getattr(module, member) for member in members[1].split(", "))
        elif "members: false" not in directive:
            own = [name for name, one in vars(module).items() if getattr(one, "__module__", None) == module.__name__]
            yield from (getattr(module, name) for name in getattr(module, "__all__", [*own, *module.__annotations__]))
        yield module


@pytest.mark.parametrize(
    "package", ["samuel.core", "samuel.jax", "samuel.online", "samuel.online.conformal", "samuel.torch"]
)
def test_every_public_name_is_in_the_reference(package):
    module = importlib.import_module(package)
    found = list(documented())
    missing = [name for name in module.__all__ if not any(getattr(module, name) is one for one in found)]
    assert not missing


@pytest.mark.parametrize(
    "module",
    [
        "samuel.jax.paper",
        "samuel.online.river",
        "samuel.online.sklearn",
        "samuel.torch.hooks.lightning",
        "samuel.torch.hooks.loggers",
        "samuel.torch.hooks.trainer",
    ],
)
def test_every_module_that_users_import_from_is_in_the_reference(module):
    assert module in dict(directives())
