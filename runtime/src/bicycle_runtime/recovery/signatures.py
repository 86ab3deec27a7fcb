"""Signatures of savepoints: proof of the creator and of unchanged content.

``savepoint.hmac`` is the HMAC-SHA256 of ``savepoint.json``, in hexadecimal digits. A savepoint that
is signed describes its files with SHA-256, too, so that the signature holds for all of them: it is
checked before the description is read, the manifest before that is, and each file while it is
copied.

Source: RFC 2104 (HMAC).
"""

from __future__ import annotations

import hashlib
import hmac

from bicycle_runtime.base.storage import ObjectMissingError, Storage
from bicycle_runtime.layouts.paths import JOB_FILE, SAVEPOINT_FILE, SAVEPOINT_SIGNATURE
from bicycle_runtime.recovery.copying import read_back, wanted_copy
from bicycle_runtime.recovery.errors import SAVEPOINT_SIGNATURE_WRONG
from bicycle_runtime.recovery.savepoints import epoch_paths, read_savepoint


def signature_of(data: bytes, key: bytes) -> bytes:
    """Return the signature of a description, as it is stored."""
    return hmac.new(key, data, hashlib.sha256).hexdigest().encode() + b"\n"


def is_signed_with(storage: Storage, key: bytes) -> bool:
    """Return whether a savepoint was signed with a key, and is unchanged.

    Raises:
        SAVEPOINT_SIGNATURE_WRONG: it was, but names files without their digests.
        COPY_REFUSED: the manifest was changed.
        BicycleError: see ``read_savepoint``.
    """
    try:
        data, signature = storage.read(SAVEPOINT_FILE), storage.read(SAVEPOINT_SIGNATURE)
    except ObjectMissingError:
        return False
    if not hmac.compare_digest(signature_of(data, key), signature):
        return False
    savepoint = read_savepoint(storage)
    if not all(file.sha256 for file in savepoint.files):
        raise SAVEPOINT_SIGNATURE_WRONG(url=storage.url, problem="it has files without digests")
    first = {JOB_FILE, *epoch_paths(savepoint.epoch)}
    read_back(storage, [wanted_copy(file) for file in savepoint.files if file.path in first])
    return True
