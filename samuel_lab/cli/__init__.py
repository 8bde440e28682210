"""The `samuel` command.

shared       the application, its options and exit codes
play         samuel play: online learners on streams
run          samuel demo, run and resume: train networks
show         samuel list, report, compare and watch
"""

from samuel_lab.cli import play, run, show  # noqa: F401  each adds its commands
from samuel_lab.cli.shared import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
