"""The plain two-process loops that every figure is compared with; a program of its own.

``python plain_loops.py events INPUT OUTPUT --parser json`` prints when its loops began and ended.
It does the work and no more: no epochs, no restart, no bound on memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

_PROCESS_COUNT = 2
_BOUGHT = ("cart", "buy")

Span = tuple[float, float]


def events_with_json(me: int, source: Path, output: Path) -> None:
    loads, dumps = json.loads, json.dumps
    with (output / f"part-{me}.jsonl").open("w") as out:
        for file in sorted(source.iterdir())[me::_PROCESS_COUNT]:
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
        for file in sorted(source.iterdir())[me::_PROCESS_COUNT]:
            with file.open("rb") as lines:
                for line in lines:
                    event = loads(line)
                    if event["kind"] in _BOUGHT:
                        total = event["cents"] * event["quantity"]
                        order = {"id": event["id"], "user": event["user"], "total": total}
                        out.write(dumps(order) + b"\n")
        _sync(out)


def words(me: int, source: Path, output: Path) -> None:
    counts: dict[str, int] = {}
    with (output / f"part-{me}.jsonl").open("w") as out:
        for file in sorted(source.iterdir()):
            with file.open() as lines:
                for line in lines:
                    for word in line.lower().split():
                        if crc32(word.encode()) & 1 == me:
                            count = counts[word] = counts.get(word, 0) + 1
                            out.write(f'{{"word":"{word}","count":{count}}}\n')
        _sync(out)
    with (output / f".state-{me}").open("wb") as out:
        pickle.dump(counts, out)
        _sync(out)


def windows(me: int, source: Path, output: Path) -> None:
    loads = json.loads
    open_windows: dict[int, dict[str, list[float]]] = {}
    with (output / f"part-{me}.jsonl").open("w") as out:
        for file in sorted(source.iterdir())[me::_PROCESS_COUNT]:
            with file.open() as lines:
                for line in lines:
                    reading = loads(line)
                    window = open_windows.setdefault(reading["at"] // 10_000, {})
                    cell = window.get(reading["sensor"])
                    if cell is None:
                        window[reading["sensor"]] = [1, reading["value"]]
                    else:
                        cell[0] += 1
                        cell[1] += reading["value"]
        for start, window in open_windows.items():
            for sensor, (count, total) in window.items():
                out.write(f'["{sensor}",{start}0000,{count},{total},{total / count}]\n')
        _sync(out)


LOOPS: dict[str, Callable[[int, Path, Path], None]] = {
    "json": events_with_json,
    "msgspec": events_with_msgspec,
    "words": words,
    "windows": windows,
}


def _sync(stream: object) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _timed(loop: str, me: int, source: Path, output: Path) -> Span:
    began = time.monotonic()
    LOOPS[loop](me, source, output)
    return began, time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    calls = [(options.loop, me, options.input, options.output) for me in range(_PROCESS_COUNT)]
    with multiprocessing.Pool(_PROCESS_COUNT) as pool:
        spans = pool.starmap(_timed, calls, chunksize=1)
    print(json.dumps({"began": min(s[0] for s in spans), "ended": max(s[1] for s in spans)}))


if __name__ == "__main__":
    main()
