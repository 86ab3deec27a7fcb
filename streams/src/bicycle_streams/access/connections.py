"""Connections of a server: bounds per address and per identity.

A connection belongs to a *stranger* until a request on it has been authenticated. Strangers are
counted by address, separately from all others: a new connection is always accepted, and closes the
oldest connection of the address with the most connections. So connections that never send a request
do not affect callers that send one. Connections of known callers are counted by identity; a new
connection closes an idle one. Requests that must work in an emergency (health, stop, cancel) have a
reserve. Callers on this machine that need no token share the total, without a limit per caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from bicycle_sdk.options import CheckedOptions, option
from bicycle_streams.access.errors import CONNECTIONS_EXHAUSTED, CONNECTIONS_TOO_MANY
from bicycle_streams.access.roles import LOCAL, NOBODY, Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions(CheckedOptions):
    """Bounds of connections that are open at once.

    Raises:
        OptionError: a value is out of bounds.
    """

    strangers: int = option(
        256, low=1, high=100_000, doc="Connections without an authenticated request."
    )
    strangers_per_address: int = option(
        128, low=1, high=100_000, doc="Connections of one address without an authenticated request."
    )
    known: int = option(256, low=1, high=100_000, doc="Connections of authenticated callers.")
    known_per_identity: int = option(
        64, low=1, high=100_000, doc="Connections of one token, or of one client certificate."
    )
    streams: int = option(192, low=1, high=100_000, doc="Event streams.")
    streams_per_identity: int = option(
        32, low=1, high=100_000, doc="Event streams of one token, or of one client certificate."
    )
    reserve: int = option(
        32, low=1, high=100_000, doc="Additional connections for health, stop, drain and cancel."
    )
    reserve_per_identity: int = option(
        4, low=1, high=100_000, doc="Additional connections of one token."
    )


class OpenConnection:
    """One open connection, or one call of gRPC.

    Args:
        owner: Counts it.
        address: The address of the client.
        drop: Ends the connection; called at most once, from within ``owner``.

    Attributes:
        drop: Ends the connection; replaced when there is a cleaner way to end it.
        is_bounded: Whether the caller has a separate limit; LOCAL has no limit.
        is_busy: Whether a request of a known caller is being answered.
        is_stream: Whether the answer is an event stream.
    """

    def __init__(self, owner: Connections, address: str, drop: Callable[[], object]) -> None:
        self._owner = owner
        self.address = address
        self.drop = drop
        self.group = ""
        self.is_bounded = True
        self.is_busy = False
        self.is_stream = False

    def enter(self, identity: Identity, *, is_reserved: bool = False) -> None:
        """Count a request of an identity; ``leave`` must follow.

        Args:
            identity: The caller; ``NOBODY`` is a stranger.
            is_reserved: Whether the request may use the reserve.

        Raises:
            CONNECTIONS_TOO_MANY: the identity has as many busy connections as it may.
            CONNECTIONS_EXHAUSTED: all identities together have.
        """
        self._owner.enter(self, identity, is_reserved=is_reserved)

    def begin_stream(self) -> None:
        """Count the answer to the current request as an event stream.

        Raises:
            CONNECTIONS_TOO_MANY: the identity has as many streams as it may.
            CONNECTIONS_EXHAUSTED: all identities together have.
        """
        self._owner.begin_stream(self)

    def leave(self) -> None:
        """Note that the request is answered: the connection is idle."""
        self.is_busy = self.is_stream = False

    def close(self) -> None:
        """Forget the connection: it is closed, or about to be."""
        self._owner.forget(self)


class Connections:
    """Counts the connections of one server. Not thread-safe: it belongs to one event loop.

    Args:
        options: Bounds; the defaults when None.
    """

    def __init__(self, options: ConnectionOptions | None = None) -> None:
        self._options = options or ConnectionOptions()
        # Address, or name of an identity -> its connections, the longest unused first.
        self._strangers: dict[str, dict[OpenConnection, None]] = {}
        self._known: dict[str, dict[OpenConnection, None]] = {}

    def open(self, address: str, drop: Callable[[], object]) -> OpenConnection:
        """Count a new connection; drop old unauthenticated ones beyond the bounds."""
        connection = OpenConnection(self, address, drop)
        self._add_stranger(connection)
        return connection

    def drop_one(self) -> None:
        """Drop a connection that does nothing: file descriptors are used up."""
        idle = (each for each in _all(self._known) if not each.is_busy)
        victim = _longest_unused(self._strangers) or next(idle, None)
        if victim is not None:
            self._drop(victim)

    def enter(self, connection: OpenConnection, identity: Identity, *, is_reserved: bool) -> None:
        """Implement ``OpenConnection.enter``."""
        if identity == NOBODY:
            if connection.group:
                self.forget(connection)
                self._add_stranger(connection)
            return
        group = identity.token or f"{identity.name}@{connection.address}"
        self.forget(connection)
        try:
            self._make_room(group, identity, is_reserved=is_reserved)
        except BaseException:
            self._add_stranger(connection)
            raise
        connection.group, connection.is_busy = group, True
        connection.is_bounded = identity != LOCAL
        self._known.setdefault(group, {})[connection] = None

    def begin_stream(self, connection: OpenConnection) -> None:
        """Implement ``OpenConnection.begin_stream``."""
        own = sum(each.is_stream for each in self._known.get(connection.group, ()))
        if own >= self._options.streams_per_identity and connection.is_bounded:
            limit = self._options.streams_per_identity
            raise CONNECTIONS_TOO_MANY(what="event streams", limit=limit)
        if sum(each.is_stream for each in _all(self._known)) >= self._options.streams:
            raise CONNECTIONS_EXHAUSTED(what="event streams", limit=self._options.streams)
        connection.is_stream = True

    def forget(self, connection: OpenConnection) -> None:
        """Implement ``OpenConnection.close``."""
        groups = self._known if connection.group else self._strangers
        name = connection.group or connection.address
        found = groups.get(name, {})
        found.pop(connection, None)
        if not found:
            groups.pop(name, None)
        connection.group = ""

    def _add_stranger(self, connection: OpenConnection) -> None:
        options, own = self._options, self._strangers.setdefault(connection.address, {})
        connection.group, connection.is_busy = "", False
        own[connection] = None
        if len(own) > options.strangers_per_address:
            self._drop(next(iter(own)))
        elif sum(map(len, self._strangers.values())) > options.strangers:
            victim = _longest_unused(self._strangers)
            assert victim is not None
            self._drop(victim)

    def _make_room(self, group: str, identity: Identity, *, is_reserved: bool) -> None:
        """Drop an idle connection where there are too many, or refuse one more."""
        options, own = self._options, self._known.get(group, {})
        extra = options.reserve_per_identity if is_reserved else 0
        is_full = identity != LOCAL and len(own) >= options.known_per_identity + extra
        if is_full and not self._drop_idle(own):
            raise CONNECTIONS_TOO_MANY(what="requests", limit=options.known_per_identity)
        extra = options.reserve if is_reserved else 0
        if sum(map(len, self._known.values())) >= options.known + extra:
            largest = sorted(self._known.values(), key=len, reverse=True)
            if not any(self._drop_idle(each) for each in largest):
                raise CONNECTIONS_EXHAUSTED(what="requests", limit=options.known)

    def _drop_idle(self, group: dict[OpenConnection, None]) -> bool:
        victim = next((each for each in group if not each.is_busy), None)
        if victim is not None:
            self._drop(victim)
        return victim is not None

    def _drop(self, connection: OpenConnection) -> None:
        self.forget(connection)
        connection.drop()


def _all(groups: dict[str, dict[OpenConnection, None]]) -> Iterator[OpenConnection]:
    return chain.from_iterable(groups.values())


def _longest_unused(groups: dict[str, dict[OpenConnection, None]]) -> OpenConnection | None:
    largest = max(groups.values(), key=len, default=None)
    return next(iter(largest)) if largest else None
