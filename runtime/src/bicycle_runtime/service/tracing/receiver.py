"""The configuration of spans: the variables that OpenTelemetry has for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.service.errors import TRACING_EXTRA_MISSING

_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LIBRARIES = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk")


def is_receiver_configured(libraries: Sequence[str] = _LIBRARIES) -> bool:
    """Return whether a receiver of spans is configured.

    Args:
        libraries: Modules that are needed then.

    Raises:
        TRACING_EXTRA_MISSING: it is, and the libraries are not installed.
    """
    found = [name for name, value in chosen_variables(_VARIABLES).items() if value]
    if found and not all(map(_is_installed, libraries)):
        raise TRACING_EXTRA_MISSING(variable=found[0])
    return bool(found)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Not even the package above it.
        return False
