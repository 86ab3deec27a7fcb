"""Bicycle's own commands, offered through the hook of extensions, without imports."""

from __future__ import annotations

import re

from bicycle_runtime.cli.command_offers import CommandOffer
from bicycle_runtime.cli.operation_commands import OPERATION_COMMANDS

_ROOM, _TOOLKIT = "bicycle_runtime.cli", "bicycle_streams.cli"
# Purpose -> the location of a command, `NAME_command` -> the first sentence of its help.
_RUN_JOBS = "Run jobs"
_SECTIONS = {
    _RUN_JOBS: {
        "run:run_command": "Run a job in the foreground",
        "run:submit_command": "Start a job in the background and print its id",
    },
    "Watch jobs": {
        "job_commands:list_command": "List the jobs of this machine, newest first",
        "job_commands:status_command": "Show the state and progress of a job",
        "logs:logs_command": "Show or follow the log of a submitted job",
        "figures:metrics_command": "Show throughput, lag and other metrics of running jobs",
        "figures:workers_command": "Show the processes of running jobs with CPU and memory",
        "job_commands:info_command": "Show totals over all jobs, and which service answered",
        "dlq:dlq_command": "List, show and replay dead letters",
    },
    "Serve jobs": {
        "up:up_command": "Start the service: web UI, REST API and jobs behind one port",
        "up:down_command": "Stop the service; its jobs continue",
        "service:service_command": "Install the service or a job as a systemd unit",
        "serve:serve_command": "Serve metrics of the jobs of this machine to Prometheus",
        f"{_TOOLKIT}.token:token_command": "Create, list and revoke access tokens of the service",
    },
    "Streams": {
        f"{_TOOLKIT}.stream:stream_command": "Produce, read, copy and check streams without a job",
        "stream_graph:stream_graph_command": "Show which jobs read and write which streams",
    },
    "State and savepoints": {
        "savepoint:savepoint_command": "Create, list, inspect, restore and delete savepoints",
        "checkpoints:checkpoints_command": "List the epochs in a checkpoint directory",
        "state:state_command": "Query the state of a job at any retained epoch",
    },
    "Develop jobs": {
        "new:new_command": "Create a plugin project with a job and its tests",
        "pipeline:pipeline_command": "Create, check, test and convert pipelines (TOML or YAML)",
        "plugins:plugins_command": "List, check and lock installed plugins",
        "graph:graph_command": "Show the chains, stages and parallelism of a job",
        "plan:plan_command": "Show the guarantee, state and warnings of a job before it runs",
        "replay:replay_command": "Replay an epoch of a job to debug it",
        "sql:sql_command": "Run SQL statements at a prompt, and test views of SQL files",
        "dev:dev_command": "Start a Kafka broker or a Spark cluster for development",
    },
    "Maintain": {
        "doctor:doctor_command": "Check whether this machine can run jobs",
        "jobs:jobs_command": "Remove the files of ended jobs",
        "completion:completion_command": "Print a completion script for a shell",
    },
}


def bicycle_commands() -> dict[str, CommandOffer]:
    """Name our commands."""
    operations = {
        f"operations:COMMANDS.{name}": summary for name, summary in OPERATION_COMMANDS.items()
    }
    return {
        _name(location): {"location": _full(location), "summary": summary, "section": section}
        for section, commands in {**_SECTIONS, _RUN_JOBS: _SECTIONS[_RUN_JOBS] | operations}.items()
        for location, summary in commands.items()
    }


def _name(location: str) -> str:
    """Return the name of a command, with that of its group."""
    return re.split("[:.]", location)[-1].removesuffix("_command").replace("_", " ")


def _full(location: str) -> str:
    """Return a location with the package of this module, unless it names another one."""
    return location if "." in location.partition(":")[0] else f"{_ROOM}.{location}"
