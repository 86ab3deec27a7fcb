"""Codecs of streams in jobs, from their options."""

from __future__ import annotations

from bicycle_runtime.connectors.settings import codec_for
from bicycle_runtime.contract import ConnectorSpec
from bicycle_runtime.formats.contract import Codec
from bicycle_sdk.stream_options import PayloadOptions


def codec_of(spec: ConnectorSpec, options: PayloadOptions) -> Codec:
    """Return the codec of payloads.

    Raises:
        CONNECTOR_OPTION_WRONG: there is no such format, or it cannot be used so.
    """
    return codec_for(
        spec, "value", str(options.value_format), record_type=spec.record_type,
        options=options.value_format_options,
    )  # fmt: skip
