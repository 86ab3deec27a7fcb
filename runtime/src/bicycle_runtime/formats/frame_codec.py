"""Codecs that decode batches to frames, where their type of records allows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

from bicycle_runtime.frames.frame import Frame

DecodeBatch = Callable[[list[bytes]], Frame]


class FrameCodec(ABC):
    """A ``BatchCodec`` if there is a decoder for its type of records."""

    @abstractmethod
    def _find_decoder(self) -> DecodeBatch | None:
        """Return the decoder to frames, or None; ``ImportError`` means the same."""

    @cached_property
    def _decode_batch(self) -> DecodeBatch | None:
        try:
            return self._find_decoder()
        except ImportError:
            return None

    @property
    def gives_fields(self) -> bool:
        """True if fields of values are read without creating records."""
        return self._decode_batch is not None

    def decode_batch(self, several: list[bytes], /) -> Frame:
        """Return the values as a frame; raise an error if they must be decoded singly."""
        assert self._decode_batch is not None
        return self._decode_batch(several)
