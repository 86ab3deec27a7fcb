"""Operators of a stage plan: the program of one task of one level, built once.

User functions are loaded here, each subtask its own copy, and opened. A program is kept between
epochs, so that connections, models and state stay warm; its state labels limit what it may use of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import cloudpickle

from bicycle_runtime.contract import FieldReader
from bicycle_runtime.operators.functions.async_io import async_io_operator
from bicycle_runtime.operators.functions.contexts import WorkerContext
from bicycle_runtime.operators.functions.declarations import reduced_type
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.functions.operator import Operator, Stateful
from bicycle_runtime.operators.functions.process import ProcessOperator, StatefulOperator
from bicycle_runtime.operators.functions.rate_limit import RateLimitOperator
from bicycle_runtime.operators.functions.reduce import ReduceOperator
from bicycle_runtime.operators.functions.transform import (
    BatchOperator,
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapOperator,
    PartitionOperator,
    PassOperator,
)
from bicycle_runtime.operators.functions.two_inputs import CoProcessOperator
from bicycle_runtime.operators.functions.watermarks import (
    AssignOperator,
    SourceOperator,
    TimeKeeper,
)
from bicycle_runtime.operators.spec import (
    ChainSpec,
    JobImage,
    Link,
    OperatorSpec,
    RouteSpec,
    StateScope,
)
from bicycle_runtime.operators.tasks.asking import ON_COLUMNS, Level, ask_operator
from bicycle_runtime.operators.tasks.chain import Chain
from bicycle_runtime.operators.tasks.record_copies import (
    Copy,
    copied_edges,
    copied_inputs,
    copier,
    is_separating,
    may_change_by,
)
from bicycle_runtime.operators.tasks.routing import (
    DirectRouter,
    FeedbackRouter,
    Router,
    ShuffleBlock,
    ShuffleRouter,
)
from bicycle_runtime.operators.tasks.shared_blobs import SentBlobs
from bicycle_runtime.operators.tasks.sink import SinkOperator
from bicycle_runtime.operators.user_calls.policy import RecordPolicy, user_hook
from bicycle_runtime.operators.user_calls.user_functions import selector_of
from bicycle_runtime.operators.windows.build import window_operator
from bicycle_runtime.operators.windows.combine import CombineOperator
from bicycle_runtime.records.codecs import RecordCodec
from bicycle_runtime.state.settings import StateSettings
from bicycle_runtime.state.stores.backends import tables_for
from bicycle_runtime.state.values.schema_registry import SchemaRegistry
from bicycle_sdk.contexts import TaskInfo
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import OperatorKind
from bicycle_sdk.windows import WindowPlan

# Kinds whose operators need only their function, and kinds without a function.
_FUNCTION_OPERATORS: dict[OperatorKind, Callable[..., Operator]] = {
    OperatorKind.MAP: MapOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.MAP_BATCHES: BatchOperator,
    OperatorKind.KEY_BY: KeyByOperator,
    OperatorKind.ASYNC_IO: async_io_operator,
}
_PLAIN_OPERATORS: dict[OperatorKind, Callable[..., Operator]] = {
    OperatorKind.SOURCE: PassOperator,
    OperatorKind.RATE_LIMIT: RateLimitOperator,
    OperatorKind.UNION: PassOperator,
    OperatorKind.SIDE_OUTPUT: PassOperator,
}


@dataclass(slots=True)
class Program:
    """The program of one task: chains in topological order, codecs, routers, outbox.

    ``sent`` are the records that went along any edge.
    """

    subtask: int
    level: int
    chains: dict[int, Chain] = field(default_factory=dict)
    codecs: dict[int, RecordCodec] = field(default_factory=dict)
    routers: list[tuple[RouteSpec, Router]] = field(default_factory=list)
    outbox: list[ShuffleBlock] = field(default_factory=list)
    sent: SentBlobs = field(default_factory=SentBlobs)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    replayed_letters: list[dict[str, Any]] = field(default_factory=list)

    def operators(self) -> list[Operator]:
        """Return all operator instances."""
        return [operator for chain in self.chains.values() for operator in chain.operators]

    def close(self) -> None:
        """Close all user functions despite failures, and release local state."""
        close_all([*(operator.close for operator in self.operators()), self.release])

    def release(self) -> None:
        """Release local state, as the end of the process does."""
        for operator in self.operators():
            if isinstance(operator, Stateful):
                operator.release()


def build_program(image: JobImage, level: int, subtask: int) -> Program:
    """Build the program of subtask ``subtask`` of a level.

    Raises:
        FunctionHookError: a user function cannot be loaded or opened here.
    """
    program = Program(subtask=subtask, level=level)
    builder = _Builder(image, program)
    specs = [chain for chain in image.plan.chains_at(level) if subtask < chain.parallelism]
    for spec in specs:
        program.chains[spec.index] = builder.chain(spec)
    builder.read_frames()
    for spec in specs:
        builder.connect(spec)
        program.chains[spec.index].below = _below(spec, specs, program)
    for chain in image.plan.chains:
        for route in chain.routes:
            if route.target_chain in program.chains:
                program.codecs[route.edge] = builder.codec(route)
    return program


def _below(spec: ChainSpec, specs: Sequence[ChainSpec], program: Program) -> list[Chain]:
    """Return the chains of a task that get records of a chain, in topological order."""
    reached = {spec.index}
    for other in specs:
        if other.index in reached:
            direct = (route for route in other.routes if route.link is Link.DIRECT)
            reached |= {route.target_chain for route in direct}
    return [
        program.chains[other.index]
        for other in specs
        if other.index in reached and other is not spec
    ]


class _Builder:
    """Builds the operators and routers of one program."""

    def __init__(self, image: JobImage, program: Program) -> None:
        self._image = image
        self._program = program
        specs = (spec for chain in image.plan.chains_at(program.level) for spec in chain.operators)
        self._asked = {spec.uid: ask_operator(spec, self._payload) for spec in specs}
        self._may_change = may_change_by(self._payload)

    def chain(self, spec: ChainSpec) -> Chain:
        """Build a chain, and open its operators."""
        operators = [self._open(operator) for operator in spec.operators]
        for key_by, combine in pairwise(operators):
            if isinstance(key_by, KeyByOperator) and isinstance(combine, CombineOperator):
                key_by.hands_on_keys = True
        copied = copied_inputs(spec, self._may_change)
        copies = {index: self._copier(spec, index - 1) for index in copied}
        return Chain(
            spec,
            operators,
            {at: copy for at, copy in copies.items() if copy is not None},
        )

    def read_frames(self) -> None:
        """Switch sources to frames where operators work on columns."""
        found = Level(
            self._image.plan, self._program.level, self._asked, gives_fields=self._gives_fields
        )
        for chain in self._program.chains.values():
            chain.shape = found.sources.get(chain.operators[0].uid)

    def _gives_fields(self, source: str) -> bool:
        reader = self._image.readers.get(source)
        return isinstance(reader, FieldReader) and reader.give_fields()

    def codec(self, route: RouteSpec) -> RecordCodec:
        """Return the codec of an edge."""
        declared = self._payload(route.type_payload) if route.type_payload else None
        plan = self._image.plan
        return RecordCodec(
            declared, sender=f"operator {plan.sender_of(route.edge)!r}",
            separates=is_separating(plan, route.edge),
        )  # fmt: skip

    def connect(self, spec: ChainSpec) -> None:
        """Make the routers of a chain."""
        chain = self._program.chains[spec.index]
        copied = copied_edges(self._image.plan, spec, self._may_change)
        for route in spec.routes:
            copy = None
            if route.edge in copied:
                copy = self._copier(spec, route.operator, route.tag)
            router = self._router(route, copy)
            chain.connect(route.operator, route.tag, router)
            self._program.routers.append((route, router))

    def _copier(self, spec: ChainSpec, index: int, tag: str | None = None) -> Copy | None:
        """Return a copier of an operator's output, or None if the output is immutable."""
        vertex = spec.operators[index].vertex
        is_typed = tag is None and "output_type" in vertex.payloads
        declared = self._payload(vertex.payload_id("output_type")) if is_typed else None
        return copier(declared, sender=f"operator {vertex.id!r}")

    def _open(self, spec: OperatorSpec) -> Operator:
        with user_hook(spec.uid, "loading or open()"):
            operator = self._operator(spec)
        if spec.vertex.kind in ON_COLUMNS:
            operator.use_columns(self._asked[spec.uid])
        return operator

    def _router(self, route: RouteSpec, copy: Copy | None) -> Router:
        program = self._program
        match route.link:
            case Link.DIRECT:
                feed = program.chains[route.target_chain].feed
                return DirectRouter(feed, ordinal=route.input_ordinal, copy=copy)
            case Link.FEEDBACK:
                return FeedbackRouter(
                    route, program.subtask, self.codec(route), self._image.storage
                )
            case Link.SHUFFLE:
                parallelism = self._image.plan.level_parallelism[program.level + 1]
                return ShuffleRouter(
                    route,
                    program.subtask,
                    self.codec(route),
                    next_parallelism=parallelism,
                    emit=program.outbox.append,
                    sent=program.sent,
                )

    def _operator(self, spec: OperatorSpec) -> Operator:
        vertex = spec.vertex
        selector = self._selector(spec)
        policy = RecordPolicy(
            spec, self._image.plugin, self._program.subtask, self._program.dead_letters.append
        )
        policy.key_of = selector
        context = self._context(spec, selector)
        if spec.watermarks is not None or vertex.kind is OperatorKind.ASSIGN_TIMESTAMPS:
            return self._generator(spec, policy, context)
        if vertex.kind in _PLAIN_OPERATORS:
            return _PLAIN_OPERATORS[vertex.kind](spec, policy, context)
        if vertex.kind is OperatorKind.SINK:
            return SinkOperator(spec, policy, context, self._image.writers[spec.uid])
        function = self._payload(vertex.payload_id("function"))
        keyed = {
            OperatorKind.PARTITION_CUSTOM: self._partition,
            OperatorKind.REDUCE: self._reduce,
            OperatorKind.PROCESS: self._process,
            OperatorKind.CO_PROCESS: self._co_process,
            OperatorKind.WINDOW: self._window,
            OperatorKind.WINDOW_COMBINE: self._window,
        }
        make: Callable[..., Operator] = keyed.get(vertex.kind) or _FUNCTION_OPERATORS[vertex.kind]
        return make(spec, policy, context, function)

    def _generator(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext
    ) -> Operator:
        vertex = spec.vertex
        parts = {
            role: self._payload(vertex.payload_id(role)) if role in vertex.payloads else None
            for role in ("function", "generator")
        }
        keeper = None
        if spec.watermarks is not None:
            keeper = TimeKeeper(spec.watermarks, parts["generator"])
        if vertex.kind is OperatorKind.SOURCE:
            return SourceOperator(spec, policy, context, keeper)
        return AssignOperator(spec, policy, context, parts["function"], keeper=keeper)

    def _partition(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, _key: Any
    ) -> Operator:
        vertex = spec.vertex
        select = self._loaded_selector(vertex.payload_id("function"))
        assert select is not None
        partitioner = self._payload(vertex.payload_id("partitioner"))
        return PartitionOperator(spec, policy, context, partitioner, select=select)

    def _process(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> Operator:
        method = "process_element" if hasattr(function, "process_element") else "process"
        if spec.scope is StateScope.NONE:
            return ProcessOperator(spec, policy, context, function, method=method)
        storage = self._image.storage
        assert isinstance(context, KeyedContext)
        operator = StatefulOperator(spec, policy, context, function, method=method, storage=storage)
        if spec.vertex.details.get("in_event_time_order"):
            operator.order_by_time(
                [self._payload(spec.input_type) if spec.input_type is not None else None]
            )
        return operator

    def _co_process(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> Operator:
        assert isinstance(context, KeyedContext)
        selectors = [self._loaded_selector(payload_id) for payload_id in spec.input_selectors]
        storage = self._image.storage
        operator = CoProcessOperator(
            spec, policy, context, function, selectors=selectors, storage=storage
        )
        if spec.vertex.details.get("in_event_time_order"):
            operator.order_by_time([None] * len(selectors))
        return operator

    def _window(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, plan: WindowPlan
    ) -> Operator:
        selector = self._selector(spec)
        assert selector is not None
        record_type = self._payload(spec.input_type) if spec.input_type is not None else None
        if spec.vertex.kind is OperatorKind.WINDOW_COMBINE:
            return CombineOperator(
                spec, policy, context, plan, key_selector=selector, record_type=record_type
            )
        assert isinstance(context, KeyedContext)
        return window_operator(plan)(
            spec, policy, context, plan,
            key_selector=selector, record_type=record_type, storage=self._image.storage,
        )  # fmt: skip

    def _reduce(
        self, spec: OperatorSpec, policy: RecordPolicy, context: WorkerContext, function: Any
    ) -> Operator:
        vertex = spec.vertex
        has_initial = "initial" in vertex.payloads
        selector = self._selector(spec)
        assert selector is not None
        assert isinstance(context, KeyedContext)
        return ReduceOperator(
            spec, policy, context, function,
            initial=self._payload(vertex.payload_id("initial")) if has_initial else None,
            key_selector=selector,
            value_type=reduced_type(spec, self._payload),
            storage=self._image.storage,
        )  # fmt: skip

    def _context(self, spec: OperatorSpec, selector: Callable[[Any], Any] | None) -> WorkerContext:
        info = TaskInfo(
            job_id=self._image.job_id,
            operator_name=spec.vertex.label,
            subtask_index=self._program.subtask,
            parallelism=spec.vertex.parallelism,
            max_parallelism=spec.group_count,
            properties=self._image.properties,
        )
        kind = WorkerContext if spec.scope is StateScope.NONE else KeyedContext
        context = kind(info, processing_time=0, key_selector=selector, group_count=spec.group_count)
        if isinstance(context, KeyedContext):
            registry = SchemaRegistry(spec.uid, self._image.state_metadata.get(spec.uid))
            # State of whole subtasks is small: in memory.
            is_keyed = spec.scope is StateScope.KEY_GROUPS
            settings = self._image.state if is_keyed else StateSettings()
            url = self._image.storage.url
            context.use_tables(tables_for(settings, job_url=url, registry=registry))
        return context

    def _selector(self, spec: OperatorSpec) -> Callable[[Any], Any] | None:
        return self._loaded_selector(spec.key_selector)

    def _loaded_selector(self, payload_id: str | None) -> Callable[[Any], Any] | None:
        return selector_of(self._image.payloads, payload_id)

    def _payload(self, payload_id: str | None) -> Any:
        assert payload_id is not None
        return cloudpickle.loads(self._image.payloads[payload_id])


def close_all(closers: Iterable[Callable[[], object]]) -> None:
    """Call all, then raise the first failure, with the others in its notes.

    Example:
        >>> try:
        ...     close_all([lambda: 1 / 0, lambda: int("x")])
        ... except ZeroDivisionError as error:
        ...     error.__notes__
        ["then ValueError: invalid literal for int() with base 10: 'x'"]
    """
    first: Exception | None = None
    for close in closers:
        try:
            close()
        except Exception as error:  # noqa: BLE001 - it is raised below, behind the other calls.
            if first is None:
                first = error
                continue
            text = error.summary if isinstance(error, BicycleError) else str(error)
            first.add_note(f"then {type(error).__name__}: {text}")
            for note in getattr(error, "__notes__", ()):
                first.add_note(note)
    if first is not None:
        raise first
