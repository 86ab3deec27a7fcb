"""Settings of the state of a running job, as plain data that travels to workers.

The engine's options set it; ``rocksdb`` carries it out. Nothing here opens a folder.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN_BACKENDS = ("memory", "rocksdb")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """The backend, and the bounds of its content in memory.

    Args:
        backend: ``memory`` holds all state in the worker, ``rocksdb`` the hot part of it; others
            come from extensions.
        factory: Where the factory of another backend is, ``"module:name"``.
        folder: Local folder for caches on disk; None takes one that ends with the executor.
        cache_entries: How many unchanged entries one operator keeps in memory in a subtask.
        block_cache_bytes: Blocks of files that a worker process holds, for all its operators.
        write_buffer_bytes: Writes that one operator of a subtask gathers before they go to disk.
        no_pickle: Neither load state from pickles nor store any.
    """

    backend: str = "memory"
    factory: str | None = None
    folder: str | None = None
    cache_entries: int = 200_000
    block_cache_bytes: int = 64 << 20
    write_buffer_bytes: int = 32 << 20
    no_pickle: bool = False
