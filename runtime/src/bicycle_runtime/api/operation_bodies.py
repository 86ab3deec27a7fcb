"""Bodies of requests for operations, derived from the declared options."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Annotated, Any

import msgspec

from bicycle_runtime.jobs.operations.operation import NoOptions, OperationKind
from bicycle_sdk.options import OptionInfo


def body_of(kind: OperationKind) -> type[msgspec.Struct]:
    """Return the shape of the body of a request for an operation.

    It has one field per option, or the declared shape of nested data. The schema shows the bounds
    of options; ``OperationKind.parse`` checks them.
    """
    if not dataclasses.is_dataclass(kind.options):
        shape: type[msgspec.Struct] = kind.options
        return shape
    return _shape(kind.options, tuple(kind.option_infos))


@cache
def _shape(options: type[Any], infos: tuple[OptionInfo, ...]) -> type[msgspec.Struct]:
    hints = typing.get_type_hints(options)
    fields = [(info.name, _type(info, hints[info.name]), *_default(info)) for info in infos]
    return msgspec.defstruct(
        options.__name__, fields, frozen=True, kw_only=True, forbid_unknown_fields=True,
        namespace={"__doc__": "Nothing." if options is NoOptions else options.__doc__},
    )  # fmt: skip


def _type(info: OptionInfo, hint: Any) -> Any:
    bounds = {"minimum": info.low, "maximum": info.high}
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    is_number = "number" in info.type_name and not info.is_map
    schema = known if is_number else {}
    return Annotated[hint, msgspec.Meta(description=info.doc, extra_json_schema=schema)]


def _default(info: OptionInfo) -> tuple[Any, ...]:
    return () if info.is_required else (info.default,)
