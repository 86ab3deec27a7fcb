"""The figures of a home's jobs behind a port of this machine, without the service.

Each scrape reads the status files, as ``bicycle list`` does. Nobody needs a token: there is nothing
but figures, and only this machine reaches the port.
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
_SILENT_S = 10.0  # A client that says nothing for so long is left.


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
        home: Whose jobs.
        port: Of the loopback address; 0 takes any that is free.
        clock: Tells how old figures are.

    Raises:
        METRICS_PORT_TAKEN: another process listens there, or nobody may.
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
