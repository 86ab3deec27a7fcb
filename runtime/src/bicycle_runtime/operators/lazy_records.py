"""Records that are there in another form, and are made only when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

__all__ = ["LazyRecords"]


class LazyRecords(Sequence[Any]):
    """A sequence of records that is made as a whole, once.

    Args:
        count: How many they are.
        make: Makes them.
    """

    def __init__(self, count: int, make: Callable[[], list[Any]]) -> None:
        self._count = count
        self._make = make

    @cached_property
    def records(self) -> list[Any]:
        """The records themselves."""
        return self._make()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.records[index]
