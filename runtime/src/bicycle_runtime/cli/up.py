"""``bicycle up`` and ``bicycle down``: the service of this machine's jobs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.processes import (
    how_it_ended,
    last_log_lines,
    send_signal,
    start_detached,
    wait_for_end,
)
from bicycle_runtime.jobs.control.job_queries import list_jobs
from bicycle_runtime.jobs.errors import STOP_TIMED_OUT
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import read_address, service_folder
from bicycle_runtime.service.errors import (
    SERVICE_EXTRA_MISSING,
    SERVICE_GONE,
    SERVICE_RUNNING,
    SERVICE_START_FAILED,
)
from bicycle_streams.cli.commands import command
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json
from bicycle_streams.cli.server_options import door_options, home_option

_MODULE = "bicycle_runtime.service_process.main"
_LIBRARIES = (
    "grpc",
    "grpc_health",
    "grpc_reflection",
    "jinja2",
    "multipart",
    "prometheus_client",
    "starlette",
    "uvicorn",
)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_PAGE = re.compile(r"http://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}/?")
_POLL_S = 0.05
_END_MS = 30_000


def _slots(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int | str]:  # fmt: skip
    slots: dict[str, int | str] = {}
    for text in texts:  # A URL may have an equals sign itself.
        master, _, word = text.rpartition("=")
        if master.startswith("spark://") and _PAGE.fullmatch(word):
            slots[master] = word
        elif master and _NUMBER.fullmatch(word):
            slots[master] = int(word)
        else:
            problem = f"expected MASTER=NUMBER, or spark://HOST:PORT=http://HOST:PORT, got {text!r}"
            raise click.BadParameter(problem, param_hint="--slots")
    return slots


@command(
    "up",
    "bicycle up",
    "bicycle up --require-auth",
    "bicycle up --host 0.0.0.0 --name jobs.example --tls-cert cert.pem --tls-key key.pem",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help=(
        "Address to listen on. An address that is reachable from other machines requires "
        "--tls-cert, --tls-key and a token."
    ),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9_000,
    show_default=True,
    help="Port for API and pages; 0 selects a free port.",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65_535),
    help="Port for gRPC; 0 selects a free port. Default: --port + 1.",
)
@click.option("--no-grpc", is_flag=True, help="Disable gRPC.")
@door_options
@click.option(
    "--slots",
    multiple=True,
    metavar="MASTER=NUMBER|PAGE",
    callback=_slots,
    help=(
        "Number of slots of a Spark master, for the job queue. Alternatively, the address "
        "http://HOST:PORT of the page on which a standalone master reports its cores. Default: "
        "port 8080 of its host. MASTER `local` is this machine. Default: its number of cores, at "
        "least 4. Repeatable."
    ),
)
@home_option
@click.option(
    "--detach", is_flag=True, help="Return when the service responds, and leave it running."
)
@answers
def up_command(
    *,
    host: str,
    port: int,
    grpc_port: int | None,
    no_grpc: bool,
    home: Path,
    detach: bool,
    as_json: bool,
    **doors: Any,
) -> None:
    """Start the service: web UI, REST API and jobs behind one port.

    The service also offers live events, metrics for Prometheus, and gRPC on a separate port. It
    covers all jobs of the home, including jobs of `bicycle submit`. It prints its URL and runs
    until Ctrl-C, SIGTERM or `bicycle down`; jobs continue without it, and the next service finds
    them again. --json prints the URL and the process id, and requires --detach.
    """
    if as_json and not detach:
        raise click.UsageError("--json needs --detach")
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise SERVICE_EXTRA_MISSING(missing_text=", ".join(missing))
    served = Home(home)
    doors["grpc_port"] = _grpc_port(port, grpc_port, is_wanted=not no_grpc)
    if not detach:
        # The rooms above this one are imported by name, and only when they are used.
        process = importlib.import_module(_MODULE)
        process.configure(sys.stderr)
        process.run_service(served, host=host, port=port, doors=process.Doors(**doors))
        return
    running = read_address(served)
    if running is not None:
        raise SERVICE_RUNNING(
            home=str(served.path), pid=running["pid"], url=f" at {running['url']}"
        )
    address = _start(served, host, port, doors)
    if as_json:
        answer_json(address)
    else:
        click.echo(address["url"])


def _grpc_port(port: int, given: int | None, *, is_wanted: bool) -> int | None:
    if not is_wanted:
        return None
    if given is not None:
        return given
    return port + 1 if 0 < port < 65_535 else 0


@command("down", "bicycle down")
@home_option
@answers
def down_command(*, home: Path, as_json: bool) -> None:
    """Stop the service; its jobs continue."""
    served = Home(home)
    address = read_address(served)
    if address is None:
        raise SERVICE_GONE(home=str(served.path))
    pid, started = int(address["pid"]), int(address["started"])
    send_signal(pid, signal.SIGTERM)
    if not wait_for_end(pid, started, timeout_s=_END_MS / 1_000):
        raise STOP_TIMED_OUT(job="service", pid=pid, waited_ms=_END_MS)
    running = [status.id for status in list_jobs(served) if not status.state.is_final]
    if as_json:
        answer_json({**address, "running": running})
        return
    click.echo(f"the service has stopped (process {pid})")
    if running:
        click.echo(f"these jobs continue: {', '.join(running)}")


def _start(served: Home, host: str, port: int, doors: dict[str, Any]) -> dict[str, Any]:
    """Start the process and return its address, once it answers.

    Raises:
        SERVICE_START_FAILED: it ended without a word.
        BicycleError: why it did not start.
    """
    served.prepare()
    log_path = service_folder(served) / "log"
    log_path.parent.mkdir(mode=0o700, exist_ok=True)
    words = (str(served.path), host, str(port), json.dumps(doors))
    process = start_detached(_MODULE, *words, log_path=log_path)
    pause = threading.Event()
    while True:
        address = read_address(served)
        if address is not None and address["pid"] == process.pid:
            process.returncode = 0  # This process no longer waits for it.
            return address
        if process.poll() is not None:
            raise _why(log_path, process.returncode)
        pause.wait(_POLL_S)


def _why(log_path: Path, code: int) -> Exception:
    """Return the error that the process left as the last line of its log."""
    try:
        return error_from_json(json.loads(last_log_lines(log_path)[-1]))
    except (IndexError, ValueError, KeyError, TypeError):
        return SERVICE_START_FAILED(how=how_it_ended(code), log=str(log_path))
