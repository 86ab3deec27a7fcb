"""Running one task of one level for an epoch: read, process, stage, report.

Numbered steps of ``run_task``:

1. Sort the shuffle blocks: own blocks, blocks for deeper levels, reports on their way to the
   driver.
2. Read source slices and feedback files, and feed them to their chains.
3. Feed the record blobs, the blobs sent to all first, in the order of edge, sender, sequence; then
   dead letters that are replayed.
4. Advance event time, in the order of the operators: later operators see the fired results of
   earlier ones.
5. Write state deltas and staged output under names that no other attempt uses.
6. Report to the next level the number of this attempt and the event time.
7. Send the report towards the driver.

A task changes nothing that a second attempt could not repeat. A failure of user code is part of
the report, so that it reaches the driver whole; anything else is raised and left to Spark's retry.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from bicycle_runtime.base.faults import fault_point
from bicycle_runtime.base.ids import attempt_id
from bicycle_runtime.base.stored import STORED_VERSION, VERSION_FIELD
from bicycle_runtime.base.thread_safe_types import prepare_type
from bicycle_runtime.contract import FollowingReader, ReadOn, Slice, SourceBatch, WriterTask
from bicycle_runtime.layouts.manifest import ShardTimes
from bicycle_runtime.operators.batch import Batch, ExchangeLineage, Origin, SourceLineage
from bicycle_runtime.operators.functions.keyed_contexts import KeyedContext
from bicycle_runtime.operators.functions.operator import (
    Advance,
    EpochTime,
    Operator,
    Stateful,
    Timed,
)
from bicycle_runtime.operators.functions.transform import KeyByOperator
from bicycle_runtime.operators.functions.watermarks import GeneratorOperator
from bicycle_runtime.operators.heartbeats import LAST_POSITION, LoadHeartbeat, ReadHeartbeat
from bicycle_runtime.operators.metrics import OperatorCounts
from bicycle_runtime.operators.shard_times import before_end, joined_times, lagging, watermark_of
from bicycle_runtime.operators.spec import DEAD_LETTERS, REPLAYED_LETTERS, JobImage, RouteSpec
from bicycle_runtime.operators.tasks.letters import feed_letters
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.routing import (
    FeedbackRouter,
    ShuffleBlock,
    ShuffleRouter,
    parse_streaks,
)
from bicycle_runtime.operators.tasks.shared_blobs import ReceivedBlobs
from bicycle_runtime.operators.tasks.sink import SinkOperator
from bicycle_runtime.operators.tasks.task_reports import TaskReport, memory_failure, report_block
from bicycle_runtime.operators.user_calls.blocking import LOOP_WATCH
from bicycle_runtime.operators.user_calls.waits import WAITS
from bicycle_runtime.records.blobs import (
    BlockKind,
    Envelope,
    RecordBlob,
    decode_records,
    open_block,
    read_header,
    seal_block,
)
from bicycle_runtime.records.codecs import refuse_pickles
from bicycle_runtime.records.errors import RecordDecodingError
from bicycle_runtime.state.sealed.loading import LOADING
from bicycle_sdk.contexts import WATERMARK_MAX, WATERMARK_MIN
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import Partitioning
from bicycle_sdk.random_source import system_random

if TYPE_CHECKING:
    from bicycle_runtime.operators.tasks.program import Program

# hot path: small batches stay in the processor's cache: 860 ns a record instead of 1,060 at 65,536.
_RECORDS_PER_BATCH = 4_096


class _Mark(msgspec.Struct, array_like=True):
    """A task's message to the next level: its attempt, and its shard times."""

    sender: int
    attempt: str
    times: ShardTimes


_MARK_ENCODER = msgspec.msgpack.Encoder()
_MARK_DECODER = msgspec.msgpack.Decoder(prepare_type(_Mark))


def run_task(
    image: JobImage, program: Program, order: EpochOrder, blocks: Iterable[bytes]
) -> Iterator[ShuffleBlock]:
    """Run a task; yield ``(task of the next level, bytes)``, the report last.

    Args:
        image: The job.
        program: The program of this task; its user functions stay open.
        order: The task's work in this epoch.
        blocks: The blocks that the level before sent to this task.
    """
    task = _Task(image, program, order)
    yield from task.run(blocks)


class _Task:
    """One attempt of one task."""

    def __init__(self, image: JobImage, program: Program, order: EpochOrder) -> None:
        self._image = image
        self._program = program
        task = (program.level, program.subtask)
        self._reading = ReadHeartbeat(image.storage, order.epoch, task)
        self._epoch = order
        self._order = order.tasks[program.subtask]
        self._attempt = attempt_id(source=system_random())
        self._report = TaskReport(
            level=program.level, subtask=program.subtask, attempt=self._attempt
        )
        self._times: ShardTimes = {}  # the epoch's times of shards, here and in levels before
        self._generators = image.plan.generators()
        self._edges_behind_broadcasts = {
            route.edge
            for chain in image.plan.chains
            for route in chain.routes
            if route.partitioning is not Partitioning.BROADCAST
        }
        self._next_level = program.level + 1
        levels = image.plan.level_parallelism
        self._next_parallelism = levels[self._next_level] if self._next_level < len(levels) else 1

    def run(self, blocks: Iterable[bytes]) -> Iterator[ShuffleBlock]:
        started = time.perf_counter()
        self._program.outbox.clear()
        self._program.sent.forget()
        self._program.dead_letters.clear()
        self._program.replayed_letters.clear()
        mine, carried = self._sort(blocks)
        yield from carried
        WAITS.begin(self._reading.wait)
        try:
            self._begin()
            for _ in self._process(mine):
                yield from self._drain()
            for _ in self._advance():
                yield from self._drain()
            self._write()
        except BicycleError as error:
            self._abort()
            self._report.failure = error.to_json()
        except MemoryError:
            self._abort()
            self._report.failure = memory_failure(self._report, self._epoch.epoch)
        except BaseException:
            self._abort()
            raise
        yield from self._drain()
        yield from self._marks()
        self._report.busy_ms = (time.perf_counter() - started) * 1000
        yield report_block(self._image.plan, self._report)

    def _sort(
        self, blocks: Iterable[bytes]
    ) -> tuple[list[tuple[RecordBlob, memoryview]], list[ShuffleBlock]]:
        mine, carried = [], []
        for block in blocks:
            envelope, body = open_block(block)
            if envelope.kind is BlockKind.MARK:
                mark = _MARK_DECODER.decode(body)
                self._report.senders[mark.sender] = mark.attempt
                self._times = joined_times(self._times, mark.times)
            elif envelope.level == self._program.level and envelope.kind is BlockKind.RECORDS:
                mine.append((read_header(body), body))
            else:
                carried.append((envelope.task % self._next_parallelism, block))
        late = self._edges_behind_broadcasts
        mine.sort(
            key=lambda item: (item[0].edge in late, item[0].edge, item[0].sender, item[0].sequence)
        )
        return mine, carried

    def _marks(self) -> Iterator[ShuffleBlock]:
        """Yield a message to each task of the next level: the attempt, and event times."""
        if self._next_level < self._image.plan.level_count:
            mark = _Mark(self._program.subtask, self._attempt, self._times)
            body = _MARK_ENCODER.encode(mark)
            for target in range(self._next_parallelism):
                yield target, seal_block(Envelope(BlockKind.MARK, self._next_level, target), body)

    def _begin(self) -> None:
        moment = EpochTime(
            epoch=self._epoch.epoch, now_ms=self._epoch.now_ms, seed=self._image.job_id
        )
        for route, router in self._program.routers:
            turn = self._order.turns.get(route.edge, self._program.subtask)
            router.begin_epoch(self._epoch.epoch, turn)
        with self._loading():
            self._begin_operators(moment)

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        """Measure loading inside the block, and send heartbeats if it takes long."""
        image, program = self._image, self._program
        heartbeat = LoadHeartbeat(image.storage, image.run_id, (program.level, program.subtask))
        total = sum(state.byte_count for state in self._order.states.values())
        with LOADING.watching(total, heartbeat):
            yield
        heartbeat.close()
        self._report.loaded, self._report.worker = LOADING.ranges, os.getpid()

    def _begin_operators(self, moment: EpochTime) -> None:
        for operator in self._program.operators():
            LAST_POSITION.enter(operator.uid)
            operator.begin_epoch(moment)
            if isinstance(operator, Stateful):
                operator.restore(self._order.states[operator.uid])
            previous = self._epoch.time.watermarks.get(operator.uid, WATERMARK_MIN)
            operator.context.watermark = operator.context.before_end = previous
            if previous == WATERMARK_MAX:
                operator.context.before_end = self._before_end(operator, self._epoch.time.times)
            if isinstance(operator, Timed):
                operator.begin_time(
                    Advance(watermark=previous, previous=previous, now_ms=self._epoch.now_ms)
                )
            if isinstance(operator, SinkOperator):
                operator.task = self._writer_task(operator.uid)

    def _process(self, mine: list[tuple[RecordBlob, memoryview]]) -> Iterator[None]:
        """Feed all input of this task; pause after each batch, so that blocks can leave."""
        for uid, slices in self._order.slices.items():
            for part in slices:
                yield from self._read(uid, part)
            if self._epoch.read_on is not None:
                yield from self._read_on(uid, slices, self._epoch.read_on)
        targets = {route.edge: route for chain in self._image.plan.chains for route in chain.routes}
        no_pickle = self._image.state.no_pickle
        for edge, files in self._order.feedback.items():
            for file in files:
                body = memoryview(self._image.storage.read(file.path))
                # Unlike the records of an exchange, they come from a checkpoint.
                refuse_pickles(state=no_pickle, records=no_pickle)
                try:
                    blob = read_header(body)
                    self._feed(targets[edge], blob, body, ReceivedBlobs([(blob, body)]))
                finally:
                    refuse_pickles(state=no_pickle)
                yield
        received = ReceivedBlobs(mine)
        for blob, body in mine:
            self._feed(targets[blob.edge], blob, body, received)
            yield
        yield from self._drain_calls()
        for letter in feed_letters(self._image, self._program, self._order.letters):
            self._program.replayed_letters.append(
                {
                    VERSION_FIELD: STORED_VERSION,
                    "letter": letter.id,
                    "epoch": self._epoch.epoch,
                    "request": letter.request,
                }
            )
            fault_point("operator")
            yield
        yield from self._drain_calls()

    def _drain_calls(self) -> Iterator[None]:
        """Make the calls that wait for more records, chain by chain."""
        for chain in self._program.chains.values():
            yield from chain.drain()

    def _advance(self) -> Iterator[None]:
        """Fire the operators that waited for the event time of this epoch."""
        LAST_POSITION.read(None)
        clock_ms = self._epoch.time.clock_ms
        for operator in self._program.operators():
            if isinstance(operator, GeneratorOperator) and operator.keeper is not None:
                shards = operator.keeper.shards(clock_ms)
                if shards:
                    self._report.times[operator.uid] = shards
        self._times = joined_times(self._times, self._report.times)
        known = joined_times(self._epoch.time.times, self._times)
        watermarks: dict[tuple[str, ...], int] = {}

        def advance_of(operator: Operator) -> Advance:
            above = operator.spec.generators
            if above not in watermarks:
                watermarks[above] = self._watermark(above, known)
            uid, context = operator.uid, operator.context
            previous = self._epoch.time.watermarks.get(uid, WATERMARK_MIN)
            watermark = lagging(watermarks[above], operator.spec.lag_ms)
            if watermark == WATERMARK_MAX:
                context.before_end = max(context.before_end, self._before_end(operator, known))
            return Advance(
                watermark=max(previous, self._epoch.reached.get(uid, watermark)),
                previous=previous,
                now_ms=self._epoch.now_ms,
            )

        for chain in self._program.chains.values():
            yield from chain.advance(advance_of)
        for _, router in self._program.routers:
            if isinstance(router, ShuffleRouter):
                router.flush(is_end=True)
        self._program.sent.forget()

    def _watermark(self, above: tuple[str, ...], known: ShardTimes) -> int:
        time = self._epoch.time
        generators = [self._generators[uid] for uid in above]
        watermark = watermark_of(generators, known, finished=time.finished, clock_ms=time.clock_ms)
        return max(watermark, time.floor_ms) if above else watermark

    def _before_end(self, operator: Operator, times: ShardTimes) -> int:
        above = [self._generators[uid] for uid in operator.spec.generators]
        mark = before_end(above, times, clock_ms=self._epoch.time.clock_ms)
        return lagging(mark, operator.spec.lag_ms)

    def _read(self, uid: str, part: Slice) -> Iterator[None]:
        LAST_POSITION.enter(uid)
        LAST_POSITION.read(
            Origin(source=uid, shard=part.shard, offset=part.start, end_offset=part.end)
        )
        batches = ((part.shard, batch) for batch in self._image.readers[uid].read(part))
        yield from self._feed_batches(uid, batches, {part.shard: part.start})

    def _read_on(self, uid: str, slices: Sequence[Slice], limits: ReadOn) -> Iterator[None]:
        """Read beyond the slices; earlier output is visible before more is read."""
        reader, ends = self._image.readers[uid], self._report.source_ends[uid]
        assert isinstance(reader, FollowingReader)
        parts = [replace(part, start=ends[part.shard], end=ends[part.shard]) for part in slices]
        yield from self._drain_calls()
        self._flush()
        for batches in reader.read_on(parts, limits):
            yield from self._feed_batches(uid, batches, dict(ends))
            yield from self._drain_calls()
            self._flush()
            LAST_POSITION.enter(uid)

    def _flush(self) -> None:
        for operator in self._program.operators():
            if isinstance(operator, SinkOperator):
                LAST_POSITION.enter(operator.uid)
                operator.flush()

    def _feed_batches(
        self, uid: str, batches: Iterable[tuple[str, SourceBatch]], positions: dict[str, int]
    ) -> Iterator[None]:
        """Feed the batches of a reader, by shard, from their positions on."""
        chain = next(
            chain for chain in self._program.chains.values() if chain.operators[0].spec.uid == uid
        )
        policy = chain.operators[0].policy
        counts, reading = self._report.source_counts, self._reading
        started = time.perf_counter_ns()
        for shard, batch in batches:
            chain.operators[0].busy_ns += time.perf_counter_ns() - started
            fault_point("read")
            for bad in batch.failures:
                policy.reject_input(bad, Origin(source=uid, shard=shard, offset=bad.offset))
            lineage = SourceLineage(
                uid, shard, batch.offsets, start=positions[shard], end=batch.next_offset,
                timestamps=batch.timestamps, keys=batch.keys, headers=batch.headers,
                raws=batch.raws,
            )  # fmt: skip
            LAST_POSITION.read(lineage.span())
            chain.feed(Batch(batch.values, lineage, shape=chain.shape))
            positions[shard] = batch.next_offset
            counts[uid] = counts.get(uid, 0) + len(batch.values)
            reading(sum(counts.values()))
            LAST_POSITION.enter(uid)
            fault_point("operator")
            yield
            started = time.perf_counter_ns()
        ends = self._report.source_ends.setdefault(uid, {})
        for shard, end in positions.items():
            ends[shard] = max(end, ends.get(shard, 0))

    def _feed(
        self, route: RouteSpec, blob: RecordBlob, body: memoryview, received: ReceivedBlobs
    ) -> None:
        codec = self._program.codecs[route.edge]
        try:
            shared = received.records(blob, codec)
            values, groups, times = decode_records(body, blob, codec, shared)
        except RecordDecodingError as error:
            sender = self._image.plan.sender_of(route.edge)
            error.facts["reason"] += f" (records from operator {sender!r})"
            raise
        origin, streaks = parse_streaks(blob.origin)
        LAST_POSITION.read(origin)
        chain = self._program.chains[route.target_chain]
        for start in range(0, len(values), _RECORDS_PER_BATCH):
            part = slice(start, start + _RECORDS_PER_BATCH)
            part_times = None if times is None else times[part]
            lineage = ExchangeLineage(origin, part_times, streaks, start)
            chain.feed(
                Batch(
                    values[part],
                    lineage,
                    None if groups is None else groups[part],
                    route.input_ordinal,
                )
            )
        fault_point("operator")

    def _write(self) -> None:
        epoch, report = self._epoch.epoch, self._report
        for operator in self._program.operators():
            LAST_POSITION.enter(operator.uid)
            operator.policy.check_rate()
            if isinstance(operator, Stateful):
                started = time.perf_counter_ns()
                report.states[operator.uid] = operator.commit(
                    epoch, self._attempt, is_interval_over=self._epoch.is_interval_over
                )
                report.state_keys[operator.uid] = operator.key_count()
                operator.busy_ns += time.perf_counter_ns() - started
                self._note_states(operator)
            if isinstance(operator, SinkOperator):
                report.staged[operator.uid] = operator.finish()
            if isinstance(operator, Timed):
                self._note_waiting(operator.uid, operator)
            if isinstance(operator, KeyByOperator) and (sample := operator.sample()) is not None:
                report.keys[operator.uid] = sample
            blocking = LOOP_WATCH.take(operator.uid)
            report.counts[operator.uid] = OperatorCounts(
                records_in=operator.records_in,
                records_out=operator.records_out,
                failed=operator.policy.failed,
                retried=operator.policy.retried,
                on_columns=operator.records_on_columns,
                late=operator.late,
                timed_out=operator.timed_out,
                unread=operator.unread,
                blocked=blocking.count,
                blocked_ms=blocking.longest_ms,
                blocked_at=blocking.location,
                metrics=operator.metrics(),
                failures=operator.policy.failures,
                busy_ms=operator.busy_ns / 1e6,
                times=operator.times,
            )
        for route, router in self._program.routers:
            if route.takes_turns:
                report.turns[route.edge] = router.turn
            if isinstance(router, FeedbackRouter):
                report.feedback[route.edge] = list(router.finish(epoch, self._attempt))
        for uid, lines in (
            (DEAD_LETTERS, self._program.dead_letters),
            (REPLAYED_LETTERS, self._program.replayed_letters),
        ):
            if lines:
                writer = self._image.writers[uid].open(self._writer_task(uid))
                writer.write(list(lines))
                report.staged[uid] = writer.finish()
        fault_point("delta_written")

    def _note_states(self, operator: Operator) -> None:
        context = operator.context
        if isinstance(context, KeyedContext) and (asked := context.registry.asked()):
            self._report.state_metadata[operator.uid] = asked

    def _note_waiting(self, uid: str, operator: Timed) -> None:
        for waiting, until_ms in (
            (self._report.next_event_ms, operator.next_event_ms()),
            (self._report.next_timer_ms, operator.next_timer_ms()),
        ):
            if until_ms is not None:
                waiting[uid] = until_ms

    def _abort(self) -> None:
        for operator in self._program.operators():
            if isinstance(operator, SinkOperator):
                operator.abort()

    def _writer_task(self, uid: str) -> WriterTask:
        attempt_name = f"{self._program.level}-{self._program.subtask}-{self._attempt}"
        prefix = f"staged/{uid}/{self._epoch.epoch:012}/{attempt_name}"
        return WriterTask(
            storage=self._image.storage,
            prefix=prefix,
            epoch=self._epoch.epoch,
            subtask=self._program.subtask,
        )

    def _drain(self) -> Iterator[ShuffleBlock]:
        outbox = self._program.outbox
        yield from outbox
        outbox.clear()
