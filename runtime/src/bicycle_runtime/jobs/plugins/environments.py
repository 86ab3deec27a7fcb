"""The environment of a job's plugin, and the part of it that workers get.

A plugin is installed in the environment of the command, or in one of its own (``--plugin-env``).
One of its own is packed and put before everything else on the import path, here in the driver, in
the child that builds the graph, and in the workers: all of them see the same files, whatever the
command or the hosts have installed. On a cluster a plugin of the command's environment travels the
same way, because hosts have the runtime only, and so does a job that is a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bicycle_runtime.engine.hosts.handshake import (
    HostAnswer,
    PluginSide,
    minor_version,
    require_match,
)
from bicycle_runtime.engine.hosts.shipment import Shipment
from bicycle_runtime.engine.spark.settings import is_embedded
from bicycle_runtime.extraction.bundle import JobBundle
from bicycle_runtime.extraction.discovery import InstalledPlugins, PluginRef, discover
from bicycle_runtime.extraction.errors import SCRIPT_UNUSABLE
from bicycle_runtime.extraction.packing import PackedEnvironment, pack_environment
from bicycle_runtime.extraction.plugin_env import (
    PluginEnvironment,
    own_environment,
    read_environment,
)
from bicycle_runtime.extraction.scripts import is_script, pack_script
from bicycle_runtime.extraction.unpacking import enter_environment, unpack
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.options import JobOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """A plugin, and its environment where that is packed.

    Args:
        ref: The plugin; its location is the unpacked folder when it has an environment of its own.
        packed: The packed environment for workers; None when they have the plugin by themselves.
        folder: Where the environment is unpacked on this host; None when it is the command's own.
        platform: Of the plugin's interpreter.
        pack_with: Packs it with further distributions; None where nothing else can be in it.
    """

    ref: PluginRef
    packed: PackedEnvironment | None = None
    folder: Path | None = None
    platform: str = ""
    pack_with: Callable[[Sequence[str]], PackedEnvironment] | None = None

    def enter(self) -> None:
        """Add the plugin to the import path of this process, as for workers."""
        if self.packed is not None and self.folder is not None:
            enter_environment(self.packed.path, self.packed.digest)

    def shipment(self, bundle: JobBundle) -> Shipment:
        """Return the files and settings for workers of an extracted job."""
        packed = self.packed
        if bundle.function_dists and self.pack_with is not None:
            packed = self.pack_with(bundle.function_dists)
        is_native = packed is not None and packed.is_native
        side = PluginSide(
            python=bundle.python_version,
            sdk=bundle.sdk_version,
            platform=self.platform if is_native else None,
        )
        return Shipment(environment=packed, plugin=side, module=self.ref.module)


def discover_in(plugin_env: str | None) -> InstalledPlugins:
    """Find the plugins of the command's environment, or of another one.

    Raises:
        ENVIRONMENT_MISSING: ``plugin_env`` is no virtual environment.
    """
    if plugin_env is None:
        return discover()
    return discover(list(read_environment(_folder(plugin_env)).path))


def find_plugin(options: JobOptions, home: Home) -> JobEnvironment:
    """Find a job's plugin, and pack its environment where workers need it.

    Args:
        options: Name the plugin, its environment, and where the job runs.
        home: Packed environments are kept in its cache.

    Raises:
        ENVIRONMENT_MISSING: the named folder is no virtual environment.
        PLUGIN_NOT_FOUND: no plugin of this name is installed there.
        HANDSHAKE_FAILED: that environment has another Python, or is for another platform.
        ENVIRONMENT_CONFLICT: the plugin and the runtime cannot live in one process.
    """
    if is_script(options.plugin):
        return _script(
            options.plugin, options.plugin_env, home, of_plugins=options.functions_of_plugins
        )  # fmt: skip
    ref = discover_in(options.plugin_env).find(options.plugin)
    if options.plugin_env is not None:
        return isolate(ref, options.plugin_env, home)
    if options.master is None or is_embedded(options.master):
        return JobEnvironment(ref=ref)
    own = own_environment()

    def pack_with(others: Sequence[str]) -> PackedEnvironment:
        return pack_environment(
            ref, own.path, runtime_path=own.path, cache_dir=home.cache_dir, others=others
        )

    return JobEnvironment(ref=ref, packed=pack_with(()), platform=own.platform, pack_with=pack_with)


def resolve_plugin(name: str, plugin_env: str | None, home: Home) -> PluginRef:
    """Return a plugin that this process can look at without running it.

    Args:
        name: The plugin, or a file with a job.
        plugin_env: Its environment, which is first on the import path from then on; None for the
            command's own.
        home: Packed environments are kept in its cache.

    Raises:
        BicycleError: as ``find_plugin``.
    """
    if is_script(name):
        environment = _script(name, plugin_env, home)
    else:
        ref = discover_in(plugin_env).find(name)
        if plugin_env is None:
            return ref
        environment = isolate(ref, plugin_env, home)
    environment.enter()
    return environment.ref


def isolate(ref: PluginRef, plugin_env: str, home: Home) -> JobEnvironment:
    """Pack a plugin of another environment, and unpack it on this host.

    Args:
        ref: The plugin, from ``discover_in``.
        plugin_env: The environment.
        home: Packed environments are kept in its cache.

    Raises:
        HANDSHAKE_FAILED: that environment has another Python, or is for another platform.
        ENVIRONMENT_CONFLICT: the plugin and the runtime cannot live in one process.
    """
    own, other = own_environment(), read_environment(_folder(plugin_env))
    _require_same_python(own, other, title=f"--plugin-env {plugin_env}")
    packed = pack_environment(
        ref, other.path, runtime_path=own.path, cache_dir=home.cache_dir, is_isolated=True
    )
    folder = unpack(packed.path, packed.digest)
    return JobEnvironment(
        ref=dataclasses.replace(ref, location=str(folder)),
        packed=packed,
        folder=folder,
        platform=other.platform,
    )


def _script(
    text: str, plugin_env: str | None, home: Home, *, of_plugins: bool = False
) -> JobEnvironment:
    """Pack a job that is a file, and unpack it on this host."""
    if plugin_env is not None:
        raise SCRIPT_UNUSABLE(
            file=text,
            problem="a file runs with the libraries of the environment of this command",
            hint="remove --plugin-env, or package the job as a wheel: `bicycle new NAME`",
        )
    ref, packed = pack_script(text, cache_dir=home.cache_dir, of_plugins=of_plugins)
    folder = unpack(packed.path, packed.digest)
    return JobEnvironment(
        ref=dataclasses.replace(ref, location=str(folder)), packed=packed, folder=folder
    )


def _require_same_python(own: PluginEnvironment, other: PluginEnvironment, *, title: str) -> None:
    """Refuse an environment whose code this process and its workers could not run."""
    wanted, found = (
        {"python": minor_version(each.python), "platform": each.platform} for each in (own, other)
    )
    require_match(wanted, None, [HostAnswer(host=title, facts=found)], compares_platform=True)


def _folder(plugin_env: str) -> Path:
    return Path(plugin_env).expanduser().absolute()
