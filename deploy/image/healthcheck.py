"""The health check of the image: exit code 0 if its service responds.

A container that runs no service, such as a job or an executor, is healthy as long as it runs.
"""

from __future__ import annotations

import ssl
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import read_address
from bicycle_streams.cli.server_options import home_folder

_TIMEOUT_S = 8


def main() -> int:
    """Return the exit code: 0 if the service responds or does not run here."""
    address = read_address(Home(home_folder()))
    if address is None:
        return int(_runs_service())
    port = urlsplit(address["url"]).port
    scheme = urlsplit(address["url"]).scheme
    # The certificate has the names for clients, and this request does not leave the machine.
    context = ssl._create_unverified_context() if scheme == "https" else None
    url = f"{scheme}://localhost:{port}/health"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S, context=context) as answer:
        return int(answer.status != 200)


def _runs_service() -> bool:
    words = Path("/proc/1/cmdline").read_text("utf-8", errors="replace").split("\0")
    return "up" in words


if __name__ == "__main__":
    sys.exit(main())
