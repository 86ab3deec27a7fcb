"""The request for a job: options of ``bicycle run`` and ``submit``, declared once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bicycle_runtime.base.options import check, describe, from_mapping, option
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.extraction.scripts import is_script

if TYPE_CHECKING:
    from bicycle_sdk.graph import JobGraph

__all__ = ["LEASE_BEAT_MS_MAX", "PROMPT", "PROMPTED", "JobOptions", "JobRequest"]

LEASE_BEAT_MS_MAX = 60_000
PROMPT = "prompt:"  # Given for a parameter, it lets the command ask for a secret.
PROMPTED = "BICYCLE_SECRET_"  # Variables begin so that hold what was asked for.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The job to run, its place, and the conditions of its end."""

    plugin: str = option(
        doc="Name of the plugin, as `bicycle plugins` lists it, or a file with a job: "
        "FILE.py or FILE.py:FUNCTION, or a pipeline: FILE.toml, FILE.yaml."
    )
    plugin_env: str | None = option(
        None,
        doc="Folder of the virtual environment that has the plugin and its libraries. Default: the "
        "environment of this command.",
    )
    name: str | None = option(
        None,
        doc="Name of the job. Default: the plugin's name, or without a checkpoint directory a new "
        "name for each run.",
    )
    checkpoint_dir: str | None = option(
        None,
        doc="Directory or URL for checkpoints; the job's are below it, under its name. The same "
        "command goes on where the job stopped. Default: a folder of the home.",
    )
    from_: str | None = option(
        None,
        doc="Begin with this savepoint, or with the last published epoch of this checkpoint "
        "directory (a path or URL). The job's own checkpoint directory must be empty.",
    )
    trust: bool = option(
        default=False,
        doc="With --from: begin with what another home made. Its pickled state may run any code.",
    )
    savepoint_key: str | None = option(
        None,
        doc="File with the key that savepoints of the job are signed with, and that of --from must "
        "be. Default: a key of the home, which other homes do not have.",
    )
    functions_of_plugins: bool = option(
        default=False,
        doc="A pipeline may name functions of installed plugins only. A service takes no others.",
    )
    parallelism: int | None = option(
        None,
        low=1,
        high=32_768,
        doc="Parallelism of every operator. Default: what the plugin says.",
    )
    master: str | None = option(
        None, doc="Spark master URL. Default: embedded Spark on all cores of this machine."
    )
    cluster_timeout_ms: int = option(
        60_000,
        low=1_000,
        high=86_400_000,
        doc="On a cluster: how long to wait for executors, at the start and when all are lost.",
    )
    follow: bool = option(
        default=False,
        doc="Wait for appended lines and new files; the job then never ends by itself.",
    )
    on_data_loss: Literal["fail", "earliest", "latest"] | None = option(
        None,
        doc="What to do when a topic lost messages before they were read: fail, or go on with the "
        "earliest or latest message. Default: what the plugin's sources say.",
    )
    allow_dropped_state: bool = option(
        default=False,
        doc="Begin although the job has sealed state, or offsets, that the plugin does not have "
        "any more: it is given up. `bicycle plan --from` tells what that is.",
    )
    restart_attempts: int | None = option(
        None,
        low=0,
        high=1_000_000,
        doc="How often a job that failed is started again without progress between. Default: what "
        "the plugin's restart strategy says.",
    )
    restart_delay_ms: int | None = option(
        None,
        low=0,
        high=86_400_000,
        doc="How long to wait before the second restart without progress between, and before each "
        "further one; the first comes at once. Default: what the plugin's restart strategy says.",
    )
    latency_target_ms: int = option(
        500,
        low=0,
        high=30_000,
        doc="How long results may take while the job keeps up: epochs start no more often than "
        "that asks for, and in between the machine rests, for as long as an epoch takes at least. "
        "No backlog waits for it. 0 runs an epoch whenever there is input; a job of one stage from "
        "Kafka to Kafka, at least once and without state, then reads on within its epochs.",
    )
    lease_beat_ms: int = option(
        1_000,
        low=100,
        high=LEASE_BEAT_MS_MAX,
        doc="Time between two signs of life in the checkpoint directory. A driver of another host "
        "takes over after four of them without a sign.",
    )
    storage_timeout_ms: int = option(
        30_000,
        low=0,
        high=3_600_000,
        doc="How long a call to a checkpoint storage behind a URL that does not answer is tried "
        "again.",
    )
    restart_delay_max_ms: int = option(
        60_000,
        low=0,
        high=86_400_000,
        doc="The longest wait before a restart that a growing delay comes to.",
    )
    watchdog_timeout_ms: int = option(
        300_000,
        low=0,
        high=86_400_000,
        doc="A start or a recovery that makes no progress for so long is given up, and the restart "
        "strategy decides; 0 waits forever.",
    )
    epoch_stall_timeout_ms: int = option(
        1_800_000,
        low=0,
        high=604_800_000,
        doc="An epoch that takes so long, without what it waits on purpose (rate_limit, pauses "
        "before retries), is given up in the same way; functions may be slow, so the default is "
        "long. 0 waits forever.",
    )
    log_format: Literal["text", "json"] = option(
        "text",
        doc="Lines of the log: text for people, or one JSON object a line with time, level, event, "
        "job and, where they are known, epoch and operator.",
    )
    stop_timeout_ms: int = option(
        30_000,
        low=1_000,
        high=3_600_000,
        doc="A stopped job has ended after this time: an epoch that takes longer is aborted.",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Options with the plugin's parameters and settings of engine and Spark.

    ``engine`` holds only what was asked for, as texts or plain values: what is absent comes from
    the plugin's graph, else from the defaults. ``parallelisms`` is the parallelism by operator that
    a rescale gave the running job; nobody asks for it at the start.
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
            changes: Options that take the place of those that were given.
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
