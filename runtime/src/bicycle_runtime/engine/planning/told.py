"""What a user is told of the operators in an error: kind, uid, and the line that made them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bicycle_sdk.errors import BicycleError
from bicycle_sdk.graph import JobGraph

__all__ = ["naming_operators"]


@contextlib.contextmanager
def naming_operators(graph: JobGraph) -> Iterator[None]:
    """Let errors that name an operator of the graph say, in the fact ``made``, what made it."""
    try:
        yield
    except BicycleError as error:
        uid = error.facts.get("operator")
        made = next((vertex.made for vertex in graph.vertices if vertex.id == uid), "")
        if made:
            error.facts.setdefault("made", made)
        raise
