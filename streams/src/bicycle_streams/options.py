"""Options that every backend of streams takes; each backend adds its own to them."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from bicycle_sdk.former_names import FormerNameWarning, collect_former_names
from bicycle_sdk.locations import calling_frame
from bicycle_sdk.options import CheckedOptions, from_mapping, option
from bicycle_sdk.tls_files import TlsFiles
from bicycle_streams.errors import STREAM_TLS_REFUSED, STREAM_TLS_UNUSABLE, StreamConnectError
from bicycle_streams.tls_failures import tls_hint

_T = TypeVar("_T")
_PACKAGE = __name__.partition(".")[0]
Mode = Literal["real-time", "resumable", "load-balanced"]
Start = Literal["latest", "earliest"]
Durability = Literal["at-most-once", "at-least-once", "exactly-once"]


def read_options(cls: type[_T], values: Mapping[str, object], *, file: str = "") -> _T:
    """Return a checked options object; former names cause a ``FormerNameWarning``.

    Args:
        cls: The class of the options.
        values: Names and values.
        file: The file with the values. Without one, the warning has the location of the caller.

    Raises:
        OptionError: a name or a value is wrong; see ``from_mapping``.
    """
    with collect_former_names() as found:
        options = from_mapping(cls, values)
    for each in found:
        frame = calling_frame(_PACKAGE)
        assert frame is not None, "a program calls the toolkit"
        known = frame.f_globals
        warnings.warn_explicit(
            str(each._replace(location=file)), FormerNameWarning, frame.f_code.co_filename,
            frame.f_lineno, module=known.get("__name__"),
            registry=known.setdefault("__warningregistry__", {}),
        )  # fmt: skip
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamerOptions(CheckedOptions):
    """The options of a streamer of any backend."""

    connect_timeout_ms: int = option(
        10_000, low=1, high=600_000, doc="Time limit for a connection."
    )
    prefetch_messages: int = option(
        1_000,
        low=1,
        high=1_000_000,
        doc="Maximum number of unread messages in a consumer; over WebSockets, sockets and pipes "
        "also at most 32 MiB plus one message.",
    )
    send_queue_messages: int = option(
        100_000,
        low=1,
        high=10_000_000,
        doc="Maximum number of messages in the send queue.",
    )
    unacknowledged_max: int = option(
        100_000,
        low=1,
        high=10_000_000,
        doc="Maximum number of delivered messages of a group that wait for ack(message).",
    )


@dataclass(frozen=True, kw_only=True)
class TlsOptions(TlsFiles):
    """The files for TLS, as part of the options of a backend."""

    __slots__ = ()  # The slots of a subclass are added to these.

    def tls_context(
        self, address: str, protocol: str, *, is_server: bool = False
    ) -> ssl.SSLContext | None:
        """Return the TLS context of these files; arguments as of ``tls_context``."""
        return tls_context(self, address, protocol, is_server=is_server)


def tls_context(
    files: TlsFiles, address: str, protocol: str, *, is_server: bool = False
) -> ssl.SSLContext | None:
    """Return the TLS context for an address, or None for a protocol without TLS.

    Args:
        files: The files.
        address: The address to connect to or to listen on.
        protocol: The protocol with TLS.
        is_server: Whether it is a server; with ``ca_file``, clients need certificates, too.

    Raises:
        STREAM_TLS_UNUSABLE: a file cannot be used, or is given for a protocol without TLS.
    """
    given = [path for path in (files.ca_file, files.cert_file, files.key_file) if path is not None]
    try:
        if not address.startswith(f"{protocol}://"):
            if given:
                raise ValueError(f"certificate files are set, but only {protocol}:// supports TLS")
            return None
        for path in given:
            Path(path).open("rb").close()  # Its error names the file, unlike the errors of TLS.
        return _context(files, is_server=is_server)
    except (OSError, ValueError) as error:  # An SSLError is an OSError.
        raise STREAM_TLS_UNUSABLE(address=address, reason=str(error)) from None


def _context(files: TlsFiles, *, is_server: bool) -> ssl.SSLContext:
    if not is_server:
        context = ssl.create_default_context(cafile=files.ca_file)
    elif files.cert_file is None:
        raise ValueError("a server needs cert_file and key_file")
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if files.ca_file is not None:
            context.load_verify_locations(files.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    if files.cert_file is not None:
        context.load_cert_chain(files.cert_file, files.key_file, password="")
    return context


def connect_error(address: str, error: Exception | str) -> StreamConnectError:
    """Return the error of an address without an answer or with a failed handshake."""
    advice = tls_hint(error)
    if advice is None:
        return StreamConnectError(address=address, reason=str(error))
    return STREAM_TLS_REFUSED(address=address, reason=str(error), advice=advice)
