"""``bicycle dev cluster``: a local Spark cluster, with hosts that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bicycle_runtime.cli.parameters import declared_options, folder_option, home
from bicycle_runtime.cli.rendering import tell_stop
from bicycle_runtime.dev.cluster_record import ClusterOptions
from bicycle_sdk.options import describe, from_mapping
from bicycle_streams.cli.commands import command, command_group
from bicycle_streams.cli.parameters import answers
from bicycle_streams.cli.rendering import answer_json, show_table

if TYPE_CHECKING:
    from bicycle_runtime.dev.spark_cluster import SparkCluster

F = TypeVar("F", bound=Callable[..., Any])
_STARTING = [info for info in describe(ClusterOptions) if info.name != "folder"]
_STOPPING = [info for info in _STARTING if info.name == "stop_timeout_ms"]
_dir_option = folder_option(
    "Directory for the logs and files of the cluster. Default: spark in BICYCLE_HOME."
)


cluster_command = command_group(
    "cluster",
    "Start, stop and inspect a Spark cluster on this machine.\n\n"
    "The cluster needs only Java. Each host has a separate loopback address, so jobs behave "
    "as on several machines, including lost hosts. It is for development and tests, not for "
    "production.",
    "bicycle dev cluster start",
    "bicycle dev cluster status",
    "bicycle dev cluster stop",
)


@command("start", "bicycle dev cluster start", group=cluster_command)
@_dir_option
@declared_options(_STARTING)
@answers
def start_command(*, folder: Path | None, as_json: bool, **declared: str | None) -> None:
    """Start a Spark cluster and print master=spark://….

    The command waits until all workers are registered. Pass the URL to --master of run and
    submit. If a cluster already runs in the directory, its missing hosts are started again, and
    the exit code is 0.
    """
    cluster = _cluster(folder, declared)
    is_new = cluster.start()
    if as_json:
        answer_json(
            {
                "master": cluster.url,
                "started": is_new,
                "hosts": cluster.hosts(),
                "folder": str(cluster.folder),
            }
        )
        return
    if not is_new:
        click.echo(f"a cluster already runs in {cluster.folder}", err=True)
    click.echo(f"master={cluster.url}")


@command("stop", "bicycle dev cluster stop", group=cluster_command)
@_dir_option
@declared_options(_STOPPING)
@answers
def stop_command(*, folder: Path | None, as_json: bool, **declared: str | None) -> None:
    """Stop the Spark cluster and wait until its processes end.

    Jobs on the cluster lose their executors. Processes that remain after a crash of the cluster
    are also stopped. The exit code is 1 if no cluster runs in the directory.
    """
    cluster = _cluster(folder, declared)
    tell_stop(cluster.folder, is_clean=cluster.stop(), as_json=as_json)


@command("status", "bicycle dev cluster status", group=cluster_command)
@_dir_option
@answers
def status_command(*, folder: Path | None, as_json: bool) -> None:
    """Show the master URL, hosts, cores, memory and jobs of the cluster.

    The exit code is 1 if no cluster runs in the directory or its master does not respond.
    """
    cluster = _cluster(folder)
    url, state = cluster.url, cluster.state()
    if as_json:
        hosts = [
            {
                "host": host.host, "state": host.state, "cores": host.cores,
                "cores_used": host.cores_used, "memory_mb": host.memory_mb,
                "memory_used_mb": host.memory_used_mb,
            }
            for host in state.hosts
        ]  # fmt: skip
        jobs = [{"id": job.id, "name": job.name, "cores": job.cores} for job in state.jobs]
        answer_json({"master": url, "hosts": hosts, "jobs": jobs, "folder": str(cluster.folder)})
        return
    click.echo(f"master={url}\nfolder={cluster.folder}\n")
    rows = [
        (
            host.host,
            host.state.lower(),
            f"{host.cores_used} of {host.cores}",
            f"{host.memory_used_mb} of {host.memory_mb} MiB",
        )
        for host in state.hosts
    ]
    show_table(("host", "state", "cores in use", "memory in use"), rows)
    click.echo()
    if state.jobs:
        show_table(("job", "cores"), [(job.name, str(job.cores)) for job in state.jobs])
    else:
        click.echo("no jobs")


def _cluster(
    folder: Path | None, declared: Mapping[str, str | None] = MappingProxyType({})
) -> SparkCluster:
    # Slow to import, and not needed to show the help.
    from bicycle_runtime.dev.spark_cluster import SparkCluster

    given = {name: value for name, value in declared.items() if value is not None}
    options = from_mapping(ClusterOptions, {**given, "folder": folder or home().path / "spark"})
    return SparkCluster(options, report=lambda line: click.echo(line, err=True))
