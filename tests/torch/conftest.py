"""Settings for the tests of the PyTorch optimizer."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are so small that threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
