"""The command ``bicycle-operator``: print the CRDs, or run the operator."""

from __future__ import annotations

import argparse
import asyncio
import random
import ssl
import sys
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf

from bicycle_operator.handlers import register
from bicycle_operator.service import Service

PEERING = "bicycle-operator"  # The name of the ClusterKopfPeering in crds.yaml.
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--service", {"required": True, "metavar": "URL", "help": "URL of the service"}),
    ("--token-file", {"type": Path, "help": "file with a token of the role operator"}),
    ("--ca-file", {"help": "certificates of the authority of the service"}),
    ("--period-s", {"type": float, "default": 2.0, "help": "time between two steps; default: 2"}),
    ("--liveness", {"metavar": "URL", "help": "serve a probe, as http://0.0.0.0:8080/healthz"}),
    ("--namespace", {"action": "append", "default": [], "help": "watch only this; repeatable"}),
)


def settings_of_operator() -> kopf.OperatorSettings:
    """Return the settings of kopf: the highest priority acts, others wait."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = "bicycle.dev/job"
    settings.peering.name = PEERING
    settings.peering.mandatory = True
    # Operators with equal priorities would all wait.
    settings.peering.priority = random.SystemRandom().randrange(1, 2**31)
    settings.peering.lifetime = 15
    return settings


async def run(given: argparse.Namespace) -> None:
    """Run the operator until a signal."""
    registry = kopf.get_default_registry()
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=given.ca_file))
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=trusted, timeout=timeout) as session:
        service = Service(url=given.service, session=session, token_file=given.token_file)
        register(registry, service, settings := settings_of_operator(), period_s=given.period_s)
        await kopf.operator(
            registry=registry, settings=settings,
            clusterwide=not given.namespace, namespaces=given.namespace,
            liveness_endpoint=given.liveness,
        )  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    root = argparse.ArgumentParser(prog="bicycle-operator", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    commands.add_parser("crds", help="print the custom resource definitions as YAML")
    runs = commands.add_parser("run", help="run the operator")
    for flag, facts in _OPTIONS:
        runs.add_argument(flag, **facts)
    return root


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    given = parser().parse_args(arguments)
    if given.command == "crds":
        sys.stdout.write(resources.files("bicycle_operator").joinpath("crds.yaml").read_text())
        return 0
    url = urlsplit(given.service)
    is_safe = url.scheme == "https" or url.hostname in ("localhost", "127.0.0.1", "::1")
    if given.token_file is not None and not is_safe:
        sys.stderr.write("a token is only sent over https: use an https:// URL\n")
        return 2
    kopf.configure()
    asyncio.run(run(given))
    return 0
