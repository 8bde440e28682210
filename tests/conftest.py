"""Settings for all tests."""

from hypothesis import settings

# The same examples every time, so that a failure is the change's and not the dice's; and no limit on an example's
# time, which says more about the machine than about the code. `--hypothesis-profile=dice` looks for new examples.
settings.register_profile("samuel", derandomize=True, deadline=None)
settings.register_profile("dice", deadline=None)
settings.load_profile("samuel")
