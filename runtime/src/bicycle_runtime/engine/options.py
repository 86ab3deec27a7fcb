"""Settings of the epoch loop, declared once: default, bounds, meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bicycle_runtime.connectors.registry import default_registry
from bicycle_runtime.state.settings import OWN_BACKENDS, StateSettings
from bicycle_sdk.options import check, option


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options of the engine: lengths, budgets and retention of epochs."""

    mode: Literal["streaming", "batch"] = option(
        "streaming",
        doc=(
            "batch reads bounded input in one pass, with epochs as large as the limits allow; "
            "event time advances only at the end of the input. A plugin can set another default."
        ),
    )
    epoch_interval_ms: int = option(
        0, low=0, high=3_600_000,
        doc=(
            "Minimum time between the starts of two epochs; 0 starts an epoch whenever there is "
            "work."
        ),
    )  # fmt: skip
    epoch_target_ms: int = option(
        2_000, low=10, high=600_000,
        doc=(
            "Target duration of epochs under backlog, from which their size follows. With "
            "--latency-target-ms 0, an epoch that reads continuously takes twice this time."
        ),
    )  # fmt: skip
    max_records_per_epoch: int = option(
        5_000_000,
        low=1,
        high=1_000_000_000,
        doc=(
            "Maximum number of records per epoch and source. A limit of a million or more is "
            "approximate, because lines of files are then estimated instead of counted."
        ),
    )
    max_bytes_per_epoch: int = option(
        512 << 20, low=1, high=1 << 40, doc="Maximum number of bytes per epoch and source."
    )
    checkpoint_interval_ms: int = option(
        60_000, low=1, high=86_400_000,
        doc=(
            "Interval at which the state changes of epochs are compacted into a base. Each epoch "
            "is a checkpoint, whatever this interval is."
        ),
    )  # fmt: skip
    retained_epochs: int = option(
        3,
        low=2,
        high=1_000,
        doc="Number of sealed epochs to retain, from which a job can be restored.",
    )
    retained_age_ms: int = option(
        0, low=0, high=2_592_000_000,
        doc=(
            "Also retain epochs that were sealed within this time, at most 1000 epochs; 0 retains "
            "only the number of --retained-epochs."
        ),
    )  # fmt: skip
    blocking_call_ms: int = option(
        1_000,
        low=10,
        high=3_600_000,
        doc=(
            "Time for which an async function may block the event loop of its worker before a "
            "warning names the function."
        ),
    )
    hot_key_percent: int = option(
        30,
        low=1,
        high=100,
        doc=(
            "Share of the records of an operator with several subtasks above which a warning "
            "names the key."
        ),
    )

    state_backend: str = option(
        "memory",
        doc=(
            "memory keeps all state in the workers; rocksdb keeps hot state in memory and the "
            "rest on local disks, so that state may be larger than memory. Extensions add other "
            "backends."
        ),
    )
    state_dir: str | None = option(
        None,
        doc=(
            "Local folder of the workers for state on disk. It is kept between runs, so that a "
            "restart is faster. Default: a temporary folder that is removed after the run."
        ),
    )
    state_cache_entries: int = option(
        200_000,
        low=1_000,
        high=1_000_000_000,
        doc=(
            "With rocksdb: number of cached entries per task and operator, in addition to the "
            "entries changed in the current epoch."
        ),
    )
    state_block_cache_bytes: int = option(
        64 << 20,
        low=1 << 20,
        high=1 << 40,
        doc="With rocksdb: size of the block cache of a worker process.",
    )
    state_write_buffer_bytes: int = option(
        32 << 20,
        low=1 << 20,
        high=1 << 34,
        doc=(
            "With rocksdb: size of the write buffer per task and operator; each operator has two "
            "buffers."
        ),
    )

    no_pickle: bool = option(
        default=False,
        doc=(
            "Reject state, and records in loops, that are stored as pickles, because loading a "
            "pickle may run any code. All state then needs declared types."
        ),
    )

    @property
    def state_settings(self) -> StateSettings:
        """The backend settings for workers."""
        return StateSettings(
            backend=self.state_backend,
            factory=self._state_factory(),
            folder=self.state_dir,
            cache_entries=self.state_cache_entries,
            block_cache_bytes=self.state_block_cache_bytes,
            write_buffer_bytes=self.state_write_buffer_bytes,
            no_pickle=self.no_pickle,
        )

    @property
    def is_batch(self) -> bool:
        """Return whether the job reads finite input in one pass."""
        return self.mode == "batch"

    def __post_init__(self) -> None:
        check(self)
        self._state_factory()

    def _state_factory(self) -> str | None:
        """Return where the factory of a state backend is that an extension brings.

        Raises:
            UNKNOWN_STATE_BACKEND: no extension does.
        """
        if self.state_backend in OWN_BACKENDS:
            return None
        return default_registry().state_backend(self.state_backend)
