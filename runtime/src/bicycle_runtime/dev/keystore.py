"""The key of a TLS listener for development: made by Java's keytool, trusted through a PEM file.

The certificate signs itself and names this machine's loopback only. It is for brokers of tests and
of developers; a broker that others reach gets a certificate from its own issuer.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.dev.errors import KEYSTORE_NOT_MADE
from bicycle_runtime.dev.java_programs import require_keytool

__all__ = ["Keystore", "make_keystore"]

_ALIAS = "broker"
_PASSWORD = "development"  # Guards nothing: it lies beside the key.
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Keystore:
    """A key with its certificate (PKCS 12), and the certificate that clients must trust (PEM)."""

    path: Path
    ca_path: Path
    password: str = field(repr=False)


def make_keystore(folder: Path) -> Keystore:
    """Make a key for ``localhost`` and ``127.0.0.1``, or return the one that lies in the folder.

    Raises:
        BROKER_JAVA_MISSING: there is no Java.
        KEYSTORE_NOT_MADE: there is no keytool, or it failed.
    """
    store = Keystore(path=folder / "broker.p12", ca_path=folder / "ca.pem", password=_PASSWORD)
    if store.path.is_file() and store.ca_path.is_file():
        return store
    folder.mkdir(parents=True, exist_ok=True)
    store.path.unlink(missing_ok=True)
    place = ("-keystore", str(store.path), "-storetype", "PKCS12", "-storepass", store.password)
    _keytool(
        folder,
        *("-genkeypair", "-alias", _ALIAS, "-keyalg", "RSA", "-keysize", "2048", *place),
        *("-dname", "CN=localhost", "-ext", "SAN=DNS:localhost,IP:127.0.0.1"),
        *("-ext", "BC=ca:true", "-validity", "3650"),
    )
    certificate = ("-exportcert", "-rfc", "-alias", _ALIAS, "-file", str(store.ca_path))
    _keytool(folder, *certificate, *place)
    return store


def _keytool(folder: Path, *arguments: str) -> None:
    keytool = require_keytool()
    if keytool is None:
        raise KEYSTORE_NOT_MADE(folder=str(folder), reason="Java's keytool was not found")
    try:
        result = subprocess.run(
            [str(keytool), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KEYSTORE_NOT_MADE(folder=str(folder), reason=str(error)) from error
    if result.returncode:
        reason = " ".join(f"{result.stdout} {result.stderr}".split()) or "no output"
        raise KEYSTORE_NOT_MADE(folder=str(folder), reason=reason)
