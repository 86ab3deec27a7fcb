"""Sources that make their records: repeated words, and records of the job itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from bicycle_sdk.connector_options import SourceOptions, no_address, source_call
from bicycle_sdk.descriptors import SourceDescriptor
from bicycle_sdk.options import option
from bicycle_sdk.record_types import common_item_type

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["GeneratorSourceOptions", "collection_source", "generator_source"]

T = TypeVar("T")


class GeneratorSourceOptions(SourceOptions[str], connector="generator", call="generator_source"):
    """The options of the generator: rate and count."""

    rate_ms: int = option(
        default=100,
        low=0,
        high=86_400_000,
        doc="Time between two words; 0 generates words as fast as they are read.",
    )
    count: int | None = option(default=None, low=0, doc="Number of words; unbounded if absent.")

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with the rate, which graphs always have."""
        return {"rate_ms": cls.rate_ms, **given}

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return no options."""
        return no_address(parts)

    def unbounded_reason(self) -> str:
        """Return why the input never ends; empty if it ends."""
        return "never ends; set the option count" if self.count is None else ""

    def output_type(self) -> Any:
        """Return the type of words."""
        return str


generator_source = source_call(GeneratorSourceOptions, "Return a source that repeats seven words.")


def collection_source(items: Iterable[T]) -> SourceDescriptor[T]:
    """Return a source of exactly these records, in order."""
    kept = list(items)
    return SourceDescriptor(
        connector_type="collection", payloads={"items": kept}, output_type=common_item_type(kept)
    )
