"""Names that a shell completes: plugins, their parameters, files. Read from metadata and texts.

Nothing is imported or run for them, as a person waits with a finger on TAB.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from bicycle_sdk.entry_points import entry_points

_PLUGINS = "bicycle.plugins"


def matching(names: Iterable[str], begin: str) -> list[CompletionItem]:
    """Return the names that begin so, in order."""
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(begin)]


def plugin_names(
    _context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Return the installed plugins."""
    return matching((point.name for point in entry_points(_PLUGINS)), begin)


def parameter_names(
    context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Return ``NAME=`` for each parameter of the plugin or file in the command line."""
    # Slow to import, and needed for this alone.
    from bicycle_runtime.extraction.parameter_names import names_in_file, names_in_module

    # Words that no option took are in ``args`` while the last option has no value yet.
    plugin = context.params.get("plugin") or next(iter(context.args), "")
    path, _, function = plugin.partition(":")
    if path.endswith(".py"):
        names = names_in_file(Path(path).expanduser(), function)
    else:
        points = [point.location for point in entry_points(_PLUGINS) if point.name == plugin]
        names = [name for point in points for name in names_in_module(*point.partition(":")[::2])]
    return matching((f"{name}=" for name in names), begin)


def file_names(
    _context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Return a completion item that makes the shell complete a file name."""
    return [CompletionItem(begin, type="file")]
