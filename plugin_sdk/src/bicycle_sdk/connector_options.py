"""The base of classes that declare the options of a connector, each once.

A class is the builder of its connector: its constructor takes the options as keywords, and
``build_connector`` returns the descriptor. The runtime reads the same class from stored properties;
command lines, URIs, pipelines and docs are derived from it. Connectors of other packages use the
same base::

    class TideSinkOptions(SinkOptions, connector="tide", call="tide_sink"):
        \"\"\"The options of the tide sink: the gauge.\"\"\"

        url: str = option(kw_only=False, doc="Address of the gauge.")
        keep_ms: int = option(default=60_000, low=1, doc="Time for which readings are kept.")


    tide_sink = sink_call(TideSinkOptions, "Return a sink of readings of a gauge.")
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    dataclass_transform,
)

from bicycle_sdk.descriptors import SinkDescriptor, SourceDescriptor
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.former_names import note_former_name
from bicycle_sdk.option_values import OptionValueError, stored
from bicycle_sdk.options import adapt_option, describe, option, shared_options, take

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = [
    "Conflict",
    "ConnectorOptions",
    "ConnectorWord",
    "Located",
    "OutputPath",
    "SinkOptions",
    "SourceOptions",
    "no_address",
    "path_of",
    "sink_call",
    "source_call",
]

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorWord:
    """A connector as its options class names it.

    Args:
        word: The name under which the runtime finds the connector; empty for a base class.
        role: Source or sink.
        extra: The extra of ``bicycle-runtime`` that installs its library; empty if it needs no
            library.
        call: The function of the SDK that creates it, for errors.
    """

    word: str
    role: Literal["source", "sink"]
    extra: str = ""
    call: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """An option that contradicts another one, with a problem and a hint."""

    option: str
    problem: str
    hint: str


def _accept_given(generated: Callable[..., None]) -> Any:
    """Return a constructor that notes the given options, and accepts their aliases."""

    @functools.wraps(generated)
    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        cls = type(self)
        named = _by_name(cls, args, given)
        options = _take_all(cls, cls.from_arguments(named))
        generated(self, **options)
        object.__setattr__(self, "_given", options)

    return __init__


def _by_name(
    cls: type[ConnectorOptions], args: tuple[Any, ...], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by the names of options."""
    call = cls.connector.call
    # The base makes each subclass a dataclass, which mypy does not see here.
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = [field.name for field in fields if not field.kw_only]
    if len(args) > len(names):
        raise TypeError(f"{call}() takes {len(names)} positional arguments, got {len(args)}")
    newer = {alias: info.name for info in describe(cls) for alias in info.aliases}
    found = dict(zip(names, args, strict=False))
    for name, value in given.items():
        option_name = newer.get(name, name)
        if name in newer:
            note_former_name(name, option_name)
        if option_name in found:
            raise TypeError(f"{call}() got multiple values for argument {option_name!r}")
        found[option_name] = value
    return found


def _take_all(cls: type[ConnectorOptions], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options as values of their types, without unset ones."""
    infos = {info.name: info for info in describe(cls)}
    found = {}
    for name, value in given.items():
        info = infos.get(name)
        if info is None:
            found[name] = value  # The generated constructor names an unknown argument.
            continue
        has_none = info.is_required or (info.is_nullable and info.default is not None)
        if value is None and not has_none:
            continue
        try:
            found[name] = take(info, value)
        except OptionValueError as error:
            raise StreamDefinitionError(
                call=cls.connector.call, problem=error.problem, hint=error.hint
            ) from None
    return found


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(option, adapt_option)
)
class ConnectorOptions:
    """The base of all options of connectors: every subclass is a frozen dataclass.

    The constructor accepts the names and the aliases of options. None for an option that does not
    take it means that the option is not given.
    """

    connector: ClassVar[ConnectorWord]
    _role: ClassVar[Literal["source", "sink"]]

    def __init_subclass__(
        cls,
        *,
        connector: str = "",
        extra: str = "",
        call: str = "",
        **more: Any,
    ) -> None:
        super().__init_subclass__(**more)
        if connector or not hasattr(cls, "connector"):
            cls.connector = ConnectorWord(
                word=connector,
                role=cls._role,
                extra=extra,
                call=call or cls.__name__,
            )
        dataclass(frozen=True, kw_only=True)(cls)
        # The generated constructor keeps its signature.
        cls.__init__ = _accept_given(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def from_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return given arguments as options, by name.

        Called before the values are checked. A subclass replaces an argument that sets several
        options, and adds options that follow from others.
        """
        return given

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the options in the address of a URI, which are all but its query.

        Raises:
            ValueError: the address has another form; the message has an example.
        """
        raise ValueError(f"{parts.scheme!r} is not a scheme of {cls.connector.call}")

    def conflicts(self) -> Iterable[Conflict]:
        """Return options that contradict each other; builder, pipelines and runtime ask."""
        return ()

    def word(self) -> str:
        """Return the word of the connector; some options select one of several."""
        return self.connector.word

    def given_options(self) -> dict[str, Any]:
        """Return the options that were given, by name."""
        found: dict[str, Any] = self.__dict__["_given"]
        return dict(found)

    def _properties(self) -> dict[str, Any]:
        """Return the given options as JSON.

        Raises:
            StreamDefinitionError: they contradict each other.
        """
        for found in self.conflicts():
            raise StreamDefinitionError(
                call=self.connector.call, problem=found.problem, hint=found.hint
            )
        infos = {info.name: info for info in describe(type(self))}
        return {
            name: stored(infos[name].hint, value)
            for name, value in self.given_options().items()
            if name in infos
        }


class SinkOptions(ConnectorOptions):
    """The base of the options of sinks."""

    _role = "sink"

    def build_connector(self) -> SinkDescriptor[Any]:
        """Return the sink as a plain value; ``stream.sink_to`` also takes the options."""
        properties = self._properties()
        return SinkDescriptor(connector_type=self.word(), properties=properties)


class SourceOptions(ConnectorOptions, Generic[T_co]):
    """The base of the options of sources; the parameter is the type of the records."""

    _role = "source"

    def output_type(self) -> Any:
        """Return the type of the records; None if it is unknown."""
        return None

    def unbounded_reason(self) -> str:
        """Return why the input never ends, and the option that ends it; empty if it ends.

        ``ORDER BY`` and ``LIMIT`` of SQL need input that ends. The text follows a table's name.
        """
        return "never ends; store its rows first, and sort the stored table"

    def build_connector(self) -> SourceDescriptor[T_co]:
        """Return the source as a plain value; ``env.add_source`` also takes the options."""
        properties = self._properties()
        return SourceDescriptor(
            connector_type=self.word(),
            properties=properties,
            output_type=self.output_type(),
        )


def path_of(parts: SplitResult) -> str:
    """Return the path in the address of a URI.

    Raises:
        ValueError: there is no path, or it begins with a host.
    """
    # Slow on the start path: only URIs need it.
    from urllib.parse import unquote

    path = unquote(parts.path)
    if parts.netloc or not path:
        example = f"write {parts.scheme}:relative/path or {parts.scheme}:///absolute/path"
        raise ValueError(f"the path is {parts.netloc + path!r}; {example}")
    return path


@shared_options
class Located:
    """The path of the files of a source or a sink."""

    path: str | os.PathLike[str] = option(kw_only=False, doc="Location of the files.")

    @classmethod
    def from_address(cls, parts: SplitResult) -> dict[str, Any]:
        """Return the path."""
        return {"path": path_of(parts)}


@shared_options
class OutputPath(Located):
    """The path of the files of a sink."""

    path: str | os.PathLike[str] = adapt_option(
        Located,
        "path",
        kw_only=False,
        note=(
            "A directory; for Parquet and Delta also a URL such as s3://bucket/folder; for DuckDB "
            "a file. It is created if it is missing."
        ),
        words=("out_dir",),
    )


def no_address(parts: SplitResult) -> dict[str, Any]:
    """Return no options, for a URI without an address.

    Raises:
        ValueError: there is an address.
    """
    if parts.netloc or parts.path:
        raise ValueError(f"{parts.netloc + parts.path!r} is not an option; write {parts.scheme}:")
    return {}


def sink_call(options: Callable[P, SinkOptions], doc: str) -> Callable[P, SinkDescriptor[Any]]:
    """Return the function that makes a sink, with the arguments of its options class.

    Args:
        options: The class.
        doc: The first line of the docs of the function.
    """

    def call(*args: P.args, **given: P.kwargs) -> SinkDescriptor[Any]:
        return options(*args, **given).build_connector()

    _name(call, options, doc)
    return call


def source_call(
    options: Callable[P, SourceOptions[T]], doc: str
) -> Callable[P, SourceDescriptor[T]]:
    """Return the function that makes a source; arguments as of ``sink_call``."""

    def call(*args: P.args, **given: P.kwargs) -> SourceDescriptor[T]:
        return options(*args, **given).build_connector()

    _name(call, options, doc)
    return call


def _name(call: Any, options: Any, doc: str) -> None:
    """Set the name, the docs and the signature of a function from an options class."""
    call.__name__ = call.__qualname__ = options.connector.call
    call.__module__, call.__doc__ = options.__module__, doc
    vars(call)["__wrapped__"] = options
