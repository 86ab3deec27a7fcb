"""The base of all streams: a point in the graph, to which vertices are added.

The classes of streams return each other: any stream makes a keyed one, and a keyed one is a stream.
So they register here by name, and only type checkers see the whole circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from bicycle_sdk.drafts import EdgeDraft, GraphDraft, VertexDraft
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.function_vertices import function_vertex
from bicycle_sdk.graph import OperatorKind, Partitioning
from bicycle_sdk.key_types import declared_key_problem
from bicycle_sdk.record_types import clash, function_types, type_name
from bicycle_sdk.settings import VertexSettings

if TYPE_CHECKING:
    from bicycle_sdk.datastream.data_stream import DataStream

__all__ = ["Stream", "check_same_keys", "joined_streams", "refuse_key_type"]

T = TypeVar("T")


class Stream(VertexSettings, Generic[T]):
    """A vertex, perhaps one of its side outputs, and the next edge's partitioning."""

    # Which vertices the next edge reaches; streams with a key always send by key.
    _default_partitioning: Partitioning | None = None
    _classes: ClassVar[dict[str, type[Any]]] = {}

    def __init_subclass__(cls) -> None:
        """Take note of a class of streams, for ``_make``."""
        super().__init_subclass__()
        Stream._classes.setdefault(cls.__name__, cls)

    def __init__(
        self,
        draft: GraphDraft,
        vertex: VertexDraft,
        *,
        partitioning: Partitioning | None = None,
        output_tag: str | None = None,
    ) -> None:
        super().__init__(vertex)
        self._draft = draft
        self._partitioning = partitioning
        self._output_tag = output_tag

    def _make(self, class_name: str, vertex: VertexDraft, **options: Any) -> Any:
        """Return a stream of the named class that starts at a vertex."""
        return Stream._classes[class_name](self._draft, vertex, **options)

    def _is_keyed(self) -> bool:
        return self._default_partitioning is Partitioning.HASH

    def _record_type(self) -> Any:
        return None if self._output_tag is not None else self._vertex.output_type

    def _then(self, vertex: VertexDraft) -> DataStream[Any]:
        self._draft.add_vertex(vertex)
        self._connect_to(vertex)
        stream: DataStream[Any] = self._make("DataStream", vertex)
        return stream

    def _then_function(self, kind: OperatorKind, function: object) -> DataStream[Any]:
        return self._then(function_vertex(kind, function, input_type=self._record_type()))

    def _side_output(self, tag: str, record_type: Any) -> DataStream[Any]:
        vertex = VertexDraft(
            kind=OperatorKind.SIDE_OUTPUT,
            name=tag,
            details={"tag": tag},
            output_type=record_type,
            follows=self._vertex,
        )
        self._draft.add_vertex(vertex)
        self._draft.add_edge(EdgeDraft(source=self._vertex, target=vertex, output_tag=tag))
        stream: DataStream[Any] = self._make("DataStream", vertex)
        return stream

    def _connect_to(
        self,
        vertex: VertexDraft,
        *,
        partitioning: Partitioning | Literal["as_set"] | None = "as_set",
        input_ordinal: int = 0,
        feedback: bool = False,
    ) -> None:
        if partitioning == "as_set":
            partitioning = self._partitioning or self._default_partitioning
        self._draft.add_edge(
            EdgeDraft(
                source=self._vertex,
                target=vertex,
                partitioning=partitioning,
                input_ordinal=input_ordinal,
                output_tag=self._output_tag,
                feedback=feedback,
            )
        )

    def _with_partitioning(self, partitioning: Partitioning) -> DataStream[T]:
        stream: DataStream[T] = self._make(
            "DataStream", self._vertex, partitioning=partitioning, output_tag=self._output_tag
        )
        return stream

    def _check_same_draft(self, call: str, other: object) -> None:
        if not isinstance(other, Stream):
            raise StreamDefinitionError(
                call=call, problem=f"{other!r} is not a stream", hint=f"pass streams: {call}(a, b)"
            )
        if other._draft is not self._draft:
            raise StreamDefinitionError(
                call=call,
                problem="the streams belong to different environments",
                hint="build both streams from one StreamEnvironment",
            )


def check_same_keys(call: str, *streams: Stream[Any]) -> None:
    """Refuse streams whose records can never meet under one key.

    Raises:
        StreamDefinitionError: a stream has no key, or the keys are of types that never agree.
    """
    for stream in streams:
        if not stream._is_keyed():
            raise StreamDefinitionError(
                call=call,
                problem="only one of the streams has a key",
                hint="call key_by(…) on each of the streams",
            )
    key_types = [function_types(s._vertex.payloads["function"], "get_key").gives for s in streams]
    for other in key_types[1:]:
        if clash(key_types[0], other):
            raise StreamDefinitionError(
                call=call,
                problem=f"keys of {type_name(key_types[0])} never equal keys of {type_name(other)}",
                hint="return the same type from both key_by(…)",
            )


def refuse_key_type(key_by: VertexDraft) -> None:
    """Refuse a key selector whose annotated result cannot be a key.

    Raises:
        StreamDefinitionError: equality of the type is not the equality of encoded keys.
    """
    problem = declared_key_problem(function_types(key_by.payloads["function"], "get_key").gives)
    if problem is not None:
        raise StreamDefinitionError(
            call="key_by",
            problem=f"keys of type {problem.type_name} are not supported: {problem.reason}",
            hint=(
                "return plain values, a tuple of plain values, or a frozen dataclass with the eq "
                "that @dataclass(frozen=True) generates"
            ),
        )


def joined_streams(streams: list[Stream[Any]], vertex: VertexDraft) -> DataStream[Any]:
    """Return the stream after a vertex with these streams as inputs, in order."""
    first = streams[0]
    for stream in streams[1:]:
        first._check_same_draft(str(vertex.details["function_kind"]), stream)
    first._draft.add_vertex(vertex)
    for ordinal, stream in enumerate(streams):
        stream._connect_to(vertex, input_ordinal=ordinal)
    result: DataStream[Any] = first._make("DataStream", vertex)
    return result
