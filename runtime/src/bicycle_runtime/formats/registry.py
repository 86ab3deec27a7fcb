"""Formats by name: built-in ones, then extensions, each imported on first use.

An extension that cannot be loaded, or that claims a name twice, stops no other: it is told in the
error of a name that is not found.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from bicycle_runtime.base.extensions import Extension, checked_words, hooks_of, installed_extensions
from bicycle_runtime.formats.contract import Codec, FormatHooks
from bicycle_runtime.formats.errors import FORMAT_LIBRARY_MISSING, FORMAT_UNKNOWN, FORMAT_UNUSABLE

_ROOM = "bicycle_runtime.formats"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
OWN_FORMATS: Mapping[str, str] = {
    "json": f"{_ROOM}.plain:JsonCodec",
    "msgpack": f"{_ROOM}.plain:MsgpackCodec",
    "string": f"{_ROOM}.plain:TextCodec",
    "bytes": f"{_ROOM}.plain:BytesCodec",
    "csv": f"{_ROOM}.csv_values:CsvCodec",
    "avro": f"{_ROOM}.avro:AvroCodec",
    "protobuf": f"{_ROOM}.protobuf:ProtobufCodec",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRegistry:
    """Known formats by name as ``"module:factory"``, and the refused extensions."""

    locations: Mapping[str, str] = field(default_factory=lambda: dict(OWN_FORMATS))
    refusals: tuple[str, ...] = ()

    def codec(
        self, name: str, record_type: Any = None, options: Mapping[str, Any] = _NOTHING
    ) -> Codec:
        """Return the codec of a format for one type of values.

        Args:
            name: Of the format.
            record_type: Declared type of the values; None for what the format gives by itself.
            options: Of the format.

        Raises:
            FORMAT_UNKNOWN: there is none of that name.
            FORMAT_UNUSABLE: an option or the type does not fit.
            FORMAT_LIBRARY_MISSING: what it needs is not installed.
        """
        if name not in self.locations:
            raise self._unknown(name)
        module, _, attribute = self.locations[name].partition(":")
        try:
            factory = getattr(importlib.import_module(module), attribute)
            codec: Codec = factory(record_type, options)
        except ImportError as error:
            raise FORMAT_LIBRARY_MISSING(name=name, reason=str(error)) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise FORMAT_UNUSABLE(name=name, problem=str(error)) from error
        return codec

    def _unknown(self, name: str) -> Exception:
        known = sorted(self.locations)
        close = difflib.get_close_matches(name, known, n=1)
        return FORMAT_UNKNOWN(
            name=name,
            known_text=", ".join(known),
            refusal_text="".join(f"; refused: {reason}" for reason in self.refusals),
            hint=f"write {close[0]!r}" if close else "install the extension that provides it",
        )


def find_formats(extensions: Iterable[Extension]) -> FormatRegistry:
    """Return our formats and the formats of extensions."""
    locations, refusals = dict(OWN_FORMATS), []
    for extension in sorted(extensions, key=lambda each: each.name):
        try:
            hook = hooks_of(extension, FormatHooks).hook
            offered = checked_words(hook.bicycle_formats())
        except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything.
            refusals.append(f"{extension.name}: {type(error).__name__}: {error}")
            continue
        for word, location in sorted(offered.items()):
            if locations.setdefault(word, location) != location:
                owner = locations[word]
                refusals.append(f"{extension.name}: the name {word!r} is already used by {owner}")
    return FormatRegistry(locations=locations, refusals=tuple(refusals))


@cache
def default_formats() -> FormatRegistry:
    """Return the formats of this installation; entry points are read once per process."""
    return find_formats(installed_extensions())


def make_codec(name: str, record_type: Any = None, options: Mapping[str, Any] = _NOTHING) -> Codec:
    """Return a codec of this installation; parameters as of ``FormatRegistry.codec``.

    Extensions are asked only for names that are not ours.
    """
    registry = FormatRegistry() if name in OWN_FORMATS else default_formats()
    return registry.codec(name, record_type, options)
