"""The `kipu` command. Nothing is loaded before it is called."""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process and end it with the exit code (docs/reference/cli.md)."""
    from kipu.cli.app import run

    run()
