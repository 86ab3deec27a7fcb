"""The settings of every stream and sink: uid, name, parallelism, chaining, errors."""

from __future__ import annotations

from typing import Self

from bicycle_sdk.arguments import require_text, require_whole
from bicycle_sdk.drafts import VertexDraft
from bicycle_sdk.errors import StreamDefinitionError
from bicycle_sdk.failures import OnError, error_policy
from bicycle_sdk.graph import KEY_GROUP_COUNT_MAX

__all__ = ["VertexSettings", "check_parallelism"]


class VertexSettings:
    """Settings of the vertex that the last call added. Each call returns the same object."""

    def __init__(self, vertex: VertexDraft) -> None:
        self._vertex = vertex

    def vertex_id(self) -> str:
        """Return the id of the vertex: its uid when it has one, else ``vertex_N``."""
        return self._vertex.final_id

    def uid(self, uid: str) -> Self:
        """Set a stable identity of the vertex, so that a changed job finds its state."""
        if "/" in require_text("uid", uid):
            raise StreamDefinitionError(
                call="uid",
                problem=f"{uid!r} contains a slash",
                hint="use letters, digits, dots, dashes: uid('counter-v1')",
            )
        self._vertex.uid = uid
        return self

    def name(self, name: str) -> Self:
        """Set the name shown to people."""
        self._vertex.name = require_text("name", name)
        return self

    def set_parallelism(self, n: int) -> Self:
        """Set how many subtasks run this vertex; otherwise that of the environment counts."""
        self._vertex.parallelism = check_parallelism("set_parallelism", n)
        return self

    def set_max_parallelism(self, n: int) -> Self:
        """Set the number of key groups: the maximum parallelism, fixed with the state."""
        self._vertex.max_parallelism = check_parallelism("set_max_parallelism", n)
        return self

    def slot_sharing_group(self, group: str) -> Self:
        """Set a group: chains contain vertices of one group only, by default ``default``."""
        self._vertex.slot_sharing_group = require_text("slot_sharing_group", group)
        return self

    def disable_chaining(self) -> Self:
        """Keep the vertex in a separate chain."""
        self._vertex.chaining_enabled = False
        return self

    def start_new_chain(self) -> Self:
        """Start a new chain at this vertex."""
        self._vertex.starts_new_chain = True
        return self

    def on_error(self, policy: OnError, *, max_error_rate: float | None = None) -> Self:
        """Set the policy for a record whose function raised.

        Args:
            policy: ``fail()`` (default), ``skip()``, ``dead_letter()`` or ``retry(n).then(…)``;
                ``"fail"``, ``"skip"`` and ``"dead_letter"`` are short forms. For a source it
                applies to undecodable input, for a sink to unwritable records; a source has no
                retry.
            max_error_rate: The job stops when more of an epoch's records failed, 0 to 1.
        """
        self._vertex.on_error = error_policy(policy, max_error_rate=max_error_rate)
        return self


def check_parallelism(call: str, n: int) -> int:
    """Return ``n`` if it is a possible parallelism.

    Raises:
        StreamDefinitionError: it is not.
    """
    return require_whole(call, n, low=1, high=KEY_GROUP_COUNT_MAX)
