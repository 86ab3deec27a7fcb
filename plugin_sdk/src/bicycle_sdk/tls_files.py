"""The files for TLS, as options of connectors and of the client toolkit."""

from __future__ import annotations

from bicycle_sdk.options import option, shared_options

__all__ = ["TlsFiles"]


@shared_options
class TlsFiles:
    """The files for TLS, as part of other options."""

    __slots__ = ()  # Options classes with slots have room for these, too.

    ca_file: str | None = option(
        default=None,
        doc="PEM file with trusted CA certificates; default: the certificates of the system.",
    )
    cert_file: str | None = option(
        default=None, doc="PEM file with the certificate of this side and its chain."
    )
    key_file: str | None = option(
        default=None, doc="PEM file with the private key of the certificate."
    )
