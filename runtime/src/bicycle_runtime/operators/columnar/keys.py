"""Columns of keys: strings, or ints of 64 bits, that are looked up, ordered and sent as arrays.

They are Arrow's, which keeps strings one behind the other and looks them up without making objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from bicycle_runtime.operators.columnar.arrays import NarrowInts, PackedInts, numpy, unpacked
from bicycle_runtime.operators.columnar.records import FieldRecords
from bicycle_runtime.records.keys import encode_key, key_group

__all__ = [
    "KeyCodes", "PackedKeys", "are_alike", "key_array", "listed", "ordered", "packed_keys",
    "picked", "unpacked_keys",
]  # fmt: skip

PackedKeys = tuple[PackedInts, bytes | None]  # Ints; or lengths in bytes, and UTF-8.


def _arrow() -> Any:
    # A slow import (150 ms): only jobs that fold by field wait for it.
    import pyarrow as pa
    import pyarrow.compute

    return pa


def key_array(records: FieldRecords, field: str) -> Any:
    """Return a field of records as an array of keys; None when one of them cannot be in one.

    That is an int of more than 64 bits, or a string that is no Unicode text.

    Args:
        records: At least one.
        field: Holds strings in all of them, or ints.
    """
    pa, column = _arrow(), records.column(field)
    if isinstance(column[0], int):
        ints = records.numbers(field)
        return None if ints is None else pa.array(ints)
    try:
        return pa.array(column, pa.large_string())
    except UnicodeEncodeError:
        return None


def picked(keys: Any, namespaces: Any) -> Any:
    """Return the keys of an array that stand at some places, as an array."""
    return keys.take(_arrow().array(namespaces))


def listed(keys: Any) -> list[Any]:
    """Return the keys of an array as objects."""
    found: list[Any] = keys.to_numpy(zero_copy_only=False).tolist()
    return found


class KeyCodes:
    """Gives each key that comes a small number; keys are known by it from then on.

    Args:
        group_count: Key groups.
    """

    def __init__(self, group_count: int) -> None:
        self._group_count = group_count
        self.keys: Any = None  # by number
        self.groups = numpy().empty(0, numpy().int64)  # by number

    def __len__(self) -> int:
        return len(self.groups)

    def of(self, parts: Sequence[Any]) -> Any:
        """Return the numbers of the keys of several arrays, in order."""
        pa = _arrow()
        keys = pa.chunked_array(parts)
        if self.keys is None:
            self.keys = parts[0].slice(0, 0)
        # hot path: 50 to 80 ns a key, of 100,000; looking them up in a dict takes 230 to 450.
        found = pa.compute.index_in(keys, value_set=self.keys)
        if not found.null_count:
            return found.to_numpy()
        is_new, codes = found.is_null(), found.fill_null(0).to_numpy().copy()
        new = keys.filter(is_new).combine_chunks().dictionary_encode()
        codes[is_new.to_numpy()] = new.indices.to_numpy() + len(self)
        self._add(new.dictionary)
        return codes

    def _add(self, new: Any) -> None:
        np, count = numpy(), self._group_count
        groups = [key_group(encode_key(key), group_count=count) for key in listed(new)]
        self.groups = np.concatenate((self.groups, np.array(groups, np.int64)))
        self.keys = _arrow().concat_arrays([self.keys, new])


def packed_keys(keys: Any, bounds: Sequence[int]) -> list[PackedKeys]:
    """Return an array of keys as plain data, cut at ``bounds``, which begin with 0."""
    np = numpy()
    if _arrow().types.is_integer(keys.type):
        ints = NarrowInts(keys.to_numpy())
        return [(ints.packed(first, end), None) for first, end in pairwise(bounds)]
    _, offsets, text = keys.buffers()
    ends = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    lengths = NarrowInts(np.diff(ends))
    cuts = ends[list(bounds)].tolist()
    utf8 = memoryview(text) if text is not None else b""
    texts = [bytes(utf8[begin:end]) for begin, end in pairwise(cuts)]
    packed = [lengths.packed(first, end) for first, end in pairwise(bounds)]
    return list(zip(packed, texts, strict=True))


def are_alike(several: Iterable[PackedKeys]) -> bool:
    """Tell whether all are strings, or all are ints."""
    return len({text is None for _, text in several}) == 1


def unpacked_keys(several: Sequence[PackedKeys]) -> Any:
    """Return in one array what ``packed_keys`` made; all of it strings, or all of it ints."""
    pa, np = _arrow(), numpy()
    ints = unpacked(ints for ints, _ in several)
    texts = [text for _, text in several if text is not None]
    if not texts:
        return pa.array(ints)
    ends = np.concatenate(([0], ints.cumsum()))
    buffers = pa.py_buffer(ends), pa.py_buffer(b"".join(texts))
    return pa.LargeStringArray.from_buffers(len(ints), *buffers)


def ordered(keys: Any, groups: Any) -> tuple[Any, Any, Any]:
    """Return the keys without repetition, the group of each, and where among them each row's is.

    Keys stand by key group, and within one in the order in which windows fire.

    Args:
        keys: By row.
        groups: The key group of each row.
    """
    np = numpy()
    coded = keys.dictionary_encode()
    codes, known = coded.indices.to_numpy(), coded.dictionary
    group_of = np.empty(len(known), np.int64)
    group_of[codes] = groups
    order = _arrow().compute.sort_indices(known).to_numpy()
    order = order[group_of[order].argsort(kind="stable")]
    namespaces = np.empty(len(known), np.int64)
    namespaces[order] = np.arange(len(known))
    return picked(known, order), group_of[order], namespaces[codes]
