"""The program that Java starts as its daemon while another daemon waits.

The imports of a daemon take a third of a second, for which the first epoch would wait. So a daemon
starts together with Java and waits (``daemon.wait_for_java``). This program imports next to
nothing, passes its streams and environment to that daemon, and ends with it. Without one, it
becomes the daemon.
"""

from __future__ import annotations

import marshal
import os
import socket
import sys

from bicycle_runtime.base.environment import chosen_variables, environment_for_child

FOLDER_VARIABLE = "BICYCLE_PLACES"
EARLY_MODULE = "bicycle_runtime.engine.spark.early_daemon"
DAEMON_MODULE = "bicycle_runtime.engine.spark.daemon"
SOCKET, WAIT = "daemon", "--wait"
_STREAMS = (0, 1, 2)


def main() -> None:
    """Pass streams and environment to the waiting daemon, or become a daemon."""
    folder = chosen_variables([FOLDER_VARIABLE]).get(FOLDER_VARIABLE, "")
    facts = (sys.executable, sys.argv, sys.path, environment_for_child({}))
    is_taken = False
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(f"{folder.rpartition('/')[0]}/{SOCKET}")
            socket.send_fds(link, [b"\0"], _STREAMS)
            link.sendall(marshal.dumps(facts))
            link.shutdown(socket.SHUT_WR)
            is_taken = bool(link.recv(1))
            while is_taken and link.recv(1):  # Nothing comes until the daemon ends.
                pass
        except OSError:
            if is_taken:  # The daemon was killed.
                return
    if not is_taken:
        os.execv(sys.executable, [sys.executable, "-m", DAEMON_MODULE, *sys.argv[1:]])


if __name__ == "__main__":
    main()
