"""`python -m samuel_lab`: the same as the `samuel` command."""

import sys


def main() -> None:
    """Run the command line, or say what to install where it is missing."""
    try:
        from samuel_lab.cli import main as command_line
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit('The samuel command needs typer, which is not installed: pip install "samuel-optim[lab]"')
    command_line()


if __name__ == "__main__":
    main()
