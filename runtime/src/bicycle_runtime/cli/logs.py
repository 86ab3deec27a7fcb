"""``bicycle logs``: what a submitted job wrote."""

from __future__ import annotations

import codecs
import sys
import threading
from collections import deque
from typing import BinaryIO

import click

from bicycle_runtime.cli.commands import examples
from bicycle_runtime.cli.parameters import answers, home, job_names
from bicycle_runtime.cli.rendering import answer_json
from bicycle_runtime.jobs.control.job_queries import job_status
from bicycle_runtime.jobs.home import Home

__all__ = ["TextOutput", "logs_command"]

_POLL_S = 0.2
_CHUNK_BYTES = 1 << 16


@click.command(
    "logs",
    epilog=examples(
        "bicycle logs wordcount --follow",
        "bicycle logs wordcount -n 20",
    ),
)
@click.argument("job", shell_complete=job_names)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "-n", "--lines", "line_count", type=click.IntRange(min=0), help="Only so many lines of the end."
)
@answers
def logs_command(*, job: str, follow: bool, line_count: int | None, as_json: bool) -> None:
    """Show the log of a submitted job.

    What its console sinks print is in it. A job in the foreground has no log here: it writes to its
    terminal. With --json each line becomes a JSON text of the list `lines`, and --follow waits for
    the end of the job first.
    """
    place = home()
    path = place.find(job).log_path
    path.touch()
    with path.open("rb") as stream:
        if as_json:
            if follow:
                _wait_for_end(place, job)
            lines = [
                line.decode(errors="replace").rstrip("\n") for line in _last(stream, line_count)
            ]
            answer_json({"job": job, "lines": lines})
            return
        show = TextOutput()
        for line in _last(stream, line_count):
            show(line)
        while follow:
            is_ended = job_status(place, job).state.is_final
            while chunk := stream.read(_CHUNK_BYTES):
                show(chunk)
            if is_ended:
                break
            threading.Event().wait(_POLL_S)


def _last(stream: BinaryIO, count: int | None) -> list[bytes]:
    return list(deque(stream, maxlen=count))


class TextOutput:
    """Writes bytes as text; a letter may come in two pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __call__(self, data: bytes) -> None:
        sys.stdout.write(self._decoder.decode(data))
        sys.stdout.flush()


def _wait_for_end(place: Home, job: str) -> None:
    while not job_status(place, job).state.is_final:
        threading.Event().wait(_POLL_S)
