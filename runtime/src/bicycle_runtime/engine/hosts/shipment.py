"""The shipment to workers besides a job's image: environment and versions."""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_runtime.engine.hosts.handshake import PluginSide
from bicycle_runtime.extraction.packing import PackedEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """The data of a plugin; empty for a job without one.

    Args:
        environment: The packed environment; None where workers have the plugin installed.
        plugin: Versions that it was built with.
        module: Its module, which a host must be able to import.
    """

    environment: PackedEnvironment | None = None
    plugin: PluginSide | None = None
    module: str = ""
