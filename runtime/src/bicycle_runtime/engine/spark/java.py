"""The direct start of Spark's Java process, with a class-data archive.

``spark-submit`` starts a second Java process only to compute a command line. That line is computed
once per Spark and Java and kept in the cache directory, beside an archive of loaded classes that
the first run leaves behind; both only make the start faster, and are made again when missing or
foreign.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import resource
import shlex
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import ModuleType
from typing import IO, Any

from bicycle_runtime.base.environment import chosen_variables, environment_for_child
from bicycle_runtime.base.files import replace_file
from bicycle_runtime.base.java import find_java, log4j_settings
from bicycle_runtime.base.processes import (
    OPEN_FILES_MIN,
    how_it_ended,
    keep_niceness,
    last_log_lines,
    open_files_max,
)
from bicycle_runtime.base.stacks import STACKS_VARIABLE
from bicycle_runtime.base.work_folders import WorkFolder
from bicycle_runtime.engine.errors import SparkStartError, SparkStartKilledError
from bicycle_runtime.engine.spark.early_daemon import DAEMON_MODULE, EARLY_MODULE, SOCKET, WAIT
from bicycle_runtime.engine.spark.settings import DAEMON_OPTION, is_embedded

_PY4J = "py4j"
_SQL, _SQL_NAMES = "pyspark.sql", ("SQLContext", "HiveContext", "Row")
_START_SECONDS_MAX = 120
_POLL_SECONDS = 0.01
_ARCHIVE_SECONDS = 3.0
_ADDRESS_BYTES_MIN = 8 << 30
# The jars that nine of ten classes of a run come from, by how their names begin.
FIRST_JARS = (
    "spark-core_", "scala-library-", "log4j-", "jackson-", "hadoop-client-", "spark-", "netty-",
    "ivy-", "kryo-", "chill", "icu4j-", "py4j-", "json4s-", "metrics-", "slf4j-", "avro-",
    "jakarta.servlet-", "lz4-java-",
)  # fmt: skip
_NOISE = (b"WARNING: Using incubator modules", b"NOTE: Picked up ")
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# Java, as the process of this shell, is the parent of the daemon, and ends with it.
_BESIDE_DAEMON = f'"$1" -u -m {DAEMON_MODULE} {WAIT} "$0" $$ & shift; exec "$@"'
_SOCKET_BYTES_MAX = 103
# Settings for Spark's launcher: later, they come too late.
_MEMORY = "spark.driver.memory"
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
_CLASS_PATH, _LIBRARY_PATH = "spark.driver.extraClassPath", "spark.driver.extraLibraryPath"
# Spark's launcher adds these to the class path.
_CLASS_PATH_VARIABLES = (
    "HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "YARN_CONF_DIR",
)  # fmt: skip
_LIBRARY_VARIABLE = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"


class StartingJava:
    """A Java process on its way up; other work can be done until ``wait``."""

    def __init__(
        self, process: subprocess.Popen[bytes], info_path: Path, log_path: Path, master: str
    ) -> None:
        self.process = process
        self._is_forwarded = False
        self._info_path = info_path
        self._log_path = log_path
        self._master = master

    def wait(self) -> tuple[int, str]:
        """Return the port and the secret of the gateway, once the process answers.

        Raises:
            SparkStartError: it ended; with the last lines of its log.
            SparkStartKilledError: a signal ended it, or it did not answer in time.
        """
        pause = threading.Event()
        waited = 0.0
        while not self._info_path.is_file():
            if self.process.poll() is not None:
                raise self._end_error(self.process.returncode)
            if waited > _START_SECONDS_MAX:
                self.process.kill()
                reason = f"no response within {_START_SECONDS_MAX} s; {self._last_lines()}"
                raise SparkStartKilledError(master=self._master, reason=reason)
            pause.wait(_POLL_SECONDS)
            waited += _POLL_SECONDS
        data = self._info_path.read_bytes()
        port, length = struct.unpack_from(">ii", data)
        return port, data[8 : 8 + length].decode("utf-8")

    def forward(self, errors: IO[bytes]) -> None:
        """Write the output of workers to ``errors``; repeated calls have no effect."""
        if not self._is_forwarded:
            self._is_forwarded = True
            streams = (self.process.stderr, errors)
            threading.Thread(
                target=_forward, args=streams, name="spark-stderr", daemon=True
            ).start()

    def end(self, *, has_run: bool) -> None:
        """End the process; after tasks it ends by itself, and writes the class archive."""
        if self.process.stdin is not None:
            self.process.stdin.close()  # The gateway ends at the end of its input.
        if self.process.stderr is not None and not self._is_forwarded:
            self.process.stderr.close()
        if not has_run:
            # At SIGTERM, Java would write an archive for all later starts, without most classes.
            self.process.send_signal(SIGKILL if is_embedded(self._master) else SIGTERM)

    def _end_error(self, code: int) -> SparkStartError:
        reason = f"java ended with {how_it_ended(code)}; {self._last_lines()}"
        error = SparkStartKilledError if code < 0 else SparkStartError
        return error(master=self._master, reason=reason)

    def _last_lines(self) -> str:
        with contextlib.suppress(OSError):
            return "log: " + " | ".join(last_log_lines(self._log_path)[-5:]) + low_limits()
        return f"it wrote no log{low_limits()}"


def low_limits() -> str:
    """Return a hint about process limits that are too low for Java, or an empty text."""
    files, found = open_files_max(), ""
    if files is not None and files < OPEN_FILES_MIN:
        found += f"; at most {files} files may be open, {OPEN_FILES_MIN} are needed (ulimit -n)"
    size, _ = resource.getrlimit(resource.RLIMIT_AS)
    if size != resource.RLIM_INFINITY and size < _ADDRESS_BYTES_MIN:
        found += f"; the address space has at most {size:,} bytes, Java reserves more (ulimit -v)"
    return found


def start_java(
    *, master: str, settings: Mapping[str, str], folder: WorkFolder, cache_dir: Path
) -> StartingJava:
    """Start Spark's Java process and return at once.

    It ends with this process, killed or not, in whatever it is at: its input closes then.

    Args:
        master: Spark master URL.
        settings: Of Spark; some must be known when the process starts.
        folder: Of this run; the log is put there.
        cache_dir: Directory that outlives runs.
    """
    java = find_java()
    if java is None:
        raise SparkStartError(master=master, reason="no Java found on PATH or in JAVA_HOME")
    log_path, info_path = folder.path / "spark.log", folder.path / "gateway"
    log4j = folder.path / "log4j2.properties"
    log4j.write_text(log4j_settings(log_path, level="warn"), encoding="utf-8")
    now_s = log4j.stat().st_mtime
    base = _java_command(cache_dir, java.path, master)
    class_path = settings.get(_CLASS_PATH, "")
    paths = base.index("-cp") + 1
    base[paths] = _join(class_path, search_path(base[paths]))
    archive_options = _archive_options(cache_dir, java.path, base[paths], now_s=now_s)
    command = [
        base[0], *archive_options, f"-Dlog4j2.configurationFile={log4j}",
        f"-Djava.io.tmpdir={folder.path}", *base[1:], *_options(settings, master),
        _SUBMIT, "--master", master, "pyspark-shell",
    ]  # fmt: skip
    environment = {
        "SPARK_HOME": _spark_home(), "PYTHONHASHSEED": "0", "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info_path), "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    early_socket = folder.path / SOCKET
    if _is_early(settings) and len(os.fsencode(early_socket)) <= _SOCKET_BYTES_MAX:
        beside = ["/bin/sh", "-c", _BESIDE_DAEMON, str(early_socket), sys.executable]
        command = [*beside, *command]
    if settings.get(_LIBRARY_PATH):
        own = chosen_variables([_LIBRARY_VARIABLE]).get(_LIBRARY_VARIABLE, "")
        environment[_LIBRARY_VARIABLE] = _join(settings[_LIBRARY_PATH], own)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=environment_for_child(environment), start_new_session=True, pass_fds=folder.held,
    )  # fmt: skip
    keep_niceness(process.pid)
    return StartingJava(process, info_path, log_path, master)


def _is_early(settings: Mapping[str, str]) -> bool:
    """Return whether the daemon can start beside Java, with the same variables."""
    prefix = "spark.executorEnv."
    variables = {name for name in settings if name.startswith(prefix)} - {prefix + STACKS_VARIABLE}
    return settings.get(DAEMON_OPTION) == EARLY_MODULE and not variables


def search_path(class_path: str) -> str:
    """Return a class path with the jars of most classes first in their folder.

    Java asks one jar after the other for each class, and Spark has 280: that is half of its
    processor time in a start without an archive of classes.

    Args:
        class_path: Of Spark's launcher; ``folder/*`` means all jars in it, in any order.
    """
    found = []
    for entry in class_path.split(os.pathsep):
        if entry.endswith("/*"):
            jars = sorted(Path(entry[:-2]).glob("*.jar"))
            found += [str(jar) for name in FIRST_JARS for jar in jars if jar.name.startswith(name)]
        found.append(entry)
    return os.pathsep.join(dict.fromkeys(found))


def hush_py4j() -> None:
    """Keep tracebacks of py4j out of the log; again does nothing.

    It logs one for each connection when Java is killed, partly to the root logger, and raises the
    error, too: we report it once, at the raise.
    """
    logging.getLogger(_PY4J).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def hush_serializers() -> None:
    """Suppress PySpark's traceback of pickling errors; repeated calls have no effect.

    Pickling a broadcast asks Java for its id: when Java is dead, a traceback would be printed
    beside our error. The error is raised all the same, with its cause.
    """
    import pyspark.core.broadcast  # slow: loaded while Java comes up
    import pyspark.util

    for module in (pyspark.util, pyspark.core.broadcast):
        setattr(module, "print_exec", _print_nothing)  # noqa: B010 - types forbid a plain assignment


def import_spark() -> None:
    """Import PySpark, once, without its SQL, which takes half of the time.

    No task needs SQL. It would also have py4j load NumPy before the first call. Others can import
    it later, also by the names in ``pyspark``.
    """
    if "pyspark" in sys.modules:
        return
    sys.modules[_SQL] = ModuleType(_SQL)
    vars(sys.modules[_SQL]).update(dict.fromkeys(_SQL_NAMES))
    try:
        spark = vars(importlib.import_module("pyspark"))
    finally:
        del sys.modules[_SQL]
    for name in _SQL_NAMES:
        del spark[name]
    spark["__getattr__"] = _sql_name


def _sql_name(name: str) -> Any:
    if name in _SQL_NAMES:
        return getattr(importlib.import_module(_SQL), name)
    raise AttributeError(name)


def _print_nothing(_stream: object) -> None:
    """Print no text: the error is raised."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != _PY4J


def spark_environment() -> dict[str, str]:
    """Return the variables by which Spark's own programs find Spark."""
    home = _spark_home()
    return {"SPARK_HOME": home, "SPARK_SCALA_VERSION": _scala_version(Path(home) / "jars")}


def _spark_home() -> str:
    import importlib.util  # the package is only looked for, not imported: it costs 0.3 s

    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent)


def _java_command(cache_dir: Path, java: Path, master: str) -> list[str]:
    """Return the command, options and class path of Spark's launcher, cached or new."""
    cached = cache_dir / f"spark-command-{_fingerprint(java)}"
    if cached.is_file():
        return cached.read_bytes().decode().split("\0")
    jars = Path(_spark_home()) / "jars"
    launcher = ["-cp", f"{jars}/*", "org.apache.spark.launcher.Main", _SUBMIT, "pyspark-shell"]
    environment = environment_for_child(spark_environment())
    result = subprocess.run(
        [str(java), "-Xmx128m", *launcher], capture_output=True, env=environment, check=False
    )
    words = [word for word in result.stdout.decode().split("\0") if word.strip()]
    if result.returncode or _SUBMIT not in words:
        # Java reports on its standard output that it cannot start.
        said = (result.stderr or result.stdout).decode(errors="replace").strip()
        reason = " | ".join(said[-500:].splitlines()) + low_limits()
        if result.returncode < 0:
            how = how_it_ended(result.returncode)
            raise SparkStartKilledError(master=master, reason=f"java ended with {how}; {reason}")
        raise SparkStartError(master=master, reason=reason)
    command = [word.strip() for word in words[: words.index(_SUBMIT)]]
    cached.parent.mkdir(parents=True, exist_ok=True)
    replace_file(cached, "\0".join(command).encode())
    return command


def _options(settings: Mapping[str, str], master: str) -> list[str]:
    """Return the options with which Spark's launcher would apply settings."""
    options: list[str] = []
    for name in _JAVA_OPTIONS:
        try:
            options += shlex.split(settings.get(name, ""))
        except ValueError as error:
            raise SparkStartError(master=master, reason=f"{name}: {error}") from None
    memory = settings.get(_MEMORY)
    return [f"-Xmx{memory}", *options] if memory else options


def _scala_version(jars: Path) -> str:
    library = next(jars.glob("spark-core_*.jar")).name
    return library.removeprefix("spark-core_").partition("-")[0]


def _join(first: str, others: str) -> str:
    return os.pathsep.join(path for path in (first, others) if path)


def _archive_options(cache_dir: Path, java: Path, class_path: str, *, now_s: float) -> list[str]:
    """Return the options that use the class-data archive, or create it at the end.

    An archive serves one class path only.
    """
    archive = cache_dir / f"spark-classes-{_fingerprint(java, class_path)}.jsa"
    cache_dir.mkdir(parents=True, exist_ok=True)
    for left in cache_dir.glob(f"{archive.name}.*"):
        with contextlib.suppress(FileNotFoundError):  # another run takes it at the same time
            if now_s - left.stat().st_mtime < _ARCHIVE_SECONDS:
                continue  # Java may still be writing it, after its driver has gone
            if archive.exists():
                left.unlink()
            else:
                left.replace(archive)
    if archive.exists():
        use = f"-XX:SharedArchiveFile={archive}"
    else:
        use = f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"
    return [use, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _fingerprint(java: Path, class_path: str = "") -> str:
    home = Path(_spark_home())
    facts = (
        str(java.resolve()),
        str(java.resolve().stat().st_mtime_ns),
        str(home),
        str((home / "jars").stat().st_mtime_ns),
        *([class_path] if class_path else []),
        *map("=".join, chosen_variables(_CLASS_PATH_VARIABLES).items()),
    )
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _forward(source: IO[bytes] | None, target: IO[bytes]) -> None:
    assert source is not None
    with source, contextlib.suppress(ValueError, OSError):  # either side may be closed at the end
        for line in source:
            if not line.startswith(_NOISE):
                target.write(line)
                target.flush()


def stop_context(context: Any, *, has_ended: Callable[[], bool]) -> None:
    """Stop Spark without waiting for its idle server of accumulators.

    The server's thread looks up once a second, and Spark waits for it: each run would end as much
    later. Again does nothing.

    Args:
        context: The running context.
        has_ended: Returns whether the Java process is gone: then Spark has stopped, too.
    """
    from py4j.protocol import Py4JError  # Spark is imported when it is used

    server, context._accumulatorServer = context._accumulatorServer, None
    try:
        context.stop()
    except (Py4JError, OSError):
        if not has_ended():
            raise
    if server is None:
        return
    if isinstance(server.server_address, str):
        Path(server.server_address).unlink(missing_ok=True)
    threading.Thread(target=server.shutdown, name="accumulators-end", daemon=True).start()


def forget_context() -> None:
    """Reset PySpark's cached Java process, so that another one can be used."""
    from pyspark import SparkContext  # it was imported when the context was made

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
