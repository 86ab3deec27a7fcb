"""Groups whose help shows summaries whole, and the examples below a command's help."""

from __future__ import annotations

import click

__all__ = ["CommandGroup", "examples"]

_WHOLE = 1_000  # Characters: no summary is cut.


class CommandGroup(click.Group):
    """A group whose help shows the first sentence of each command, whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of this group."""
        names = self.list_commands(ctx)
        found = [(name, self.get_command(ctx, name)) for name in names]
        rows = [
            (name, each.get_short_help_str(_WHOLE).rstrip("."))
            for name, each in found
            if each is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def examples(*lines: str) -> str:
    """Return the text below the help of a command: lines that can be typed as they stand."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
