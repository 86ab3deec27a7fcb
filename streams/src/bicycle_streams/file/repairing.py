"""Verification of a file of streams, and repair without its damaged parts.

Messages are read in order. After damage, the next offset with a whole message is searched: after
the damaged message if its frame is intact, byte by byte up to the next beacon, or at the offset
that a beacon contains. So a flipped bit loses only the message that contains it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from bicycle_streams.addresses import INTERNAL, WILDCARD
from bicycle_streams.file.creating import create_file
from bicycle_streams.file.errors import FileFormatError
from bicycle_streams.file.format import HEADER_SIZE, MESSAGE_OVERHEAD, FileHeader
from bicycle_streams.file.ordering import Broken, OrderCheck
from bicycle_streams.file.reading import FileReader, Wanted
from bicycle_streams.file.salvage import next_message, whole_message
from bicycle_streams.file.view import CutOffError, FileView, Head
from bicycle_streams.file.writing import FileWriter
from bicycle_streams.messages import Message

_BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGap:
    """A message whose sequence does not follow the previous one of its shard."""

    stream: str
    shard_id: int
    after: int
    sequence: int


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of the verification of a file.

    The format has no checksum for the header of a message; ``ordering`` finds damage that is
    visible without it. A repaired file has a gap in the stream for each lost message.
    """

    path: Path
    message_count: int = 0
    by_stream: Counter[str] = field(default_factory=Counter)
    broken: list[Broken] = field(default_factory=list)
    gaps: list[SequenceGap] = field(default_factory=list)
    has_ended: bool = False
    _last: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_intact(self) -> bool:
        """Return whether the file has no damage."""
        return not self.broken

    def add(self, part: Message | Broken) -> None:
        """Count a message, or note damage."""
        if isinstance(part, Broken):
            self.broken.append(part)
            self._last.clear()  # Unreadable messages may precede the next one.
        elif part.stream_key == INTERNAL:
            self.has_ended = True
        else:
            self.message_count += 1
            self.by_stream[part.stream_key] += 1
            self.has_ended = False
            self._follow(part)

    def _follow(self, message: Message) -> None:
        stream, shard, sequence = message.stream_key, message.shard_id, message.sequence
        after = self._last.get((stream, shard), sequence - 1)
        if sequence != after + 1:
            gap = SequenceGap(stream=stream, shard_id=shard, after=after, sequence=sequence)
            self.gaps.append(gap)
        self._last[stream, shard] = sequence


def verify(path: Path) -> Report:
    """Read a whole file, and return its content and all damage.

    Raises:
        FileFormatError: the file has no header that can be used.
        StreamConnectError: it cannot be opened.
    """
    report = Report(path=path)
    with closing(FileView.open(path)) as view:
        for part in _check_parts(view):
            report.add(part)
    return report


def _check_parts(view: FileView) -> Iterator[Message | Broken]:
    """Iterate over the messages of a file and its damage, including disorder."""
    check = OrderCheck(view)
    for part, offset, end in _locate_parts(view):
        if isinstance(part, Broken):
            check.lose()
        else:
            yield from check.see(part, offset, end)
        yield part
    yield from check.finish()


def repair(path: Path, output: Path) -> Report:
    """Write a new file with all messages of another that are whole, as they are.

    Sequences and times stay; the beacons are new. The file that is read stays as it is.

    Raises:
        StreamConnectError: the output exists already, or one of the files cannot be opened.
    """
    report = Report(path=path)
    with closing(FileView.open(path)) as view:
        header = FileHeader(output.name, view.header.created_ms, view.interval)
        create_file(output, header, must_be_new=True)
        writer = FileWriter(output, limit_bytes=1 << 62, buffer_bytes=1 << 20)
        try:
            for part in parts_of(view):
                report.add(part)
                if isinstance(part, Message) and part.stream_key != INTERNAL:
                    writer.copy(part)
        finally:
            writer.close(with_end=report.has_ended)
    return report


def _locate_parts(view: FileView) -> Iterator[tuple[Message | Broken, int, int]]:
    """Iterate over the parts of a file, each with where it begins and ends."""
    at = HEADER_SIZE
    for part in parts_of(view):
        if isinstance(part, Broken):
            at = part.offset + part.size
            yield part, part.offset, at
            continue
        start = view.skip(at, 0)
        size = MESSAGE_OVERHEAD + len(part.stream_key) + part.size
        at = view.skip(start, size)
        yield part, start, at


def parts_of(view: FileView) -> Iterator[Message | Broken]:
    """Iterate over the messages of a file, including its end mark, and its damage."""
    offset: int | None = HEADER_SIZE
    while offset is not None and offset < view.size:
        wanted = Wanted((WILDCARD,), with_internal=True)
        reader = FileReader(view.path, view.interval, offset, wanted)
        try:
            yield from chain.from_iterable(reader.batches(view.descriptor, view.size, _BATCH))
        except FileFormatError as error:
            start = reader.offset
            found, offset = _behind(view, start)
            if found is not None:
                yield found
                start = error.facts["offset"]
            problem = error.facts["problem"]
            yield _describe_broken(view, start, offset, problem, is_message=found is None)
        else:
            if reader.offset == view.size:
                return
            start = reader.offset
            offset = next_message(view, start + 1)
            problem = (
                "the file ends inside a message" if offset is None else "a message is missing here"
            )
            yield _describe_broken(view, start, offset, problem, is_message=True)


def _describe_broken(
    view: FileView, start: int, end: int | None, problem: str, *, is_message: bool
) -> Broken:
    head = _head(view, start) if is_message else None
    return Broken(
        offset=start,
        size=(view.size if end is None else end) - start if is_message else 0,
        problem=problem,
        stream=head.key if head else None,
        shard_id=head.shard_id if head else None,
        sequence=head.sequence if head else None,
    )


def _behind(view: FileView, start: int) -> tuple[Message | None, int | None]:
    """Return the damaged message if it is whole, and the offset of the next whole one.

    It is whole when only the beacon that cuts it is damaged. The size of a damaged message is
    used unless whole messages fill the space up to its end: then the size itself is damaged.
    """
    if (message := whole_message(view, start)) is not None:
        return message
    following = next_message(view, start + 1)
    head = _head(view, start)
    if head is not None and (end := _end(view, head)) is not None:
        is_boundary = end == view.size or whole_message(view, end) is not None
        if is_boundary and not _messages_fill(view, following, end):
            return None, end
    return None, following


def _messages_fill(view: FileView, start: int | None, end: int) -> bool:
    """Return whether whole messages begin at ``start`` and stop exactly at ``end``."""
    at = start
    while at is not None and at < end:
        found = whole_message(view, at)
        at = None if found is None else found[1]
    return at == end and at != start


def _head(view: FileView, offset: int) -> Head | None:
    try:
        return view.head(offset)
    except (CutOffError, FileFormatError):
        return None


def _end(view: FileView, head: Head) -> int | None:
    try:
        return view.end_of(head) if head.size <= view.size else None
    except (CutOffError, FileFormatError):
        return None
