"""Learners are small and their rounds many kinds of programs: compiling them well takes longer than running them."""

import sys

import pytest

from tests.compiling import quickly


@pytest.fixture(autouse=True)
def compiled_quickly():
    with quickly():
        yield


@pytest.fixture
def hurried_threads():
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
