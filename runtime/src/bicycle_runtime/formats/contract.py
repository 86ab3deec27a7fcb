"""The contract of a format: the codec factory, the codec, the extension hook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import pluggy

from bicycle_runtime.base.extensions import HOOK_PROJECT
from bicycle_sdk.formats import Codec

__all__ = ["BatchCodec", "Codec", "CodecFactory", "FormatHooks", "format_hook", "reads_fields"]

format_hook = pluggy.HookimplMarker(HOOK_PROJECT)
_hook_spec = pluggy.HookspecMarker(HOOK_PROJECT)


@runtime_checkable
class BatchCodec(Codec, Protocol):
    """A codec that decodes many values to a frame.

    ``gives_fields`` is set if it can do so for the declared type of the values.
    """

    gives_fields: bool

    def decode_batch(self, several: list[bytes], /) -> Sequence[Any]:
        """Return the values as a ``Frame``, which creates records on access.

        Called for each batch of a job whose steps read fields. May raise anything, or return a list
        of all values; after an error each value is decoded separately, to find the invalid ones.
        """


def reads_fields(codec: object) -> bool:
    """Return whether a codec decodes values to frames."""
    return isinstance(codec, BatchCodec) and codec.gives_fields


class CodecFactory(Protocol):
    """Makes a codec; a class whose constructor takes these arguments is one."""

    def __call__(self, record_type: Any, options: Mapping[str, Any], /) -> Codec:
        """Return the codec. Called on the driver, before a job starts.

        Args:
            record_type: The declared type of the values; None when there is none.
            options: What the format takes; refuse what it does not.

        Raises:
            ValueError: an option is unknown or wrong, or the type has no form in the format.
            ImportError: a library is missing.
        """


class FormatHooks:
    """The hooks that an extension may implement. Called once, at the first lookup of a format."""

    @_hook_spec
    def bicycle_formats(self) -> dict[str, str]:
        """Return name of a format -> ``"module:factory"`` of a ``CodecFactory``."""
        raise AssertionError("a hook specification is never called")
