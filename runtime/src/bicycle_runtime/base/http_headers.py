"""Headers of HTTP requests, which may contain secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bicycle_runtime.base.errors import HEADER_UNUSABLE
from bicycle_sdk.secrets import Secret

# Source: RFC 9110, 5.5, without the obsolete bytes after ASCII.
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")


def reveal_headers(headers: Mapping[str, str | Secret]) -> dict[str, str]:
    """Return headers with revealed secrets.

    A client would show a wrong value in its error, so values are checked here.

    Raises:
        HEADER_UNUSABLE: a value, which is not shown, cannot be sent.
        SecretError: a secret is not at the location of its reference.
    """
    revealed = {}
    for name, value in headers.items():
        text = value.reveal() if isinstance(value, Secret) else value
        if not _VALUE.fullmatch(text):
            raise HEADER_UNUSABLE(name=name)
        revealed[name] = text
    return revealed
