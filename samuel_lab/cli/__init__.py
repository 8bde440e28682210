"""The `samuel` command.

shared       the application, its options and exit codes
play         samuel play: learners that play streams
run          samuel demo, run and resume: networks that train
show         samuel list, report, compare and watch: what runs gave
table1       samuel table1: the paper's Table 1 as an experiment
"""

from samuel_lab.cli import play, run, show, table1  # noqa: F401  each of them adds its commands
from samuel_lab.cli.shared import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
