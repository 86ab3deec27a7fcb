"""The HTTP sink: records of sealed epochs in the JSON bodies of requests.

A request has a key that is the same whenever the epoch is published again: a server that drops
known keys gets each record once. Records that the server refuses for good are kept beside the
checkpoint; requests that it may take later are sent again.
"""

from __future__ import annotations

import json
import logging
import ssl
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import httpx

from bicycle_runtime.base.http_headers import reveal_headers
from bicycle_runtime.connectors.errors import HTTP_REFUSED, HTTP_UNREACHABLE
from bicycle_runtime.connectors.lines import json_lines
from bicycle_runtime.connectors.patience import Patience, PatientPublication
from bicycle_runtime.connectors.runs import run_of, storage_id_of
from bicycle_runtime.connectors.settings import option_error, read_options
from bicycle_runtime.connectors.staging import StagedWriter, staged_blocks
from bicycle_runtime.contract import (
    ChecksBeforeStart,
    ConnectorSpec,
    DriverServices,
    Guarantee,
    Refusal,
    Sink,
    StagedFile,
    StagedPublication,
    WriterTask,
)
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event
from bicycle_sdk.sinks import HttpSinkOptions
from bicycle_streams.errors import StreamError
from bicycle_streams.options import tls_context
from bicycle_streams.tls_failures import tls_hint

_LOG = logging.getLogger(__name__)
# The server may take these later; everything else below 500 is final.
_LATER = frozenset({408, 409, 425, 429})
# These are about records; others, such as 401 or 404, about the address or its rights.
_REFUSES_RECORDS = frozenset({400, 413, 422})
_ANSWER_LETTERS_MAX = 500
_PAUSE_S_MAX = 60.0


class _LaterError(Exception):
    """A server's response that it may accept the request later."""


@dataclass(frozen=True, slots=True)
class _JsonWriterFactory:
    """Opens writers that stage one JSON document per line; picklable."""

    def open(self, task: WriterTask) -> StagedWriter:
        """Return a writer for one subtask and epoch."""
        return StagedWriter(task, "records.jsonl", json_lines)


@dataclass(slots=True)
class _Sending:
    """The sending of an epoch: its keys, its form, and refused records."""

    epoch: int
    begin: str
    body: str
    refused: list[Refusal] = field(default_factory=list)

    def key(self, number: int) -> str:
        """Return the key of a record."""
        return f"{self.begin}-{number}"

    def body_of(self, lines: Sequence[bytes], first: int) -> bytes:
        """Return the body for records, of which the first has this number."""
        if self.body == "object":
            return lines[0]
        if self.body == "keyed":
            lines = [
                b'{"key":"%s","record":%s}' % (self.key(first + index).encode(), line)
                for index, line in enumerate(lines)
            ]
        return b"[" + b",".join(lines) + b"]"


class HttpSink(StagedPublication, PatientPublication, ChecksBeforeStart, Sink):
    """Sends records to one address."""

    options_class = HttpSinkOptions
    accepts = "frames"

    def __init__(self, spec: ConnectorSpec) -> None:
        super().__init__(spec)
        self._options = options = read_options(HttpSinkOptions, spec)
        self._headers = dict(options.headers or {})
        _check_options(options, spec)
        self._tls = _tls_of(options, spec)
        self.guarantee = Guarantee.EXACTLY_ONCE if options.idempotent else Guarantee.AT_LEAST_ONCE
        self.refuses_records = options.on_refused == "keep"
        self._patience = Patience(
            vertex=spec.vertex_id,
            timeout_ms=options.publish_timeout_ms,
            is_away=lambda error: isinstance(error, httpx.TransportError | _LaterError),
            given_up=self._unreachable,
        )
        self._client: httpx.Client | None = None
        self._run = self._storage_id = ""

    def check(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Resolve the secrets, and check that the server responds.

        Raises:
            HEADER_UNUSABLE: the value of a header cannot be sent.
            HTTP_UNREACHABLE: it does not.
            SecretError: a secret is not at the location of its reference.
        """
        with self._open() as client:
            try:
                client.head(self._options.url)
            except httpx.TransportError as error:
                raise self._unreachable(0, error) from error

    def start(self, services: DriverServices, state: Mapping[str, Any]) -> None:
        """Choose the run, and open the client.

        Raises:
            HTTP_UNREACHABLE: no server answers.
        """
        self.check(services, state)
        self._services = services
        self._storage_id = storage_id_of(services)
        self._run = run_of(state, self._storage_id)
        self._client = self._open()

    def writer(self) -> _JsonWriterFactory:
        """Return the factory of writers of JSON lines."""
        return _JsonWriterFactory()

    def prepare(self, epoch: int, staged: Sequence[StagedFile], *, is_last: bool) -> dict[str, Any]:
        """Name the staged files, and all that keys and bodies depend on."""
        return {
            "run": self._run,
            "place": self._storage_id,
            "body": self._options.body,
            "batch_records": self._options.batch_records,
            **super().prepare(epoch, staged, is_last=is_last),
        }

    def publish(self, epoch: int, state: Mapping[str, Any]) -> None:
        """Send the epoch.

        1. An epoch that was sent to its end is not sent again.
        2. Each request is tried until the server takes or refuses it.
        3. Refused records are kept, and the epoch is noted as sent.

        Raises:
            HTTP_REFUSED: the server refuses requests, whatever is in them.
            HTTP_UNREACHABLE: it took no request for too long.
            PublishInterruptedError: the job had to end meanwhile.
        """
        files = self.staged_files(state)
        if not files:
            return
        # With the sum, an epoch that was run again, with other records, has other keys.
        checksum = zlib.crc32(b"".join(file.crc32.to_bytes(4) for file in files))
        sending = _Sending(epoch, f"{state['run']}-{epoch}-{checksum:08x}", state["body"])
        storage, note = self._services.storage, f"{self._services.prefix}/sent"
        # 1. An epoch that was sent to its end is not sent again.
        if storage.exists(note) and storage.read(note) == sending.begin.encode():
            return
        # 2. Each request is tried until the server takes or refuses it.
        lines, first = self._lines(files), 0
        while batch := list(islice(lines, state["batch_records"])):
            self._send(sending, batch, first)
            first += len(batch)
        # 3. Refused records are kept, and the epoch is noted as sent.
        if sending.refused:
            self._keep(sending)
        storage.write(note, sending.begin.encode())

    def stop(self) -> None:
        """Close the client."""
        self.interrupt()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _lines(self, files: Sequence[StagedFile]) -> Iterator[bytes]:
        for file in files:
            left = b""
            for block in staged_blocks(self._services.storage, file):
                *lines, left = (left + block).split(b"\n")
                yield from lines

    def _send(self, sending: _Sending, lines: Sequence[bytes], first: int) -> None:
        """Send records in one request; halve a refused one to find the refused records."""
        answers: list[httpx.Response] = []
        act = partial(self._ask, sending, lines, first, answers)
        options = self._options
        self._patience.carry_out(
            act, epoch=sending.epoch, target=options.url, clock=self._services.clock
        )
        answer = answers[-1]
        if answer.is_success:
            return
        if answer.status_code not in _REFUSES_RECORDS:
            raise self._refusal(sending, answer)
        if len(lines) > 1:
            half = len(lines) // 2
            self._send(sending, lines[:half], first)
            self._send(sending, lines[half:], first + half)
            return
        if options.on_refused == "fail":
            raise self._refusal(sending, answer)
        text = answer.text[:_ANSWER_LETTERS_MAX] or answer.reason_phrase
        sending.refused.append(
            Refusal(
                key=sending.key(first),
                exception="RefusedByServer",
                message=f"{options.url} responded with {answer.status_code}: {text}",
                record=json.loads(lines[0]),
            )
        )

    def _ask(
        self, sending: _Sending, lines: Sequence[bytes], first: int, answers: list[httpx.Response]
    ) -> None:
        """Make one attempt.

        Raises:
            _LaterError: the server may take the request later.
        """
        assert self._client is not None
        answer = self._client.request(
            self._options.method,
            self._options.url,
            content=sending.body_of(lines, first),
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": f"{sending.key(first)}-{len(lines)}",
            },
        )
        if answer.status_code >= 500 or answer.status_code in _LATER:
            self._patience.is_stopping.wait(_asked_pause_s(answer))
            raise _LaterError(f"it responded with {answer.status_code} {answer.reason_phrase}")
        answers.append(answer)

    def _keep(self, sending: _Sending) -> None:
        """Write refused records as dead letters; again is harmless."""
        assert self._services.letters is not None
        path = self._services.letters.keep(
            self.spec.vertex_id, sending.epoch, f"refused-{sending.begin}", sending.refused
        )
        log_event(
            _LOG, "records_refused", level=logging.WARNING, operator=self.spec.vertex_id,
            epoch=sending.epoch, record_count=len(sending.refused), path=path,
        )  # fmt: skip

    def _open(self) -> httpx.Client:
        return httpx.Client(
            headers=reveal_headers(self._headers),
            timeout=self._options.request_timeout_ms / 1_000,
            verify=True if self._tls is None else self._tls,
        )

    def _refusal(self, sending: _Sending, answer: httpx.Response) -> BicycleError:
        reason = (
            _redirect_reason(answer) or answer.text[:_ANSWER_LETTERS_MAX] or answer.reason_phrase
        )
        return HTTP_REFUSED(
            vertex=self.spec.vertex_id,
            url=self._options.url,
            epoch=sending.epoch,
            status=answer.status_code,
            reason=reason,
        )

    def _unreachable(self, waited_ms: int, error: Exception) -> BicycleError:
        reason = str(error) or type(error).__name__
        return HTTP_UNREACHABLE(
            vertex=self.spec.vertex_id,
            url=self._options.url,
            waited_ms=waited_ms,
            reason="; ".join(filter(None, (reason, tls_hint(error)))),
        )


def _asked_pause_s(answer: httpx.Response) -> float:
    """Return how long the server asks to be left alone, within a bound."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _PAUSE_S_MAX) if text.isdecimal() else 0.0


def _check_options(options: HttpSinkOptions, spec: ConnectorSpec) -> None:
    try:
        url = httpx.URL(options.url)
    except httpx.InvalidURL as error:
        raise _wrong(spec, "url", f"it is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise _wrong(spec, "url", "it is not the URL of an HTTP server")
    if url.userinfo:
        raise _wrong(
            spec, "url", "it contains a user or password, which would be stored in the graph"
        )


def _tls_of(options: HttpSinkOptions, spec: ConnectorSpec) -> ssl.SSLContext | None:
    """Return the TLS context of the given files; None where the client has its own."""
    if options.ca_file is None and options.cert_file is None and options.key_file is None:
        return None
    try:
        return tls_context(options, options.url, "https")
    except StreamError as error:
        raise option_error(spec, "url", error.summary, error.remedy) from None


def _redirect_reason(answer: httpx.Response) -> str:
    """Return where an answer redirects to, without secrets that may be in the address."""
    if not answer.has_redirect_location:
        return ""
    target = answer.url.join(answer.headers["Location"])
    shown = target.copy_with(username=None, password=None, query=None, fragment=None)
    return (
        f"it redirects to {shown}, and redirects are not followed; if that is right, set url to it"
    )


def _wrong(spec: ConnectorSpec, name: str, problem: str) -> BicycleError:
    hint = (
        "use e.g. url='https://host/path', headers={'Authorization': Secret.env('TOKEN')}, "
        "and batch_records=1 with body=object"
    )
    return option_error(spec, name, problem, hint)
