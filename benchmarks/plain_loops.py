"""The plain two-process loops that every figure is compared with; a program of its own.

``python plain_loops.py json INPUT OUTPUT --processes 2`` prints when its loops began and ended.
It does the work and no more: no epochs, no restart, no bound on memory.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO
from zlib import crc32

_BOUGHT = ("cart", "buy")
_WINDOW_MS = 10_000
_OUT_OF_ORDER_MS = 5_000
_LOW = 2.5
_LINES_PER_EXCHANGE = 2_500  # of each file

Span = tuple[float, float]
Reading = tuple[str, int, float]
OpenWindows = defaultdict[int, dict[str, list[float]]]
Loads = Callable[[str], dict[str, Any]]
Shares = tuple[list[Reading], ...]  # what is read, by the process that it belongs to

_links: tuple[Connection, Connection]
_process_count = 2


def events_with_json(me: int, source: Path, output: Path) -> None:
    loads, dumps = json.loads, json.dumps
    with (output / f"part-{me}.jsonl").open("w") as out:
        for file in sorted(source.iterdir())[me::_process_count]:
            with file.open() as lines:
                for line in lines:
                    event = loads(line)
                    if event["kind"] in _BOUGHT:
                        total = event["cents"] * event["quantity"]
                        order = {"id": event["id"], "user": event["user"], "total": total}
                        out.write(dumps(order) + "\n")
        _sync(out)


def events_with_msgspec(me: int, source: Path, output: Path) -> None:
    import msgspec  # an extra of this variant

    loads, dumps = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    with (output / f"part-{me}.jsonl").open("wb") as out:
        for file in sorted(source.iterdir())[me::_process_count]:
            with file.open("rb") as lines:
                for line in lines:
                    event = loads(line)
                    if event["kind"] in _BOUGHT:
                        total = event["cents"] * event["quantity"]
                        order = {"id": event["id"], "user": event["user"], "total": total}
                        out.write(dumps(order) + b"\n")
        _sync(out)


def words_with_json(me: int, source: Path, output: Path) -> None:
    _words_with(json.dumps, "\n", me, source, output)


def words_with_msgspec(me: int, source: Path, output: Path) -> None:
    import msgspec  # an extra of this variant

    _words_with(msgspec.json.Encoder().encode, b"\n", me, source, output)


def _words_with(
    dumps: Callable[[object], Any], newline: str | bytes, me: int, source: Path, output: Path
) -> None:
    counts: dict[str, int] = {}
    process_count = _process_count
    mode = "w" if isinstance(newline, str) else "wb"
    with (output / f"part-{me}.jsonl").open(mode) as out:
        for file in sorted(source.iterdir()):
            with file.open() as lines:
                for line in lines:
                    for word in line.lower().split():
                        if crc32(word.encode()) % process_count == me:
                            count = counts[word] = counts.get(word, 0) + 1
                            out.write(dumps({"word": word, "count": count}) + newline)
        _sync(out)
    _save(counts, output / f".state-{me}")


def words_by_hand(me: int, source: Path, output: Path) -> None:
    """Right for words in which JSON escapes nothing, as those of the benchmark are.

    A loop of its own: a call for each word would slow what is meant to be as fast as can be.
    """
    counts: dict[str, int] = {}
    process_count = _process_count
    with (output / f"part-{me}.jsonl").open("w") as out:
        for file in sorted(source.iterdir()):
            with file.open() as lines:
                for line in lines:
                    for word in line.lower().split():
                        if crc32(word.encode()) % process_count == me:
                            count = counts[word] = counts.get(word, 0) + 1
                            out.write(f'{{"word":"{word}","count":{count}}}\n')
        _sync(out)
    _save(counts, output / f".state-{me}")


def _save(counts: dict[str, int], path: Path) -> None:
    with path.open("wb") as out:
        pickle.dump(counts, out)
        _sync(out)


# What a job asks for, of all readings that were read at once: sensor or key, time, and value.
_WHOLE = "whole"
CHOICES: dict[str, Callable[[list[dict[str, Any]]], list[Reading]]] = {
    _WHOLE: lambda found: [(each["sensor"], each["at"], each["value"]) for each in found],
    "filtered": lambda found: [
        (each["sensor"], each["at"], each["value"]) for each in found if each["value"] >= _LOW
    ],
    "keyed": lambda found: [
        (f"{each['sensor']}/{each['at'] // 1000 % 2}", each["at"], each["value"]) for each in found
    ],
    "computed": lambda found: [
        (each["sensor"], each["at"], round(each["value"] * 1.8 + 32, 1)) for each in found
    ],
    "looping": lambda found: [
        (each["sensor"], each["at"], _with_a_loop(each["value"])) for each in found
    ],
}


def _with_a_loop(value: float) -> float:
    found = 0.0
    for part in (value, 1.0):
        found += part
    return found


def windows(choice: str, parser: str, me: int, source: Path, output: Path) -> None:
    """All read their files in step, swap what belongs to others, and write what is complete."""
    found: OpenWindows = defaultdict(dict)
    time_ms = -math.inf
    loads = _loads(parser)
    with ExitStack() as stack:
        paths = sorted(source.iterdir())[me::_process_count]
        files = [stack.enter_context(path.open()) for path in paths]
        out = stack.enter_context((output / f"part-{me}.jsonl").open("w"))
        link = stack.enter_context(_links[me])
        _links[1 - me].close()  # So that each notices when the other has failed.
        while time_ms < math.inf:
            shares, time_ms = _read(files, loads, CHOICES[choice])
            if _process_count == 2:
                theirs, their_ms = _swapped(me, link, (shares[1 - me], time_ms))
                _fold(found, theirs)
                time_ms = min(time_ms, their_ms)
            _fold(found, shares[me])
            _write_complete(found, time_ms - _OUT_OF_ORDER_MS, out)
        _sync(out)


def _loads(parser: str) -> Loads:
    if parser == "json":
        return json.loads
    import msgspec  # an extra of this variant

    return msgspec.json.Decoder().decode


def _read(
    files: Iterable[TextIO], loads: Loads, chosen: Callable[[list[dict[str, Any]]], list[Reading]]
) -> tuple[Shares, float]:
    """Return the next readings of each process, and the newest time of the file most behind."""
    count = _process_count
    shares: Shares = ([], [])
    read_to_ms = math.inf
    for file in files:
        found = [loads(line) for line in islice(file, _LINES_PER_EXCHANGE)]
        for reading in chosen(found):
            shares[crc32(reading[0].encode()) % count].append(reading)
        if found:
            read_to_ms = min(read_to_ms, max(each["at"] for each in found))
    return shares, read_to_ms


def _swapped(
    me: int, link: Connection, mine: tuple[list[Reading], float]
) -> tuple[list[Reading], float]:
    """Give and take; never both give at once, since a pipe holds little."""
    if me == 0:
        link.send(mine)
        return link.recv()
    theirs = link.recv()
    link.send(mine)
    return theirs


def _fold(found: OpenWindows, readings: list[Reading]) -> None:
    for sensor, at_ms, value in readings:
        window = found[at_ms // _WINDOW_MS]
        cell = window.get(sensor)
        if cell is None:
            window[sensor] = [1, value]
        else:
            cell[0] += 1
            cell[1] += value


def _write_complete(found: OpenWindows, watermark_ms: float, out: TextIO) -> None:
    for number in [each for each in found if (each + 1) * _WINDOW_MS <= watermark_ms]:
        start = number * _WINDOW_MS
        times = f"{start},{start + _WINDOW_MS}"
        for sensor, (count, total) in found.pop(number).items():
            out.write(f'["{sensor}",{times},[{count},{total},{total / count}]]\n')


LOOPS: dict[str, Callable[[int, Path, Path], None]] = {
    "json": events_with_json,
    "msgspec": events_with_msgspec,
    "words-json": words_with_json,
    "words-msgspec": words_with_msgspec,
    "words-by-hand": words_by_hand,
    **{
        f"windows-{choice}-{parser}": partial(windows, choice, parser)
        for choice in CHOICES
        for parser in ("json", "msgspec")
    },
}


def _sync(stream: object) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _take_links(links: tuple[Connection, Connection], process_count: int) -> None:
    global _links, _process_count  # one process, one link
    _links, _process_count = links, process_count


def _timed(loop: str, me: int, source: Path, output: Path) -> Span:
    began = time.monotonic()
    LOOPS[loop](me, source, output)
    return began, time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    calls = [(options.loop, me, options.input, options.output) for me in range(options.processes)]
    links = multiprocessing.Pipe()
    given = (links, options.processes)
    with multiprocessing.Pool(options.processes, _take_links, given) as pool:
        for link in links:
            link.close()
        spans = pool.starmap(_timed, calls, chunksize=1)
    print(json.dumps({"began": min(s[0] for s in spans), "ended": max(s[1] for s in spans)}))


if __name__ == "__main__":
    main()
