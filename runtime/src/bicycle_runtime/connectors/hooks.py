"""The hooks by which an extension offers connectors: words to classes, named, not imported.

An extension is a module (entry-point group ``bicycle.extensions``) that implements one or both
hooks::

    @connector_hook
    def bicycle_sources() -> dict[str, str]:
        return {"tide": "tide_tables.connector:TideSource"}
"""

from __future__ import annotations

import pluggy

__all__ = ["EXTENSION_ENTRY_POINT_GROUP", "HOOK_PROJECT", "ConnectorHooks", "connector_hook"]

HOOK_PROJECT = "bicycle"
EXTENSION_ENTRY_POINT_GROUP = "bicycle.extensions"

connector_hook = pluggy.HookimplMarker(HOOK_PROJECT)
_hook_spec = pluggy.HookspecMarker(HOOK_PROJECT)


class ConnectorHooks:
    """What an extension may implement. Called once, when the registry is first used."""

    @_hook_spec
    def bicycle_sources(self) -> dict[str, str]:
        """Return connector word -> ``"module:Class"`` of a ``contract.Source``."""
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_sinks(self) -> dict[str, str]:
        """Return connector word -> ``"module:Class"`` of a ``contract.Sink``."""
        raise AssertionError("a hook specification is never called")
