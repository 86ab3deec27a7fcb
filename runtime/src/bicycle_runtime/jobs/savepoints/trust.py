"""Trust in the origin of a job: state may have pickles, which can run any code.

A home signs its savepoints with its own key, or with the key of ``--savepoint-key``, which
several homes may share. A savepoint that is neither signed so nor in the checkpoint directory of a
job of this home is *foreign*: a start from there needs explicit trust, or loads no pickles.
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path
from typing import Literal

from bicycle_runtime.base.storage_urls import open_storage
from bicycle_runtime.jobs.control.job_queries import list_jobs
from bicycle_runtime.jobs.errors import FOREIGN_SAVEPOINT, SAVEPOINT_KEY_UNUSABLE
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.recovery.adoption import find_origin
from bicycle_runtime.recovery.errors import CHECKPOINT_MISSING, SAVEPOINT_SIGNATURE_WRONG
from bicycle_runtime.recovery.savepoints import Sign
from bicycle_runtime.recovery.signatures import is_signed_with, signature_of
from bicycle_sdk.errors import BicycleError

Provenance = Literal["signed with the key", "made by this home", "foreign"]
_KEY_FILE = "savepoint.key"
_KEY_BYTES_MIN = 16


def signer(home: Home, key_file: str | None) -> Sign:
    """Return the signer of savepoints: with a file's key, or with the home's key.

    Raises:
        SAVEPOINT_KEY_UNUSABLE: the key cannot be read or made, or is too short.
    """
    return partial(signature_of, key=_key(home, key_file))


def provenance(url: str, home: Home, key_file: str | None) -> Provenance:
    """Return where a savepoint, or a checkpoint directory, comes from. It is only read.

    Raises:
        SAVEPOINT_SIGNATURE_WRONG: a key is given, and it is not signed with that.
        SAVEPOINT_KEY_UNUSABLE: the key cannot be read, or is too short.
        COPY_REFUSED: it was signed, and changed since.
    """
    storage = open_storage(url)
    if key_file is not None:
        if is_signed_with(storage, _key(home, key_file)):
            return "signed with the key"
        raise SAVEPOINT_SIGNATURE_WRONG(
            url=storage.url, problem=f"it is not signed with the key in {key_file}"
        )
    if (home.path / _KEY_FILE).exists() and is_signed_with(storage, _key(home, None)):
        return "made by this home"
    known = (status.checkpoint for status in list_jobs(home))
    if any(url and f"{storage.url}/".startswith(f"{url}/") for url in known):
        return "made by this home"
    return "foreign"


def require_trust(url: str, home: Home, *, is_trusted: bool, key_file: str | None) -> None:
    """Raise an error if a job may not begin with a savepoint or checkpoint.

    Args:
        url: The savepoint, or the checkpoint directory.
        home: Of this command.
        is_trusted: Whether it may be foreign: trust was declared, or no pickles will be loaded.
        key_file: It must be signed with this key; None for any.

    Raises:
        FOREIGN_SAVEPOINT: this home did not make it.
        CHECKPOINT_MISSING: it does not exist.
        BicycleError: see ``provenance``.
    """
    if provenance(url, home, key_file) == "foreign" and not is_trusted:
        try:
            find_origin(open_storage(url))
        except BicycleError as error:
            if error.code == CHECKPOINT_MISSING.code:  # Trust is no remedy for a misspelt path.
                raise
        raise FOREIGN_SAVEPOINT(url=open_storage(url).url, home=str(home.path))


def _key(home: Home, key_file: str | None) -> bytes:
    path = home.path / _KEY_FILE if key_file is None else Path(key_file).expanduser()
    try:
        if key_file is None and not path.exists():
            _make_key(path)
        key = path.read_bytes().strip()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SAVEPOINT_KEY_UNUSABLE(path=str(path), problem=reason) from error
    if len(key) < _KEY_BYTES_MIN:
        problem = f"it must have at least {_KEY_BYTES_MIN} bytes, got {len(key)}"
        raise SAVEPOINT_KEY_UNUSABLE(path=str(path), problem=problem)
    return key


def _make_key(path: Path) -> None:
    """Make the home's key as one step: two commands may come here at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(secrets.token_hex(32) + "\n")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    finally:
        temporary.unlink()
