"""The `samuel` command.

shared       the application, its options and exit codes
play         samuel play: learners that play streams
run          samuel demo, run and resume: networks that train
show         samuel list, report, compare and watch: what runs gave
"""

from samuel_lab.cli import play, run, show  # noqa: F401  each of them adds its commands
from samuel_lab.cli.shared import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
