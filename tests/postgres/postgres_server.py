"""A PostgreSQL server of its own, in a temporary folder, by a user that is not root."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg

# Sessions that must not lose what they commit by a kill of the server ask for it themselves.
_FAST = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=60"


def programs() -> Path:
    """Return the newest folder with the programs of a server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    assert found, "PostgreSQL is not installed: apt-get install postgresql"
    return found[-1].parent


class PostgresServer:
    """A server on a free port. Everybody is trusted but ``eve``, who needs a password."""

    def __init__(self) -> None:
        self._user = None
        if os.getuid() == 0:  # The server does not run as root.
            self._user = pwd.getpwnam("postgres")
        self._folder = Path(tempfile.mkdtemp(prefix="bicycle-postgres-"))
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        data = str(self._folder / "data")
        self._call("initdb", "-D", data, "-U", "ada", "-A", "trust", "-E", "UTF8", "--no-sync")
        rules = "host all eve 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        (self._folder / "data/pg_hba.conf").write_text(rules)
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://ada@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers; harmless when it runs."""
        if (self._folder / "data/postmaster.pid").exists():
            return
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} {_FAST}"
        log = str(self._folder / "log")
        self._call("pg_ctl", "-D", str(self._folder / "data"), "-w", "-t", "120", "-l", log,
                   "-o", options, "start")  # fmt: skip

    def kill(self) -> None:
        """End it at once, with all sessions, as a crash does."""
        self._call("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", "immediate", "stop")

    def fail_over(self) -> None:
        """Start it again as a replica; `select pg_promote()` makes it the primary."""
        self.kill()
        (self._folder / "data/standby.signal").touch()
        self.start()

    def query(self, text: str, *values: object) -> list[tuple]:
        """Return the rows of a statement, none where it has none; a kill loses nothing of it."""
        options = "-c synchronous_commit=on"
        with psycopg.connect(self.url, autocommit=True, options=options) as connection:
            cursor = connection.execute(text, values)
            return cursor.fetchall() if cursor.description else []

    def remove(self) -> None:
        if (self._folder / "data/postmaster.pid").exists():
            self.kill()
        shutil.rmtree(self._folder)

    def _call(self, program: str, *arguments: str) -> None:
        ids = {} if self._user is None else {
            "user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [],
        }  # fmt: skip
        subprocess.run(
            [programs() / program, *arguments], check=True, cwd=self._folder, **ids,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
