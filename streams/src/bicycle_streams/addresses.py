"""Addresses of streams: one text with backend, nodes and stream names.

A ``StreamerUri`` is the location of streams: ``kafka://node-a:9092,node-b:9092`` or
``file://./events.ss``. A ``StreamUrl`` adds the streams: ``kafka://node-a:9092/orders,refunds``.
They follow the last slash, which is required. This module opens no connection and looks up no
protocol; ``connect`` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from bicycle_streams.errors import (
    MIXED_PROTOCOLS,
    NO_ENDING_SLASH,
    NOT_ONE_STREAM_KEY,
    PROTOCOL_REQUIRED,
    ZERO_NODE,
    StreamKeyError,
    StreamUrlError,
)

KEY_LENGTH_MAX = 249
_KEY = re.compile(r"[A-Za-z0-9._-]+")
_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class StreamKey(str):
    """The name of a stream, checked.

    Raises:
        StreamKeyError: the text is empty, too long, or has a character that no key has.

    Example:
        >>> StreamKey("orders.eu-1")
        'orders.eu-1'
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        if isinstance(name, cls):
            return name
        if not name:
            raise StreamKeyError(key=name, problem="it is empty")
        if len(name) > KEY_LENGTH_MAX:
            raise StreamKeyError(key=name, problem=f"it has {len(name)} characters")
        if _KEY.fullmatch(name) is None:
            strange = sorted(set(_KEY.sub("", name)))
            raise StreamKeyError(key=name, problem=f"it has {' '.join(map(repr, strange))}")
        return super().__new__(cls, name)


INTERNAL = StreamKey("SEA_STREAMER_INTERNAL")
WILDCARD = StreamKey("SEA_STREAMER_WILDCARD")


@dataclass(frozen=True, slots=True)
class StreamerUri:
    """The location of streams: a protocol, and one or more of its nodes.

    Args:
        protocol: The word before ``://``, in lower case; None if the text has no protocol.
        nodes: The nodes after it, as written; for a file one path, for stdio one empty text.

    Example:
        >>> StreamerUri.parse("kafka://node-a:1234,,kafka://node-b:1234").nodes
        ('node-a:1234', 'node-b:1234')
        >>> str(StreamerUri.parse("kafka://node-a:1234,node-b:1234"))
        'kafka://node-a:1234,node-b:1234'
    """

    protocol: str | None
    nodes: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that a text means; a slash at its end is left out.

        Raises:
            StreamUrlError: the text names no node, or nodes of several protocols.
        """
        protocols: list[str] = []
        nodes: list[str] = []
        for item in text.split(","):
            if not item:
                continue
            protocol, node = _split_protocol(item, text)
            if protocol is not None and protocol not in protocols:
                protocols.append(protocol)
            if node or protocol is not None:
                nodes.append(node.removesuffix("/"))
        if len(protocols) > 1:
            raise MIXED_PROTOCOLS(address=text, protocols=" and ".join(protocols))
        if not nodes:
            raise ZERO_NODE(address=text)
        if protocols and not all(nodes) and not _may_lack_node(protocols[0], nodes):
            raise ZERO_NODE(address=text)
        if not protocols and not all(nodes):
            raise PROTOCOL_REQUIRED(address=text)
        return cls(protocols[0] if protocols else None, tuple(nodes))

    @property
    def node(self) -> str:
        """The only node, or the first one."""
        return self.nodes[0]

    def host_and_port(self, default_port: int | None = None) -> tuple[str, int]:
        """Return host and port of the only node, without a path after a slash.

        Args:
            default_port: The port of an address without one; None: it must have one.

        Raises:
            StreamUrlError: there are several nodes, or the node is not a host and port.

        Example:
            >>> StreamerUri.parse("redis://node-a").host_and_port(6379)
            ('node-a', 6379)
            >>> StreamerUri.parse("socket://[::1]:7000").host_and_port()
            ('::1', 7000)
        """
        if len(self.nodes) != 1:
            problem = f"it has {len(self.nodes)} nodes, but {self.protocol}:// supports one"
            raise StreamUrlError(address=str(self), problem=problem)
        return self.hosts(default_port)[0]

    def hosts(self, default_port: int | None = None) -> list[tuple[str, int]]:
        """Return host and port of each node; as ``host_and_port`` otherwise."""
        return [self._host(node, default_port) for node in self.nodes]

    def _host(self, node: str, default_port: int | None) -> tuple[str, int]:
        try:
            parts = urlsplit(f"//{node}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise StreamUrlError(address=str(self), problem=str(error)) from None
        port = default_port if port is None else port
        if not host or "@" in parts.netloc:
            problem = f"{node!r} is not a host, or host:port"
            raise StreamUrlError(address=str(self), problem=problem)
        if port is None:
            raise StreamUrlError(address=str(self), problem=f"{node!r} has no port")
        return host, port

    def __str__(self) -> str:
        head = f"{self.protocol}://" if self.protocol is not None else ""
        return head + ",".join(self.nodes)


@dataclass(frozen=True, slots=True)
class StreamUrl:
    """The location and the names of streams.

    Example:
        >>> url = StreamUrl.parse("file://./path/to/file/a,b")
        >>> str(url.streamer), url.stream_keys
        ('file://./path/to/file', ('a', 'b'))
    """

    streamer: StreamerUri
    stream_keys: tuple[StreamKey, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that a text means.

        Raises:
            StreamUrlError: there is no slash after the nodes, or there are no nodes.
            StreamKeyError: the text after the last slash has invalid keys.
        """
        head, separator, rest = text.partition("://")
        if not separator:
            head, rest = "", text
        if "/" not in rest:
            if not text:
                raise ZERO_NODE(address=text)
            raise NO_ENDING_SLASH(address=text)
        location, _, keys = rest.rpartition("/")
        if not location and not head:
            raise PROTOCOL_REQUIRED(address=text)
        if not location and head == "file":
            raise ZERO_NODE(address=text)
        return cls(
            StreamerUri.parse(f"{head}{separator}{location}"),
            tuple(StreamKey(key) for key in keys.split(",") if key),
        )

    @property
    def stream_key(self) -> StreamKey:
        """The only stream.

        Raises:
            StreamUrlError: the address names no stream, or several.
        """
        if len(self.stream_keys) != 1:
            raise NOT_ONE_STREAM_KEY(address=str(self), key_count=len(self.stream_keys))
        return self.stream_keys[0]

    def __str__(self) -> str:
        return f"{self.streamer}/{','.join(self.stream_keys)}"


def _split_protocol(item: str, text: str) -> tuple[str | None, str]:
    head, separator, node = item.partition("://")
    if not separator:
        return None, item
    if not head:
        raise PROTOCOL_REQUIRED(address=text)
    if _PROTOCOL.fullmatch(head) is None:
        raise StreamUrlError(address=text, problem=f"{head!r} is not a protocol")
    return head.lower(), node


def _may_lack_node(protocol: str, nodes: list[str]) -> bool:
    """Return whether there is only one location of this kind, so that it has no name."""
    return protocol == "stdio" and nodes == [""]
