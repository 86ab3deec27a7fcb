"""The keys of rows in state: values that are encoded fast, and equal as in SQL."""

from __future__ import annotations

from bicycle_runtime.expressions.sql import tree
from bicycle_runtime.expressions.sql.types import SqlType
from bicycle_sdk.expressions import Expression


def encoded_key(value: Expression) -> Expression:
    """Return the key that groups rows like a value; it is fast to encode.

    A time is in ms, because state encodes a number ten times as fast. Equal floats have equal texts
    with all of their digits: -0 is 0, and NaN is NaN. Other values are their own keys.
    """
    match tree.type_of(value):
        case "TIMESTAMP":
            return tree.call("epoch_ms", value)
        case "DOUBLE":
            return tree.cast(tree.call("add", value, tree.literal(0.0)), "VARCHAR")
        case _:
            return value


def decoded_key(key: Expression, value: Expression, kind: SqlType) -> Expression:
    """Return the value of a key as a type.

    Args:
        key: The source of the key.
        value: What was encoded.
        kind: The type.
    """
    found = tree.column(key, tree.type_of(encoded_key(value)))
    is_time = tree.type_of(value) == "TIMESTAMP"
    return tree.call("epoch_ms", found) if is_time else tree.cast(found, kind)
