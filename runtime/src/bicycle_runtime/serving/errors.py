"""Errors of the process that serves."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

ADDRESS_REFUSED = BicycleError.row(
    "BIC-2501",
    "others could reach {host!r}, which is {found}, and {missing}; nothing was started",
    cause="The service would be open to others, who could run code as its user.",
    fix="make a token with `bicycle token create NAME --role admin`, and give --tls-cert FILE "
    "--tls-key FILE; or listen on 127.0.0.1, where `ssh -L {port}:127.0.0.1:{port}` leads",
)


ADDRESS_TAKEN = BicycleError.row(
    "BIC-2502",
    "cannot listen on {host} port {port}: {reason}; nothing was started",
    cause="The address cannot be listened on.",
    fix="choose another port; 0 takes any that is free",
)


TLS_INCOMPLETE = BicycleError.row(
    "BIC-2503",
    "TLS needs {missing}, too; nothing was started",
    cause="One of the options for TLS lacks another that belongs to it.",
    fix="give --tls-cert with --tls-key, and --tls-client-ca with --client-role NAME=ROLE",
)


TLS_UNUSABLE = BicycleError.row(
    "BIC-2504",
    "TLS cannot be spoken with {files}: {reason}; nothing was started",
    cause="A certificate or key cannot be read, or they do not belong together.",
    fix="give PEM files that this user may read, the key without a passphrase",
)
