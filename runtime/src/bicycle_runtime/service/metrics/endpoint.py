"""The figures of a home's jobs behind a port of this machine, without the service.

Each scrape reads the status files, as ``bicycle list`` does. No token is required: only metrics are
served, and only this machine can reach the port.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bicycle_runtime.jobs.control.job_queries import list_jobs
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.errors import METRICS_PORT_TAKEN
from bicycle_runtime.service.metrics.metrics import MetricsText
from bicycle_runtime.service.watching.fleet import FleetView, view_of
from bicycle_sdk.clock import Clock

_HOST = "127.0.0.1"
_PATH = "/metrics"
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SILENT_S = 10.0  # A client that sends nothing for this time is disconnected.


class _JobsOfHome:
    """The jobs of a home, read again on each request."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home, self._clock = home, clock

    @property
    def view(self) -> FleetView:
        return view_of(list_jobs(self._home), now_ms=self._clock.now_ms())


@contextmanager
def serving_metrics(home: Home, *, port: int, clock: Clock) -> Iterator[str]:
    """Serve GET /metrics inside the block, and yield the URL.

    Args:
        home: The home with the jobs.
        port: Port of the loopback address; 0 selects a free port.
        clock: The clock for the age of metrics.

    Raises:
        METRICS_PORT_TAKEN: another process uses the port, or this user may not use it.
    """
    jobs = _JobsOfHome(home, clock)

    class Handler(BaseHTTPRequestHandler):
        """Answers one client."""

        timeout = _SILENT_S

        def do_GET(self) -> None:
            if self.path != _PATH:
                self.send_error(404, "only /metrics is served here")
                return
            body = MetricsText(jobs).text(now_ms=clock.now_ms()).encode()
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Ignore log messages: scrapes are not events of a job."""

    try:
        server = ThreadingHTTPServer((_HOST, port), Handler)
    except OSError as error:
        raise METRICS_PORT_TAKEN(port=port, reason=error.strerror or str(error)) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}{_PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
