"""A file of streams as text: header, messages and beacons in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bicycle_streams.file.errors import FILE_CUT_OFF
from bicycle_streams.file.format import HEADER_SIZE, FileHeader
from bicycle_streams.file.ordering import Broken, OrderCheck
from bicycle_streams.file.seeking import tail
from bicycle_streams.file.view import CutOffError, FileView
from bicycle_streams.messages import Message, MessageHeader, Timestamp
from bicycle_streams.texts import TextFormat, header_json, message_text


def decode(path: Path, form: TextFormat, *, header_only: bool = False) -> Iterator[str]:
    """Iterate over the lines that show a file; header and beacons are comments.

    Raises:
        FileFormatError: the file is damaged; lines before the damage were given.
        FILE_CUT_OFF: it ends inside a message; lines before that were given.
        StreamConnectError: it cannot be opened.
    """
    with closing(FileView.open(path)) as view:
        yield _comment(_header_json(view.header), form)
        beacon, check = 1, OrderCheck(view)
        for head in view.heads(HEADER_SIZE):
            payload, end = view.payload(head)
            message = Message(head.key, head.shard_id, head.sequence, head.timestamp_ms, payload)
            _refuse_disorder(view, check.see(message, head.offset, end))
            yield message_text(message, form, header_only=header_only)
            while beacon * view.interval <= end and beacon <= view.beacon_count:
                if (text := _beacon_text(view, beacon, form)) is not None:
                    yield text
                beacon += 1
        _refuse_disorder(view, check.finish())
        _, _, end, has_ended = tail(view)
        if end < view.size and not has_ended:
            raise FILE_CUT_OFF(path=str(path), offset=view.size)


def _refuse_disorder(view: FileView, found: Iterator[Broken]) -> None:
    for each in found:
        raise view.damage(each.offset, each.problem)


def _comment(value: Any, form: TextFormat) -> str:
    text = json.dumps(value)
    return f"/* {text} */" if form == "ndjson" else f"# {text}"


def _header_json(header: FileHeader) -> dict[str, Any]:
    return {
        "file_name": header.file_name,
        "created_at": str(Timestamp(header.created_ms)),
        "beacon_interval": header.beacon_interval,
    }


def _beacon_text(view: FileView, number: int, form: TextFormat) -> str | None:
    try:
        beacon = view.beacon(number)
    except CutOffError:
        return None
    markers = [
        {
            "header": header_json(MessageHeader(m.key, m.shard_id, m.sequence, m.timestamp_ms)),
            "running_checksum": m.running,
        }
        for m in beacon.markers
    ]
    return _comment(markers, form)
