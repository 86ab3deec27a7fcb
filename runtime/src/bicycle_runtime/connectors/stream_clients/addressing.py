"""Addresses of streams in jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from bicycle_runtime.connectors.errors import STREAM_ADDRESS_WRONG
from bicycle_runtime.connectors.settings import option_error
from bicycle_runtime.contract import ConnectorSpec
from bicycle_sdk.options import describe
from bicycle_sdk.secrets import Secret
from bicycle_sdk.tls_files import TlsFiles
from bicycle_streams.addresses import WILDCARD, StreamUrl
from bicycle_streams.connecting import backend_of
from bicycle_streams.errors import StreamError, StreamUrlError
from bicycle_streams.options import tls_context


def url_of(
    spec: ConnectorSpec, address: str, protocols: Collection[str], *, is_one: bool = False
) -> StreamUrl:
    """Return the address of streams of a backend; ``is_one``: of one stream.

    Raises:
        STREAM_ADDRESS_WRONG: it is no address.
    """
    try:
        url = StreamUrl.parse(address)
    except StreamError as error:
        raise address_error(spec, address, error.summary) from None
    if not url.stream_keys:
        raise address_error(spec, address, "it has no stream")
    if WILDCARD in url.stream_keys:
        raise address_error(spec, address, "a job must name each of its streams")
    if is_one and len(url.stream_keys) != 1:
        raise address_error(spec, address, "a sink writes one stream")
    if url.streamer.protocol not in protocols:
        raise address_error(spec, address, f"its protocol must be one of {', '.join(protocols)}")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The address and the options of a server; picklable, without the secrets.

    Args:
        url: The streams.
        words: The options; a secret is a reference.
    """

    url: StreamUrl
    words: Mapping[str, Any]

    @classmethod
    def of(cls, spec: ConnectorSpec, url: StreamUrl, options: Any, *, tls_protocol: str) -> Self:
        """Return the server of a connector.

        Raises:
            CONNECTOR_OPTION_WRONG: TLS files cannot be used.
            STREAM_ADDRESS_WRONG: a port is wrong.
        """
        try:
            url.streamer.hosts(backend_of(url.streamer).default_port or 0)
        except StreamUrlError as error:
            raise address_error(spec, options.address, error.facts["problem"]) from None
        check_tls(spec, options, url, tls_protocol)
        return cls(url=url, words=client_words(options, url))

    def options(self, **more: object) -> Any:
        """Return the options of the client, with more of them, and with secrets."""
        known = {n: v.reveal() if isinstance(v, Secret) else v for n, v in self.words.items()}
        make: Any = backend_of(self.url.streamer).options_type
        return make(**{**known, **more})


def client_words(options: object, url: StreamUrl) -> dict[str, object]:
    """Return the options with a value that the toolkit has for the address."""
    backend = backend_of(url.streamer).options_type
    names = {info.name for info in describe(backend)} & {
        info.name for info in describe(type(options))
    }
    found = {name: getattr(options, name) for name in sorted(names)}
    return {name: value for name, value in found.items() if value is not None}


def check_tls(
    spec: ConnectorSpec,
    options: TlsFiles,
    url: StreamUrl,
    protocol: str,
    *,
    is_server: bool = False,
) -> None:
    """Refuse unusable TLS files before the start; errors as of ``tls_context``.

    Raises:
        CONNECTOR_OPTION_WRONG: so it is.
    """
    try:
        tls_context(options, str(url.streamer), protocol, is_server=is_server)
    except StreamError as error:
        raise option_error(spec, "address", error.summary, error.remedy) from None


def address_error(spec: ConnectorSpec, address: str, problem: str) -> Exception:
    """Return the error about an address."""
    return STREAM_ADDRESS_WRONG(vertex=spec.vertex_id, address=address, problem=problem)
