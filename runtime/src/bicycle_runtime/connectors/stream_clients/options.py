"""Codecs and TLS of streams in jobs, from their options."""

from __future__ import annotations

from dataclasses import dataclass

from bicycle_runtime.connectors.settings import codec_for
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.formats.contract import Codec
from bicycle_sdk.stream_options import PayloadOptions
from bicycle_sdk.tls_files import TlsFiles
from bicycle_streams.options import TlsOptions


def codec_of(spec: ConnectorSpec, options: PayloadOptions) -> Codec:
    """Return the codec of payloads.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it cannot be used so.
    """
    return codec_for(
        spec, "value", str(options.value_format), record_type=spec.record_type,
        options=options.value_format_options,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls(TlsOptions):
    """The files for TLS of a client."""


def tls_options(options: TlsFiles) -> TlsOptions:
    """Return the files for TLS as the client toolkit takes them."""
    return ClientTls(
        ca_file=options.ca_file, cert_file=options.cert_file, key_file=options.key_file
    )
