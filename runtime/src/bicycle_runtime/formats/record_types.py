"""Record types beyond msgspec's: Pydantic models, and classes without decoders.

msgspec decodes data and objects with declared fields. Models of Pydantic (version 2) decode
themselves: a whole document at once, or the part of a document that a field of another type holds.
Pydantic is not imported here. A class that msgspec and Pydantic cannot fill is refused, since every
record of it would be bad.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import inspect as declared_types

from bicycle_runtime.frames.record_fields import is_model

# The digits of numbers stay as they are.
_UNTYPED = msgspec.json.Decoder(float_hook=Decimal)
_NUMBERS = msgspec.json.Encoder(decimal_format="number")


def encode_model(value: Any, mode: str = "json") -> Any:
    """Return a Pydantic model as plain data: the encoder's hook for unknown types.

    Args:
        value: The model.
        mode: ``json``, or ``python``, which keeps times and the like.
    """
    if is_model(type(value)) and hasattr(value, "model_dump"):
        return value.model_dump(mode=mode, by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


class ModelDecoder:
    """A decoder for documents that are a model each.

    Args:
        model: The class.
        prepare: Converts numbers in ms to times, which a model would take for seconds; or None.
    """

    def __init__(self, model: Any, prepare: Callable[[Any], Any] | None) -> None:
        self._decode = _shorten_errors(model.__pydantic_validator__.validate_json)
        self._prepare = prepare

    def decode(self, data: bytes) -> Any:
        """Return the model of one document."""
        if self._prepare is not None:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                plain = _UNTYPED.decode(data)
                found = self._prepare(plain)
                data = data if found == plain else _NUMBERS.encode(found)
        return self._decode(data)

    def decode_lines(self, data: bytes) -> list[Any]:
        """Return the documents of lines, without blank lines."""
        return [self.decode(line) for line in data.split(b"\n") if line.strip()]


def decode_part(kind: Any, value: Any) -> Any:
    """Return plain data as a model; the hook of decoders for types they do not know."""
    if is_model(kind):
        return _shorten_errors(kind.__pydantic_validator__.validate_python)(value)
    raise TypeError(f"values cannot be decoded as {kind!r}")


def _shorten_errors(validate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Shorten Pydantic's errors to one line with field and reason."""

    def validated(data: Any) -> Any:
        try:
            return validate(data)
        except ValueError as error:
            found = getattr(error, "errors", None)
            if found is None:
                raise
            problems = found(include_url=False, include_context=False, include_input=False)
            raise ValueError("; ".join(map(_problem_text, problems))) from error

    return validated


def _problem_text(problem: Any) -> str:
    path = ".".join(map(str, problem["loc"]))
    return f"{path}: {problem['msg']}" if path else str(problem["msg"])


# Types that no data can be decoded as. Only where every record would be bad is a type refused: a
# class in a field with a default, or in a list, may never be met.


def require_fields(record_type: Any) -> None:
    """Refuse a type that no data can be decoded as.

    Raises:
        TypeError: each value of the type needs a class without declared fields.
    """
    if is_model(record_type):
        return
    try:
        info = declared_types.type_info(record_type)
    except (TypeError, NameError):  # The decoder reports the fault.
        return
    found = _undecodable(info, frozenset())
    if found is not None:
        version = " (a model of Pydantic 1)" if hasattr(found, "__fields__") else ""
        raise TypeError(f"data cannot be decoded as {found.__qualname__}{version}")


def _undecodable(info: Any, above: frozenset[Any]) -> Any:
    """Return a class that a type needs in each value and that has no fields, or None."""
    match info:
        case declared_types.CustomType():
            return None if info.cls is object or is_model(info.cls) else info.cls
        case declared_types.Metadata():
            return _undecodable(info.type, above)
        case declared_types.UnionType():
            found = [_undecodable(each, above) for each in info.types]
            return found[0] if all(each is not None for each in found) else None
        case declared_types.TupleType():
            return _first(info.item_types, above)
        case _ if hasattr(info, "fields") and info.cls not in above:
            needed = [field.type for field in info.fields if field.required]
            return _first(needed, above | {info.cls})
        case _:
            return None


def _first(infos: Any, above: frozenset[Any]) -> Any:
    found = (_undecodable(each, above) for each in infos)
    return next((each for each in found if each is not None), None)
