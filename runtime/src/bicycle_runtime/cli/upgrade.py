"""``bicycle upgrade``: a running job continues with another version of its plugin."""

from __future__ import annotations

from bicycle_runtime.cli.operations import operation_command
from bicycle_runtime.service.operations.upgrading import UPGRADE

upgrade_command = operation_command(UPGRADE)
