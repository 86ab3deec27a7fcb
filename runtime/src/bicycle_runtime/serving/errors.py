"""Errors of the process that serves."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

ADDRESS_REFUSED = BicycleError.row(
    "BIC-2501",
    "the service listens on loopback addresses only, and {host!r} is {found}; nothing was started",
    cause="The service would be open to others, who could run code as its user.",
    fix="use --host 127.0.0.1; from another machine, `ssh -L {port}:127.0.0.1:{port}` leads here",
)


ADDRESS_TAKEN = BicycleError.row(
    "BIC-2502",
    "cannot listen on {host} port {port}: {reason}; nothing was started",
    cause="The address cannot be listened on.",
    fix="choose another --port; 0 takes any that is free",
)
