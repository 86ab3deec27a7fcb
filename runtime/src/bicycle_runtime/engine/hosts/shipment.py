"""The shipment to workers beside a job's image: the plugin's environment, and its versions."""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_runtime.engine.hosts.handshake import PluginSide
from bicycle_runtime.extraction.packing import PackedEnvironment

__all__ = ["Shipment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """What is known of a plugin; all is empty for a job that has none.

    Args:
        environment: The packed environment; None where workers have the plugin installed.
        plugin: Versions that it was built with.
        module: Its module, which a host must be able to import.
    """

    environment: PackedEnvironment | None = None
    plugin: PluginSide | None = None
    module: str = ""
