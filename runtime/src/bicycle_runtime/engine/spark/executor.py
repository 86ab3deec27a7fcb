"""One linear Spark job per epoch: level 0, shuffle, level 1, …, task reports back to the driver."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from bicycle_runtime.base.environment import chosen_variables, environment_set
from bicycle_runtime.engine.errors import EpochFailedError, SparkLostError, SparkStartError
from bicycle_runtime.engine.spark.java import JavaProcess, StartingJava, start_java
from bicycle_runtime.engine.spark.work_folder import WorkFolder, remove_abandoned
from bicycle_runtime.engine.spark.worker import LevelTask, encode_order
from bicycle_runtime.operators.reports import TaskReport, decode_report
from bicycle_runtime.operators.spec import JobImage
from bicycle_runtime.operators.task import EpochOrder, reports_in

__all__ = ["SparkExecutor", "default_master"]

_TASK_ATTEMPTS = 4
_REASON_LINES = 6
_REASON_CHARACTERS = 2_000
_PYTHON_ERROR = re.compile(
    r"(?!org\.|java\.|scala\.)[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b"
)
_END_SECONDS_MAX = 5
_STOP_SECONDS_MAX = 20
# Settings that matter for short jobs with Python tasks; each was measured (docs/architecture.md).
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.cleaner.periodicGC.interval": "1min",
    "spark.locality.wait": "0",
    "spark.task.maxFailures": str(_TASK_ATTEMPTS),
    "spark.eventLog.enabled": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}
_PASSED_TO_WORKERS = ("BICYCLE_FAULTS", "BICYCLE_FAULTS_ONCE")


def default_master() -> str:
    """Return embedded Spark on all cores, with task retries as on a cluster."""
    return f"local[*,{_TASK_ATTEMPTS}]"


class SparkExecutor:
    """Runs epochs on Spark, embedded (``local[…]``) or on a cluster.

    ``boot`` starts the Java process early, so that it comes up while a plugin is extracted.

    Args:
        master: Spark master URL.
        settings: More Spark settings; they win over ours.
        cache_dir: Where what makes the next start faster is kept.
        job: Job id, for errors.
    """

    def __init__(
        self, master: str, *, settings: Mapping[str, str], cache_dir: Path, job: str
    ) -> None:
        self._master = master
        self._cache_dir = cache_dir
        self._job = job
        self._folder = WorkFolder()
        self._work_dir = self._folder.path
        local = _LOCAL_SETTINGS if master.startswith("local") else {}
        self._settings = {
            **_SETTINGS,
            **local,
            "spark.local.dir": str(self._work_dir / "local"),
            **settings,
        }
        self._starting: StartingJava | None = None
        self._java: JavaProcess | None = None
        self._context: Any = None
        self._image: Any = None
        self._run_id = ""
        self._seed: Any = None
        self._widths: tuple[int, ...] = ()
        self._epoch = 0

    @property
    def log_path(self) -> Path:
        """The log of Spark's Java process."""
        return self._work_dir / "spark.log"

    @property
    def java_pid(self) -> int | None:
        """Process id of Spark's Java process; None before it is started."""
        return self._starting.process.pid if self._starting else None

    def boot(self) -> None:
        """Start the Java process, and load Spark's Python half meanwhile; again does nothing."""
        if self._starting is None:
            remove_abandoned()
            start_settings = {
                "spark.driver.memory": self._settings.get("spark.driver.memory", "1g")
            }
            self._starting = start_java(
                master=self._master, settings=start_settings, work_dir=self._work_dir,
                cache_dir=self._cache_dir, errors=sys.stderr.buffer,
            )  # fmt: skip
            importlib.import_module("pyspark")  # 0.35 s, which Java needs anyway

    def start(self, image: JobImage) -> None:
        """Get ready for a job; again with other widths, or for the next job, before ``stop``."""
        self.boot()
        assert self._starting is not None
        if self._context is None:
            self._java = self._starting.wait()
            self._context = self._connect(self._java)
        with self._spark_errors(self._epoch):
            if self._image is not None:
                self._image.destroy()
            self._image = self._context.broadcast(cloudpickle.dumps(image))
            self._run_id = image.run_id
            self._widths = image.plan.level_parallelism
            width = self._widths[0]
            self._seed = self._context.parallelize(range(width), width)

    def run(self, orders: list[EpochOrder]) -> list[TaskReport]:
        parcels = self._collect(orders)
        return [decode_report(report) for report in reports_in(parcel for _, parcel in parcels)]

    def stop(self) -> None:
        try:
            if self._context is not None and self._is_alive():
                self._context.stop()
        finally:
            if self._context is not None:
                _forget_context()
            self._end_java()
            self._folder.remove()

    def wait_ended(self) -> None:
        """Wait, after ``stop``, until the Java process is gone too; a job that ends does not."""
        if self._starting is not None:
            self._starting.process.wait(_STOP_SECONDS_MAX)

    def _collect(self, orders: list[EpochOrder]) -> list[Any]:
        self._epoch = orders[0].epoch
        with self._spark_errors(self._epoch):
            rdd = self._seed
            for level, order in enumerate(orders):
                if level:
                    rdd = rdd.partitionBy(self._widths[level], _same)
                task = LevelTask(self._run_id, self._image, level, encode_order(order))
                rdd = rdd.mapPartitionsWithIndex(task)
            collected: list[Any] = rdd.collect()
            return collected

    @contextlib.contextmanager
    def _spark_errors(self, epoch: int) -> Iterator[None]:
        """Raise what Spark raises as ours, and tell a Java process that is gone from the rest."""
        from py4j.protocol import Py4JError, Py4JJavaError  # Spark is imported when it is used

        try:
            yield
        except Py4JJavaError as error:
            reason = _root_reason(error)
            raise EpochFailedError(epoch=epoch, job=self._job, reason=reason) from error
        except (Py4JError, ConnectionError, OSError, EOFError) as error:
            if not self._has_ended():
                raise EpochFailedError(epoch=epoch, job=self._job, reason=str(error)) from error
            raise SparkLostError(epoch=epoch, job=self._job) from error

    def _connect(self, java: JavaProcess) -> Any:
        from pyspark import SparkConf, SparkContext  # slow: loaded while Java comes up
        from pyspark.java_gateway import launch_gateway

        on_interrupt = signal.getsignal(signal.SIGINT)
        gateway_place = {
            "PYSPARK_GATEWAY_PORT": str(java.port),
            "PYSPARK_GATEWAY_SECRET": java.secret,
        }
        try:
            with environment_set(gateway_place):
                gateway = launch_gateway()  # type: ignore[no-untyped-call]  # Spark's own
            conf = SparkConf(loadDefaults=True, _jvm=gateway.jvm).setAppName(f"bicycle-{self._job}")
            conf.setMaster(self._master)
            for name, value in {**self._settings, **self._worker_environment()}.items():
                conf.set(name, value)
            context = SparkContext(conf=conf, gateway=gateway)
            context.pythonExec = sys.executable  # else the first python3 on the workers' PATH
            # We have no accumulators, and it would print a traceback when Java is killed.
            setattr(context._accumulatorServer, "handle_error", _ignore_broken_request)  # noqa: B010 - types forbid a plain assignment
            return context
        except Exception as error:
            raise SparkStartError(master=self._master, reason=_root_reason(error)) from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, on_interrupt)  # Spark put its own there

    def _worker_environment(self) -> dict[str, str]:
        passed = chosen_variables(_PASSED_TO_WORKERS)
        return {
            f"spark.executorEnv.{name}": value
            for name, value in {**passed, "PYTHONHASHSEED": "0"}.items()
        }

    def _is_alive(self) -> bool:
        return self._starting is not None and self._starting.process.poll() is None

    def _has_ended(self) -> bool:
        """Tell whether Java is gone; when killed, its sockets close before it is seen to end."""
        if self._starting is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._starting.process.wait(_END_SECONDS_MAX)
        return not self._is_alive()

    def _end_java(self) -> None:
        if self._starting is None:
            return
        process = self._starting.process
        if process.stdin is not None:
            process.stdin.close()  # the gateway ends at end of input, and writes the class archive
        if self._context is None:
            process.terminate()


def _forget_context() -> None:
    """Let another Java process be used: Spark keeps the first one of a Python process for good."""
    from pyspark import SparkContext  # it was imported when the context was made

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def _same(target: int) -> int:
    return target


def _ignore_broken_request(_request: object, _client: object) -> None:
    """Say nothing: whether Java is gone is told where an epoch fails."""


def _root_reason(error: BaseException) -> str:
    """Return the cause that Spark wraps: the worker's Python error if there is one, else Java's."""
    text = str(getattr(error, "java_exception", None) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _PYTHON_ERROR.match(line)]
    if raised:
        return raised[-1][:_REASON_CHARACTERS]
    interesting = [line for line in lines if not line.startswith(("at ", "..."))]
    return " | ".join(interesting[:_REASON_LINES])[:_REASON_CHARACTERS]
