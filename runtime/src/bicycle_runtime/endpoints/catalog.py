"""The connectors of this installation with their options classes, and its formats.

Built-in and third-party connectors come from the same registry. A connector is imported when its
options are requested, not when its name is listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.formats.registry import default_formats

Direction = Literal["source", "sink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorDescription:
    """A connector: its options, and whether records of a source have event times."""

    name: str
    options_class: type[Any]
    about: str
    gives_times: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredOptions:
    """The options of a connector that does not declare any."""


def connector_names(direction: Direction) -> list[str]:
    """Return the names of all sources or sinks, sorted."""
    registry = default_registry()
    return sorted(registry.sources if direction == "source" else registry.sinks)


def has_connector(direction: Direction, name: str) -> bool:
    """Return whether a source or sink has a name, now or in older texts."""
    return default_registry().current_word(name) in connector_names(direction)


@cache
def find_connector(direction: Direction, name: str) -> ConnectorDescription:
    """Import a connector and return its description.

    Raises:
        UNKNOWN_CONNECTOR: the name is unknown, or its class cannot be imported.
    """
    registry = default_registry()
    found: Any = registry.source_class(name) if direction == "source" else registry.sink_class(name)
    options_class: type[Any] = getattr(found, "options_class", UndeclaredOptions)
    return ConnectorDescription(
        name=registry.current_word(name),
        options_class=options_class,
        about=(options_class.__doc__ or "").partition("\n\n")[0],
        gives_times=getattr(found, "gives_times", None),
    )


def format_names() -> list[str]:
    """Return the names of all formats of values, sorted."""
    return sorted(default_formats().locations)
