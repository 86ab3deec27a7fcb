"""The health check of the image: exit code 0 if its service responds.

A container that runs no service, such as a job or an executor, is healthy as long as it runs. The
check runs every 10 s, so it imports none of the libraries of the service.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

_TIMEOUT_S = 8


def main(home: Path, words: list[str]) -> int:
    """Return the exit code for a home and the command line of the container."""
    if "up" not in words:
        return 0
    try:
        address = json.loads((home / "service/address.json").read_text("utf-8"))
        url = urlsplit(address["url"])
        # The certificate has the names for clients, and this request does not leave the machine.
        context = ssl._create_unverified_context() if url.scheme == "https" else None
        health = f"{url.scheme}://localhost:{url.port}/health"
        with urllib.request.urlopen(health, timeout=_TIMEOUT_S, context=context):
            return 0
    except OSError as error:
        sys.stderr.write(f"the service does not respond: {error}\n")
        return 1


if __name__ == "__main__":
    command_line = Path("/proc/1/cmdline").read_text("utf-8", errors="replace")
    sys.exit(main(Path(os.environ["BICYCLE_HOME"]), command_line.split("\0")))
