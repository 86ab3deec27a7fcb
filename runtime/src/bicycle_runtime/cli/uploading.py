"""A wheel on its way to a service, and the job that is started of it there."""

from __future__ import annotations

import dataclasses
import http.client
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.base.errors import error_from_json
from bicycle_runtime.cli.errors import SERVICE_UNREACHABLE
from bicycle_runtime.cli.parameters import home
from bicycle_runtime.jobs.options import JobOptions, JobRequest
from bicycle_runtime.service.address import read_address
from bicycle_runtime.service.errors import SERVICE_GONE

__all__ = ["ask_service", "service_url", "submit_wheel", "upload_wheel", "wheel_options"]

_VARIABLE = "BICYCLE_SERVICE"
_TIMEOUT_S = 90.0
_WAIT_S = 30
_PATHS = ("checkpoint_dir", "from_", "savepoint_key")
_OK_MAX = 299


def wheel_options(command: Any) -> Any:
    """Add ``--wheel``, ``--lock`` and ``--service``."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for flag, kind, text in (
        ("--service", None, "URL of the service that gets the wheel. Default: BICYCLE_SERVICE, or "
         "the service of this home."),
        ("--lock", file, "With --wheel: the lock file with versions and hashes of its libraries."),
        ("--wheel", file, "Upload this wheel to a service, which runs the job: it has the plugin "
         "that --plugin names. The same wheel is uploaded and installed once."),
    ):  # fmt: skip
        command = click.option(flag, type=kind, help=text)(command)
    return command


def service_url(given: str | None) -> str:
    """Return the address of the service that is meant.

    Raises:
        SERVICE_GONE: none is named, and none runs for this home.
    """
    if given is not None:
        return given
    named = chosen_variables([_VARIABLE]).get(_VARIABLE)
    if named:
        return named
    address = read_address(home())
    if address is None:
        raise SERVICE_GONE(home=str(home().path))
    return str(address["url"])


def submit_wheel(
    request: JobRequest, *, wheel: Path, lock: Path | None, service: str | None
) -> dict[str, Any]:
    """Upload a wheel, start its job, and wait until that runs.

    Returns:
        What the service says of the start: ``job_id``, ``state``; with the ``digest`` of the
        plugin and the ``service``.

    Raises:
        SERVICE_GONE: there is no service.
        SERVICE_UNREACHABLE: it does not answer.
        BicycleError: it refuses the wheel or the job, or the job fails while it starts.
    """
    url = service_url(service)
    digest = upload_wheel(url, wheel=wheel, lock=lock)["digest"]
    done = ask_service(url, "/api/v1/jobs", _facts(request, digest))
    return {**done, "digest": digest, "service": url}


def upload_wheel(url: str, *, wheel: Path, lock: Path | None) -> dict[str, Any]:
    """Send a wheel to a service, and return what it says of the plugin.

    Raises:
        SERVICE_UNREACHABLE: it does not answer.
        BicycleError: it refuses the wheel.
    """
    files = {"wheel": wheel, **({} if lock is None else {"lock": lock})}
    form, kind = _form(files)
    plugin: dict[str, Any] = _asked(url, "POST", "/api/v1/plugins", body=form, kind=kind)
    if "state" in plugin:  # It takes long: the answer is the operation.
        plugin = _over(url, plugin)["plugin"]
    return plugin


def ask_service(url: str, path: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a service for an operation, and return its result when it is over.

    Raises:
        SERVICE_UNREACHABLE: it does not answer.
        BicycleError: it refuses, or the operation failed.
    """
    body = json.dumps(facts).encode()
    return _over(url, _asked(url, "POST", path, body=body, kind="application/json"))


def _facts(request: JobRequest, digest: str) -> dict[str, Any]:
    """Return the job as the service takes it; paths mean what they mean here."""
    defaults = dataclasses.asdict(JobOptions(plugin=request.options.plugin))
    given = dataclasses.asdict(request.options)
    options = {name: value for name, value in given.items() if value != defaults[name]}
    name = options.pop("name", None)
    for path in _PATHS:
        if path in options and "://" not in options[path]:
            options[path] = str(Path(options[path]).expanduser().absolute())
    facts = {
        "plugin": request.options.plugin, "digest": digest, "options": options,
        "params": dict(request.params), "engine": dict(request.engine),
        "spark": dict(request.spark),
    }  # fmt: skip
    return facts if name is None else {**facts, "name": name}


def _form(files: Mapping[str, Path]) -> tuple[bytes, str]:
    """Return files as the body of a form, and its type."""
    border = uuid.uuid4().hex
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{name}"; filename="{path.name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + path.read_bytes()
        + b"\r\n"
        for name, path in files.items()
    ]
    return b"".join(parts) + f"--{border}--\r\n".encode(), f"multipart/form-data; boundary={border}"


def _over(url: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until an operation is over; return its result."""
    while operation["state"] in ("waiting", "running"):
        path = f"/api/v1/operations/{operation['id']}?wait={_WAIT_S}"
        operation = _asked(url, "GET", path)
    if operation["error"] is not None:
        raise error_from_json(operation["error"])
    result: dict[str, Any] = operation["result"]
    return result


def _asked(url: str, method: str, path: str, *, body: bytes = b"", kind: str = "") -> Any:
    """Return the JSON of a good answer.

    Raises:
        SERVICE_UNREACHABLE: there is none, or none of a service of Bicycle.
        BicycleError: the service refuses.
    """
    place = urlsplit(url)
    is_secure = place.scheme == "https"
    make = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = make(place.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request(method, path, body or None, {"Content-Type": kind} if kind else {})
        answer = connection.getresponse()
        plain = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SERVICE_UNREACHABLE(url=url, reason=str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if answer.status > _OK_MAX:
        raise error_from_json(plain)
    return plain
