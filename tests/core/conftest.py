"""Small arrays, and many programs of them: compiling them well takes longer than running them."""

import pytest

from tests.compiling import quickly


@pytest.fixture(autouse=True)
def compiled_quickly():
    with quickly():
        yield
