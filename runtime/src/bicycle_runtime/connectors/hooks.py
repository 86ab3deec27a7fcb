"""The hooks of extensions: maps from names to classes, which are not imported.

An extension is a module (entry-point group ``bicycle.extensions``) that implements some of the
hooks, for connectors or for the runtime itself::

    @connector_hook
    def bicycle_sources() -> dict[str, str]:
        return {"tide": "tide_tables.connector:TideSource"}
"""

from __future__ import annotations

import pluggy

from bicycle_runtime.base.extensions import EXTENSION_ENTRY_POINT_GROUP, HOOK_PROJECT
from bicycle_runtime.formats.contract import format_hook

__all__ = [
    "EXTENSION_ENTRY_POINT_GROUP",
    "HOOK_PROJECT",
    "ConnectorHooks",
    "RuntimeHooks",
    "connector_hook",
    "format_hook",
    "runtime_hook",
]

connector_hook = pluggy.HookimplMarker(HOOK_PROJECT)
runtime_hook = pluggy.HookimplMarker(HOOK_PROJECT)
_hook_spec = pluggy.HookspecMarker(HOOK_PROJECT)


class ConnectorHooks:
    """The hooks that an extension may implement.

    Called once, when the registry is first used.
    """

    @_hook_spec
    def bicycle_sources(self) -> dict[str, str]:
        """Return connector word -> ``"module:Class"`` of a ``contract.Source``."""
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_sinks(self) -> dict[str, str]:
        """Return connector word -> ``"module:Class"`` of a ``contract.Sink``."""
        raise AssertionError("a hook specification is never called")


class RuntimeHooks:
    """The hooks with which an extension becomes part of the runtime.

    Called like the others.
    """

    @_hook_spec
    def bicycle_state_backends(self) -> dict[str, str]:
        """Return state backend -> ``"module:factory"`` of a ``StateSpace``.

        The factory is called as ``factory(settings, job_url=…)``, on workers.
        """
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_metric_reporters(self) -> dict[str, str]:
        """Return name -> ``"module:Class"`` of a ``MetricReporter``."""
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_job_listeners(self) -> dict[str, str]:
        """Return name -> ``"module:Class"`` of a ``jobs.running.listeners.JobListener``."""
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_routes(self) -> dict[str, str]:
        """Return name -> ``"module:ROUTES"``, a sequence of ``api.route.Route``."""
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_pages(self) -> dict[str, str]:
        """Return name -> ``"module:PAGES"``, a sequence of ``webui.rendering.SitePage``."""
        raise AssertionError("a hook specification is never called")

    @_hook_spec
    def bicycle_commands(self) -> dict[str, dict[str, str]]:
        """Return command -> ``location``, ``summary`` and ``section``.

        See ``cli.command_offers.CommandOffer``. The function needs no marker, so that a module with
        commands alone imports nothing.
        """
        raise AssertionError("a hook specification is never called")
