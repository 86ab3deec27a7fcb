"""The request for a job: options of ``bicycle run`` and ``submit``, declared once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.extraction.scripts import is_script
from bicycle_sdk.options import CheckedOptions, describe, from_mapping, option

if TYPE_CHECKING:
    from bicycle_sdk.graph import JobGraph

CHECKPOINT_VARIABLE = "BICYCLE_CHECKPOINT_DIR"
LEASE_BEAT_MS_MAX = 60_000
PROMPT = "prompt:"  # As the value of a parameter, it makes the command prompt for a secret.
PROMPTED = "BICYCLE_SECRET_"  # Prefix of variables that hold prompted values.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(CheckedOptions):
    """The job to run, its checkpoints, and its behavior at failures."""

    plugin: str = option(
        doc=(
            "Name of the plugin, as listed by `bicycle plugins`, or a file with a job: FILE.py or "
            "FILE.py:FUNCTION, or a pipeline: FILE.toml, FILE.yaml."
        )
    )
    plugin_env: str | None = option(
        None,
        doc=(
            "Folder of the virtual environment with the plugin and its libraries. Default: the "
            "environment of this command."
        ),
    )
    name: str | None = option(
        None,
        doc=(
            "Name of the job. Default: the name of the plugin; without a checkpoint directory, a "
            "new name for each run."
        ),
    )
    checkpoint_dir: str | None = option(
        None,
        doc=(
            "Directory or URL for checkpoints; the checkpoints of the job are below it, under its "
            "name. The same command continues a stopped job. Default: BICYCLE_CHECKPOINT_DIR, or "
            "a folder of the home."
        ),
    )
    from_: str | None = option(
        None,
        doc=(
            "Start from this savepoint, or from the last published epoch of this checkpoint "
            "directory (a path or URL). The checkpoint directory of the job must be empty."
        ),
    )
    trust: bool = option(
        default=False,
        doc="With --from: accept state of another home. Its pickles may run any code.",
    )
    savepoint_key: str | None = option(
        None,
        doc=(
            "File with the key that signs savepoints of the job, and that must have signed the "
            "savepoint of --from. Default: a key of the home, which other homes do not have."
        ),
    )
    functions_of_plugins: bool = option(
        default=False,
        doc=(
            "Restrict a pipeline or an SQL file to functions of installed plugins. Services always "
            "apply this restriction."
        ),
    )
    parallelism: int | None = option(
        None,
        low=1,
        high=32_768,
        doc="Parallelism of every operator. Default: the parallelism of the plugin.",
    )
    master: str | None = option(
        None, doc="Spark master URL. Default: embedded Spark on all cores of this machine."
    )
    cluster_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc=(
            "On a cluster: time limit for the master and the first executor at the start, and for "
            "an executor after all were lost."
        ),
    )
    follow: bool = option(
        default=False,
        doc="Wait for appended lines and new files; the job is then unbounded.",
    )
    on_data_loss: Literal["fail", "earliest", "latest"] | None = option(
        None,
        doc=(
            "Reaction when a topic lost unread messages: fail, or continue with the earliest or "
            "latest message. Default: the setting of the plugin's sources."
        ),
    )
    allow_dropped_state: bool = option(
        default=False,
        doc=(
            "Start although the plugin lacks state or offsets that the job has sealed; they are "
            "discarded. `bicycle plan --from` lists them."
        ),
    )
    restart_attempts: int | None = option(
        None,
        low=0,
        high=1_000_000,
        doc=(
            "Maximum number of consecutive restarts of a failed job; a sealed epoch resets the "
            "count. Default: the restart strategy of the plugin."
        ),
    )
    restart_delay_ms: int | None = option(
        None,
        low=0,
        high=86_400_000,
        doc=(
            "Delay before each consecutive restart of a failed job except the first, which is "
            "immediate. Default: the restart strategy of the plugin."
        ),
    )
    latency_target_ms: int = option(
        500,
        low=0,
        high=30_000,
        doc=(
            "Target latency of results when there is no backlog. After an epoch, the job pauses "
            "for as long as this latency allows, but at least for the duration of the epoch. With "
            "0, the job does not pause; if it has one stage, no state, Kafka sources and "
            "at-least-once Kafka sinks, it also reads continuously within its epochs."
        ),
    )
    lease_beat_ms: int = option(
        1_000,
        low=100,
        high=LEASE_BEAT_MS_MAX,
        doc=(
            "Interval of the heartbeats in the checkpoint directory. A driver on another host "
            "takes over after four missed heartbeats."
        ),
    )
    storage_timeout_ms: int = option(
        30_000,
        low=0,
        high=3_600_000,
        doc="Time for which a failed call to a remote checkpoint storage is repeated.",
    )
    restart_delay_max_ms: int = option(
        60_000,
        low=0,
        high=86_400_000,
        doc="Maximum delay before a restart with exponential backoff.",
    )
    watchdog_timeout_ms: int = option(
        300_000,
        low=0,
        high=86_400_000,
        doc=(
            "Time without progress after which a start or a recovery is aborted, and the restart "
            "strategy applies; 0 waits without a limit."
        ),
    )
    epoch_stall_timeout_ms: int = option(
        1_800_000,
        low=0,
        high=604_800_000,
        doc=(
            "Maximum duration of an epoch, without intended waits (rate_limit, pauses before "
            "retries); then the epoch is aborted, and the restart strategy applies. Functions may "
            "be slow, so the default is long. 0 waits without a limit."
        ),
    )
    log_format: Literal["text", "json"] = option(
        "text",
        doc=(
            "Format of log lines: text for people, or one JSON object per line with time, level, "
            "event, job, and epoch and operator if known."
        ),
    )
    stop_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="Time limit for a graceful stop: a longer epoch is aborted.",
    )


def options_of_new_job(given: Mapping[str, Any]) -> JobOptions:
    """Return the options of a new job; a variable may set its checkpoint directory.

    The stored request contains the result, so that a change of the variable moves no job.
    """
    found = chosen_variables([CHECKPOINT_VARIABLE]).get(CHECKPOINT_VARIABLE)
    defaults = {"checkpoint_dir": found} if found else {}
    return from_mapping(JobOptions, {**defaults, **given})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Options with the plugin's parameters and settings of engine and Spark.

    ``engine`` holds only explicit options, as texts or plain values: absent options come from the
    plugin's graph, else from the defaults. ``parallelisms`` is the parallelism by operator that a
    rescale set in the running job; it is empty at the start.
    """

    options: JobOptions
    params: Mapping[str, str] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    parallelisms: Mapping[str, int] = field(default_factory=dict)
    directory: str = ""

    def __post_init__(self) -> None:
        from_mapping(EngineOptions, self.engine)

    @property
    def logs_json(self) -> bool:
        """True if log lines are JSON."""
        return self.options.log_format == "json"

    @property
    def hot_key_percent(self) -> int:
        """The share, in percent, from which a frequent key is reported."""
        return from_mapping(EngineOptions, self.engine).hot_key_percent

    @property
    def no_pickle(self) -> bool:
        """True if the job loads no state from pickles."""
        return from_mapping(EngineOptions, self.engine).no_pickle

    def engine_options(self, graph: JobGraph) -> EngineOptions:
        """Return the engine's options for a plugin's graph."""
        from_graph = {
            "checkpoint_interval_ms": graph.config.checkpoint_interval_ms,
            "mode": graph.config.mode.value,
        }
        return from_mapping(EngineOptions, {**from_graph, **self.engine})

    def to_json(self) -> dict[str, Any]:
        """Return plain data; ``from_json`` is the inverse."""
        return {
            "options": dataclasses.asdict(self.options),
            "params": dict(self.params),
            "engine": dict(self.engine),
            "spark": dict(self.spark),
            "widths": dict(self.parallelisms),
            "directory": self.directory,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobRequest:
        """Return the request from the output of ``to_json``.

        Raises:
            ConfigError: an option is unknown or not accepted.
        """
        options = from_mapping(JobOptions, data["options"])
        others = {name: data[name] for name in ("params", "engine", "spark")}
        return cls(
            options=options, parallelisms=data.get("widths", {}),
            directory=data.get("directory", ""), **others,
        )  # fmt: skip

    def command_words(self, command: str, **changes: str | None) -> list[str]:
        """Return the command line that requests the same.

        Args:
            command: ``"run"`` or ``"submit"``.
            changes: Options that replace the request's.
        """
        options: dict[str, Any] = {**dataclasses.asdict(self.options), **changes}
        if options["from_"] is None:
            options["trust"] = False  # It was about that.
        defaults = {info.name: info.default for info in describe(JobOptions)}
        given = {name: value for name, value in options.items() if value != defaults[name]}
        words = ["bicycle", command]
        if is_script(self.options.plugin):
            words.append(given.pop("plugin"))
        for name, value in {**given, **self.engine}.items():
            flag = "--" + name.rstrip("_").replace("_", "-")
            words += [flag] if value is True else [flag, str(value)]
        prompted = f"env:{PROMPTED}"
        params = {
            name: PROMPT if text.startswith(prompted) else text
            for name, text in self.params.items()
        }
        for flag, pairs in (("--set", params), ("--conf", self.spark)):
            words += [word for name, value in pairs.items() for word in (flag, f"{name}={value}")]
        return words
