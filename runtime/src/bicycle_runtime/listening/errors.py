"""Errors of listening sockets and their certificates."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

ADDRESS_REFUSED = BicycleError.row(
    "BIC-2501",
    "{host!r} ({found}) is reachable from other machines, but {missing}; nothing was started",
    cause="Other machines could reach the service and run code as its user.",
    fix=(
        "create a token with `bicycle token create NAME --role admin`, and set --tls-cert FILE "
        "--tls-key FILE; or listen on 127.0.0.1 and connect with `ssh -L {port}:127.0.0.1:{port}`"
    ),
)


ADDRESS_TAKEN = BicycleError.row(
    "BIC-2502",
    "cannot listen on {host} port {port}: {reason}; nothing was started",
    cause="The server cannot listen on the address.",
    fix="choose another port; 0 selects a free port",
)


TLS_INCOMPLETE = BicycleError.row(
    "BIC-2503",
    "TLS also needs {missing}; nothing was started",
    cause="An option for TLS is missing that another option requires.",
    fix="set --tls-cert with --tls-key, and --tls-client-ca with --client-role NAME=ROLE",
)


TLS_UNUSABLE = BicycleError.row(
    "BIC-2504",
    "TLS cannot be configured with {files}: {reason}; nothing was started",
    cause="A certificate or key cannot be read, or they do not match.",
    fix="use PEM files that this user may read, the key without a passphrase",
)
