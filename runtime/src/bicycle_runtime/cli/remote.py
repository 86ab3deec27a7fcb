"""The client of a service: requests, operations, uploads and streams over HTTP.

It knows addresses and tokens, and no command. Commands reach jobs by ``cli.access``, which decides
whether there is a service to ask.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.base.http_headers import reveal_headers
from bicycle_runtime.cli.errors import SERVICE_UNREACHABLE, SERVICE_URL_UNUSABLE, TOKEN_EXPOSED
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.quantities import duration_text

_TIMEOUT_S = 90.0
_WAIT_S = 30
_FIRST_PROGRESS_S, _PROGRESS_S = 2.0, 3.0
_FIRST_WAIT_S = 1  # A caller whose job waits for slots is informed soon.
_OK_MAX = 299
_JSON = "application/json"
_LOOPBACK_NAMES = ("localhost",)


@contextmanager
def progress(work: str) -> Iterator[None]:
    """Write to standard error for how long work that takes long has run."""
    began, is_over = time.monotonic(), threading.Event()

    def show() -> None:
        pause_s = _FIRST_PROGRESS_S
        while not is_over.wait(pause_s):
            pause_s = _PROGRESS_S
            taken = duration_text(round((time.monotonic() - began) * 1_000))
            click.echo(f"{work}: {taken} so far", err=True)

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A service at an address.

    Attributes:
        url: Its address, as ``bicycle up`` prints it.
        token: The token of the caller; None if the service requires no token.
        ca: PEM file with the CA certificates that verify the service; None for the certificates
            of the machine.
    """

    url: str
    token: str | None = None
    ca: str | None = None

    def __post_init__(self) -> None:
        """Check that the address is valid, and that a token is not sent in the clear.

        Raises:
            SERVICE_URL_UNUSABLE: it is no URL of a service.
            TOKEN_EXPOSED: others could read the token on its way.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SERVICE_URL_UNUSABLE(url=self.url)
        if self.token and parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise TOKEN_EXPOSED(url=self.url)

    def get(self, path: str, **query: Any) -> Any:
        """Return the resource at a path of the API; None parameters are omitted.

        Raises:
            SERVICE_UNREACHABLE: there is no response, or not from a service of Bicycle.
            BicycleError: the service refuses.
        """
        return self._ask("GET", _with_query(path, query))

    def operation(
        self, path: str, facts: Mapping[str, Any] | None = None, *, method: str = "POST"
    ) -> dict[str, Any]:
        """Request an operation, and return its result.

        Raises:
            SERVICE_UNREACHABLE: see ``get``.
            BicycleError: the service refuses, or the operation failed.
        """
        body = json.dumps(facts or {}).encode() if method == "POST" else b""
        return self._over(self._ask(method, path, body=body, kind=_JSON if body else ""))

    def upload(self, *, wheel: Path, lock: Path | None) -> dict[str, Any]:
        """Upload a wheel, and return the service's description of the plugin.

        Raises:
            SERVICE_UNREACHABLE: see ``get``.
            BicycleError: the service refuses the wheel.
        """
        body, kind = _form({"wheel": wheel, **({} if lock is None else {"lock": lock})})
        with progress(f"the service builds the environment of {wheel.name}"):
            plugin: dict[str, Any] = self._ask("POST", "/plugins", body=body, kind=kind)
            # An operation, if it takes long.
            return self._result(plugin)["plugin"] if "state" in plugin else plugin

    def events(self, path: str, **query: Any) -> Iterator[tuple[str, Any]]:
        """Yield events of a stream, each with its kind, until the service ends it.

        Raises:
            SERVICE_UNREACHABLE: see ``get``.
            BicycleError: the service refuses.
        """
        with self._answer("GET", _with_query(path, query), b"", "") as answer:
            kind = ""
            for line in answer:
                word, _, text = line.decode().rstrip("\r\n").partition(": ")
                if word == "event":
                    kind = text
                elif word == "data":
                    yield kind, json.loads(text)

    def _over(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until an operation is over, with its progress; return its result."""
        kind, job = str(operation["kind"]).replace("_", " "), operation.get("job", "")
        with progress(f"{kind} of {job}" if job else kind):
            return self._result(operation)

    def _result(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until an operation is over; return its result."""
        told, wait_s = "", _FIRST_WAIT_S
        while operation["state"] in ("waiting", "running"):
            operation = self.get(f"/operations/{operation['id']}", wait=wait_s)
            reason, wait_s = operation.get("reason", ""), _WAIT_S
            if reason not in ("", told):
                told = reason
                click.echo(f"{operation['job']} is queued: it {reason}", err=True)
        if operation["error"] is not None:
            raise error_from_json(operation["error"])
        result: dict[str, Any] = operation["result"]
        return result

    def _ask(self, method: str, path: str, *, body: bytes = b"", kind: str = "") -> Any:
        with self._answer(method, path, body, kind) as answer:
            return json.loads(answer.read())

    @contextmanager
    def _answer(
        self, method: str, path: str, body: bytes, kind: str
    ) -> Iterator[http.client.HTTPResponse]:
        """Hold a good answer open.

        Raises:
            HEADER_UNUSABLE: the token cannot be sent.
            SERVICE_UNREACHABLE: see ``get``.
            BicycleError: the service refuses.
        """
        headers = {"Content-Type": kind} if kind else {}
        if self.token:
            headers |= reveal_headers({"Authorization": f"Bearer {self.token}"})
        try:
            connection = self._connection()
        except OSError as error:
            raise SERVICE_UNREACHABLE(url=self.url, reason=str(error)) from error
        try:
            connection.request(method, f"/api/v1{path}", body or None, headers)
            answer = connection.getresponse()
            if answer.status > _OK_MAX:
                raise _refusal(json.loads(answer.read()))
            yield answer
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            reason = str(error) or type(error).__name__
            raise SERVICE_UNREACHABLE(url=self.url, reason=reason) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self.ca)
        return http.client.HTTPSConnection(parts.netloc, timeout=_TIMEOUT_S, context=context)


def job_path(job: str, *words: str) -> str:
    """Return the path of a job, with further parts.

    Example:
        >>> job_path("word count", "logs")
        '/jobs/word%20count/logs'
    """
    return "/".join(["/jobs", *(quote(word, safe="") for word in (job, *words))])


def _refusal(told: Mapping[str, Any]) -> BicycleError:
    """Return the error in a service's response, with its code, fix and location."""
    error = error_from_json({**told, "facts": {}})
    return error.with_facts(location=told["location"]) if told["location"] else error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK_NAMES


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    words = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(words)}" if words else path


def _form(files: Mapping[str, Path]) -> tuple[bytes, str]:
    """Return files as the body of a form, and its type."""
    border = uuid.uuid4().hex
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{name}"; filename="{path.name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + path.read_bytes()
        + b"\r\n"
        for name, path in files.items()
    ]
    return b"".join(parts) + f"--{border}--\r\n".encode(), f"multipart/form-data; boundary={border}"
