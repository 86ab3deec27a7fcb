"""Records completed from a server's responses, with many requests in flight."""

from __future__ import annotations

from string import Formatter
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from bicycle_runtime.base.http_headers import reveal_headers
from bicycle_runtime.endpoints.field_functions import field_of, text_of
from bicycle_runtime.pipelines.operator_keys import HttpCall
from bicycle_sdk import AsyncIOFunction, Context
from bicycle_sdk.secrets import Secret

_ANSWER_BYTES_MAX = 16 << 20


def fields_in_url(url: str) -> list[str]:
    """Return the fields whose values an address takes.

    Raises:
        ValueError: it is no address of HTTP, or has them in its host.

    Example:
        >>> fields_in_url("https://api.example/users/{user}?day={day}")
        ['user', 'day']
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or "{" in parts.netloc:
        raise ValueError("expected http:// or https:// with a host, and fields only after it")
    names = [name for _, name, _, _ in Formatter().parse(url) if name is not None]
    if not all(name.isidentifier() for name in names):
        raise ValueError("fields must have the form {name}")
    return names


class CallServer(AsyncIOFunction[Any, Any]):
    """A function that requests data from a server for each record.

    An answer that is an error, no JSON or not in time is the failure of the record.

    Args:
        spec: The request, and the use of the response.
    """

    def __init__(self, spec: HttpCall) -> None:
        self.spec = spec

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - the contract
        """Open the client; it connects with the first request."""
        # An extra, and needed by workers that call.
        import httpx

        secrets = {name: Secret.parse(text) for name, text in self.spec.secret_headers.items()}
        limits = httpx.Limits(max_connections=self.spec.capacity)
        headers = reveal_headers({**self.spec.headers, **secrets})
        self._client = httpx.AsyncClient(headers=headers, limits=limits, timeout=None)
        self._names = fields_in_url(self.spec.url)

    async def close(self) -> None:
        """End the connections."""
        await self._client.aclose()

    async def async_invoke(self, value: Any) -> list[Any]:
        """Return the record with the answer."""
        found = {name: quote(text_of(field_of(value, name)), safe="") for name in self._names}
        content = msgspec.json.encode(value) if self.spec.method == "POST" else None
        headers = {"Content-Type": "application/json"} if content is not None else {}
        request = self._client.stream(
            self.spec.method, self.spec.url.format(**found), content=content, headers=headers
        )
        answer = bytearray()
        async with request as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) > _ANSWER_BYTES_MAX:
                    raise ValueError(f"the response has more than {_ANSWER_BYTES_MAX:,} bytes")
        return [self._complete(value, msgspec.json.decode(answer))]

    def timeout(self, value: Any) -> list[Any]:  # noqa: ARG002 - the contract
        """Raise an error for ``on_error`` about a record without a response in time."""
        raise TimeoutError(f"no response within {self.spec.timeout}")

    def _complete(self, value: Any, answer: Any) -> Any:
        if self.spec.result is not None:
            return {**value, self.spec.result: answer}
        if not isinstance(answer, dict):
            kind = type(answer).__name__
            raise ValueError(f"the response is {kind}, but must be an object to add its fields")
        return {**value, **answer}
