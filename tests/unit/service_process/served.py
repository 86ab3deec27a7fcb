"""A real service in a process of its own, and a client that speaks HTTP to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import read_address
from tests.waiting import PATIENCE_S, until


class Served:
    """The process of ``bicycle up`` for a home; started again it takes the same home."""

    def __init__(self, home: Path, host: str = "127.0.0.1", **doors: Any) -> None:
        self.home = Home(home)
        self.host = host
        self.doors = doors
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Served:
        self.home.prepare()
        with (self.home.path / "served.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bicycle_runtime.service_process.main", str(self.home.path),
                 self.host, "0", json.dumps(self.doors)],
                stdout=log, stderr=log, env=environment_for_python(),
            )  # fmt: skip

        def address() -> dict[str, Any] | None:
            found = read_address(self.home)
            assert self.process is not None
            assert self.process.poll() is None, (self.home.path / "served.log").read_text()
            return found if found is not None and found["pid"] == self.process.pid else None

        self.url = until(address, "the service")["url"]
        return self

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE_S)

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request; a body is sent as JSON, and ``a_b`` is the header ``a-b``."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.netloc, timeout=PATIENCE_S)
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        if method == "POST":
            sent = {"content-type": "application/json", **sent}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the JSON of a good answer."""
        code, _headers, data = self.ask("GET", path)
        assert code == 200, (path, code, data)
        return json.loads(data)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """Return the operation that a request begins, when it is over."""
        code, _headers, data = self.ask("POST", path, body, **headers)
        assert code == 202, (path, code, data)
        return self.ended(json.loads(data)["id"])

    def ended(self, number: int | str) -> Any:
        """Return an operation when it is over; each request of the service waits for a minute."""

        def operation() -> Any:
            found = self.get(f"/api/v1/operations/{number}?wait=60")
            return None if found["state"] in ("waiting", "running") else found

        return until(operation, f"the end of operation {number}")

    def states(self, job: str) -> list[str]:
        """Return the states of a job, the oldest first."""
        found = self.get(f"/api/v1/jobs/{job}/states")["items"]
        return [change["new"] for change in reversed(found)]
