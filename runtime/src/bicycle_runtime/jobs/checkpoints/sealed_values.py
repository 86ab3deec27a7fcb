"""Entries of sealed state as JSON data, with or without the classes of the plugin.

This process loads no pickle. When a plugin is named, a child process loads opaque values and sends
plain data home: the plugin's code never runs in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bicycle_runtime.base.children import NoAnswerError, ask_child
from bicycle_runtime.jobs.checkpoints.sealed_states import LocatedEntry
from bicycle_runtime.jobs.errors import STATE_UNLOADABLE
from bicycle_runtime.records.opaque import Opaque
from bicycle_runtime.records.readable import readable

_MODULE = "bicycle_runtime.jobs.checkpoints.sealed_values_child"
_TIMEOUT_S = 60


class ValueReader:
    """Makes rows of entries.

    Args:
        plugin: The plugin whose classes may be loaded, in a child process, or None.
    """

    def __init__(self, plugin: str | None = None) -> None:
        self._plugin = plugin

    def rows(self, entries: Sequence[LocatedEntry]) -> list[dict[str, Any]]:
        """Return entries as JSON data.

        Raises:
            STATE_UNLOADABLE: the child process returned nothing.
        """
        values = [located.entry.value() for located in entries]
        parts = [
            (p.entry.key, p.entry.part, value) for p, value in zip(entries, values, strict=True)
        ]
        loaded = self._load(parts)

        def show(value: Opaque) -> Any:
            return loaded[value.data]

        shown = [tuple(readable(item, show if loaded else None) for item in each) for each in parts]
        return [
            {
                "operator": located.operator,
                "state": located.entry.state,
                "kind": located.entry.kind,
                "key_group": located.key_group,
                "task": located.task,
                "key": key,
                "part": part,
                "value": value,
                "since_ms": located.entry.since_ms,
                "bytes": located.entry.size,
            }
            for located, (key, part, value) in zip(entries, shown, strict=True)
        ]

    def _load(self, parts: Sequence[Any]) -> dict[bytes, Any]:
        """Return JSON data for all opaque values; nothing without a plugin."""
        if self._plugin is None:
            return {}
        found: dict[bytes, Opaque] = {}

        def take_note(value: Opaque) -> None:
            found[value.data] = value

        readable(list(parts), take_note)
        if not found:
            return {}
        requests = [(value.type_name, value.data) for value in found.values()]
        return dict(zip(found, self._ask(self._plugin, requests), strict=True))

    def _ask(self, plugin: str, requests: list[tuple[str, bytes]]) -> list[Any]:
        given = msgspec.msgpack.encode(requests)
        try:
            found = ask_child(_MODULE, question={}, blobs=[given], timeout_s=_TIMEOUT_S)
        except NoAnswerError as error:
            raise STATE_UNLOADABLE(plugin=plugin, detail=str(error)) from None
        answers: list[Any] = found["values"]
        return answers
