"""One linear Spark job per epoch: level 0, shuffle, level 1, …, task reports."""

from __future__ import annotations

import contextlib
import importlib
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from pickle import PicklingError
from typing import IO, Any

from bicycle_runtime.base.environment import chosen_variables, environment_set
from bicycle_runtime.base.processes import how_it_ended
from bicycle_runtime.base.stacks import ProcessStacks
from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.base.work_folders import WorkFolder, remove_abandoned
from bicycle_runtime.engine.errors import (
    EXECUTORS_LOST,
    EpochFailedError,
    SparkLostError,
    SparkStartError,
    SparkStartKilledError,
)
from bicycle_runtime.engine.hosts.shipment import Shipment
from bicycle_runtime.engine.spark.anchors import Anchors, levels_with_state
from bicycle_runtime.engine.spark.early_daemon import FOLDER_VARIABLE
from bicycle_runtime.engine.spark.java import (
    StartingJava,
    forget_context,
    hush_py4j,
    hush_serializers,
    import_spark,
    low_limits,
    start_java,
    stop_context,
)
from bicycle_runtime.engine.spark.java_errors import is_worker_gone, root_reason, text_of
from bicycle_runtime.engine.spark.positions_folder import noted_count
from bicycle_runtime.engine.spark.settings import is_embedded, spark_settings
from bicycle_runtime.engine.spark.spark_cluster import (
    ClusterView,
    ExecutorWatch,
    limit_start,
    require_master,
    require_master_id,
)
from bicycle_runtime.engine.spark.worker_needs import WORKER_MODULE, WorkerNeeds
from bicycle_runtime.layouts.paths import JOB_FILE
from bicycle_runtime.operators.heartbeats import LastPosition
from bicycle_runtime.operators.spec import JobImage, StagePlan
from bicycle_runtime.operators.tasks.orders import EpochOrder
from bicycle_runtime.operators.tasks.task_reports import TaskReport, decode_report, reports_in
from bicycle_runtime.records.by_value import pickle_by_value
from bicycle_sdk.clock import Clock, SystemClock
from bicycle_sdk.errors import BicycleError
from bicycle_sdk.logging import log_event

_LOG = logging.getLogger(__name__)
_END_SECONDS_MAX = 5
_STOP_SECONDS_MAX = 20
_PASSED_TO_WORKERS = ("BICYCLE_FAULTS", "BICYCLE_FAULTS_ONCE")
_PYTHON_SETTING, _PYTHON_VARIABLE = "spark.pyspark.python", "PYSPARK_PYTHON"
_ENVIRONMENT_VARIABLE = "BICYCLE_ENVIRONMENT"
_CLUSTER_TIMEOUT_MS = 60_000
_REST_S_MAX = 30.0  # Half of the time after which Spark ends Python workers without work.


class SparkExecutor:
    """Runs epochs on Spark, embedded (``local[…]``) or on a cluster.

    ``boot`` starts the Java process early, so that it comes up while a plugin is extracted. On a
    cluster, ``start`` waits for executors and compares versions with every host, and tasks with
    state stay on their hosts.

    Args:
        master: Spark master URL.
        settings: More Spark settings; they win over ours.
        cache_dir: Where what makes the next start faster is kept.
        job: Job id, for errors.
        cluster_timeout_ms: How long to wait on a cluster for the master and an executor, at the
            start and when all are lost.
        clock: Tells how long workers had nothing to do. Default: the machine's.
        errors: Gets the output of workers. Default: standard error.
        early: Java and its folder, if it was started before.
    """

    def __init__(
        self, master: str, *, settings: Mapping[str, str], cache_dir: Path, job: str,
        cluster_timeout_ms: int = _CLUSTER_TIMEOUT_MS, clock: Clock | None = None,
        errors: IO[bytes] | None = None, early: tuple[StartingJava, WorkFolder] | None = None,
    ) -> None:  # fmt: skip
        self._master = master
        self._cache_dir = cache_dir
        self._job = job
        self._timeout_s = cluster_timeout_ms / 1_000
        self._start_s = 0.0
        self._starting: StartingJava | None
        self._starting, self._folder = early or (None, WorkFolder())
        self._is_booted = False
        self._work_dir = self._folder.path
        self._positions_folder = self._work_dir / "places"
        self._settings = spark_settings(master, self._work_dir, settings)
        self._shipment = self._sent = Shipment()
        self._context: Any = None
        self._environment: dict[str, str] = {}  # the environment that PySpark sets for all workers
        self._image: Any = None
        self._plan: StagePlan | None = None
        self._run_id = ""
        self._seed: Any = None
        self._memory_mb = 0
        self._results: Any = None
        self._parallelisms: tuple[int, ...] = ()
        self._epoch = self._slots = 0
        self._view: ClusterView | None = None
        self._anchors: Anchors | None = None
        self._needs = WorkerNeeds()
        self._cleanup = contextlib.ExitStack()
        self._watch: ExecutorWatch | None = None
        self._clock = clock or SystemClock()
        self._errors = sys.stderr.buffer if errors is None else errors
        self._worked_at = self._clock.monotonic()
        self._workers: set[int] = set()  # All that have reported.
        self._found: list[LastPosition] = []
        self._asking = threading.Lock()
        self._taken: set[tuple[str, int, int | None, int | None]] = set()

    @property
    def log_path(self) -> Path:
        """The log of Spark's Java process."""
        return self._work_dir / "spark.log"

    @property
    def java_pid(self) -> int | None:
        """Process id of Spark's Java process; None before it is started."""
        return self._starting.process.pid if self._starting else None

    def boot(self) -> None:
        """Start Java, and load other parts meanwhile; repeated calls have no effect."""
        if self._starting is None:
            require_master(self._master)
            self._starting = start_java(
                master=self._master, settings=self._settings, folder=self._folder,
                cache_dir=self._cache_dir,
            )  # fmt: skip
        if not self._is_booted:
            self._is_booted = True
            self._starting.forward(self._errors)
            remove_abandoned()
            # 0.12 s and 0.3 s, which Java needs anyway.
            import_spark()
            importlib.import_module(WORKER_MODULE)

    def warm(self) -> None:
        """Start Java, connect to it, and start workers, long before there is a job.

        Raises:
            SparkStartError: Spark does not come up.
        """
        self._come_up()
        if is_embedded(self._master):
            self._touch_workers(self._context.defaultParallelism)

    def _come_up(self) -> None:
        self.boot()
        if self._context is None:
            assert self._starting is not None
            self._context = self._connect(*self._starting.wait())

    def ship(self, shipment: Shipment) -> None:
        """Set the plugin's shipment for workers, before ``start``."""
        self._shipment = shipment

    def start(self, image: JobImage) -> None:
        """Prepare for a job, again with other parallelism, or for the next job.

        Raises:
            SparkStartError: Spark does not come up, or a cluster has no executor for the job.
            HANDSHAKE_FAILED: plugin, driver and a host of the cluster do not fit together.
        """
        self._come_up()
        from bicycle_runtime.engine.spark.task_results import broadcast_to_jobs  # see ``_connect``

        is_first = self._image is None
        self._parallelisms = image.plan.level_parallelism
        with self._spark_errors(self._epoch):
            if is_first or self._sent != self._shipment:
                self._send_environment()
            if is_first and not is_embedded(self._master):
                self._join_cluster(image)
            self._assign_levels(image)
            if self._image is not None:
                self._image.destroy()
            self._image = broadcast_to_jobs(self._context, pickle_by_value(image))
            self._run_id, self._plan = image.run_id, image.plan
            parallelism = self._parallelisms[0]
            self._seed = self._context.parallelize(range(parallelism), parallelism)
            self._memory_mb = self._seed._memory_limit()
            self._slots = self._context.defaultParallelism  # All cores of the executors there are.

    def run(self, orders: list[EpochOrder]) -> list[TaskReport]:
        self._epoch = orders[0].epoch
        with self._spark_errors(self._epoch), self._watching():
            if self._anchors is not None and self._view is not None:
                self._anchors.refresh(self._view.hosts(), self._view.executors)
            blocks = self._run_levels(orders)
        self._worked_at = self._clock.monotonic()
        reports = [decode_report(report) for report in reports_in(blocks)]
        workers = {report.worker for report in reports} - self._workers
        if self._view is not None and workers and self._workers:  # They may replace others.
            self._ends()
        self._workers |= workers
        return reports

    def take_ended_workers(self) -> list[LastPosition]:
        """Return the workers that ended unasked since the last call."""
        if self._view is None and noted_count(self._positions_folder) > len(self._taken):
            self._ends()
        ends = [end for end in self._found if end.code is not None]
        fresh = {(end.host, end.pid, end.code, end.peak_bytes): end for end in ends}
        new = [end for key, end in fresh.items() if key not in self._taken]
        self._taken |= fresh.keys()
        return new

    def end_tasks(self) -> list[ProcessStacks]:
        """Cancel the tasks on other hosts; return the stacks of the workers that hang."""
        from bicycle_runtime.engine.spark.worker_ends import stacks_on_hosts  # see ``boot``

        with self._asking:
            hosts = {} if self._view is None or not self._is_alive() else self._view.hosts()
            return stacks_on_hosts(self._context, hosts) if hosts else []

    def slots(self) -> int:
        return self._slots

    def rest(self) -> None:
        """Send workers an empty task before Spark ends them, since they hold state.

        State would be loaded again, and functions opened, by the first record behind a pause.
        """
        if self._clock.monotonic() - self._worked_at >= _REST_S_MAX:
            self._touch_workers(max(self._parallelisms))

    def _touch_workers(self, count: int) -> None:
        from bicycle_runtime.engine.spark.worker import do_nothing  # all operators: see ``boot``

        try:
            with self._spark_errors(self._epoch), self._watching():
                self._context.parallelize(range(count), count).foreachPartition(do_nothing)
        except EpochFailedError as error:
            # The next epoch waits for executors, or fails; one that has nothing to do need not.
            log_event(_LOG, "workers_not_kept", level=logging.WARNING, job=self._job, error=error)
        self._worked_at = self._clock.monotonic()

    def stop(self) -> None:
        self._cleanup.close()
        try:
            with self._asking:
                if self._context is not None and self._is_alive():
                    stop_context(self._context, has_ended=self._has_ended)
        finally:
            if self._context is not None:
                forget_context()
            self._end_java()
            self._folder.remove()

    def wait_ended(self) -> None:
        """Wait until the Java process has ended, after ``stop``."""
        if self._starting is not None:
            self._starting.process.wait(_STOP_SECONDS_MAX)

    def _send_environment(self) -> None:
        """Send the plugin's environment to workers; another environment has other workers."""
        from bicycle_runtime.engine.spark.task_results import hold_environment  # see ``_connect``

        packed = self._shipment.environment
        facts = self._needs.facts
        self._needs = WorkerNeeds(facts=facts)
        environment = dict(self._environment)
        if packed is not None:
            self._context.addFile(str(packed.path))
            environment[_ENVIRONMENT_VARIABLE] = packed.digest
            self._needs = WorkerNeeds(archive=packed.path.name, digest=packed.digest, facts=facts)
        hold_environment(self._context, environment)
        self._sent = self._shipment

    def _join_cluster(self, image: JobImage) -> None:
        """Wait for executors, and compare versions with every host.

        Raises:
            NO_EXECUTOR: there was none in time.
            HANDSHAKE_FAILED: a host does not fit.
        """
        # Needed on clusters only: reading metadata of distributions is slow to import.
        from bicycle_runtime.engine.hosts.handshake import own_facts, require_match
        from bicycle_runtime.engine.spark.probing import ask_hosts

        self._view = ClusterView(self._context, master=self._master)
        watch = ExecutorWatch(self._context, self._view, timeout_s=self._timeout_s)
        self._watch = self._cleanup.enter_context(watch)
        hosts = self._view.wait_for_executors(
            parallelism=max(self._parallelisms),
            timeout_s=self._timeout_s,
            spent_s=self._start_s,
        )
        facts = own_facts(spark=str(self._context.version))
        with watch.working():
            answers = ask_hosts(
                self._context,
                hosts,
                python=self._context.pythonExec,
                archive=self._needs.archive,
                digest=self._needs.digest,
                module=self._shipment.module,
                token=_token(image),
            )
        require_match(facts, self._shipment.plugin, answers)
        self._needs = replace(self._needs, facts=facts)

    def _assign_levels(self, image: JobImage) -> None:
        """Assign stateful tasks to hosts, if there are several."""
        former = None
        if self._anchors is not None:
            self._anchors.remove()
            former = self._anchors.task_hosts
        if self._view is not None:
            from bicycle_runtime.engine.spark.worker import target_of  # all operators: see ``boot``

            levels = levels_with_state(image.plan)
            self._anchors = Anchors(
                self._context, self._parallelisms, levels, target_of, former=former
            )

    def _watching(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that ends its jobs if a cluster lacks executors for too long."""
        return self._watch.working() if self._watch else contextlib.nullcontext()

    def _run_levels(self, orders: list[EpochOrder]) -> list[bytes]:
        from bicycle_runtime.engine.spark.task_results import divide  # see ``_connect``
        from bicycle_runtime.engine.spark.worker import (  # all operators: see ``boot``
            LevelTask,
            encode_order,
            target_of,
        )

        anchors, last = self._anchors, len(orders) - 1
        rdd = self._seed if anchors is None else anchors.seed(self._seed)
        for level, order in enumerate(orders):
            if level:
                rdd = divide(rdd, self._parallelisms[level], target_of, self._memory_mb)
                rdd = rdd if anchors is None else anchors.hold(level, rdd)
            data = encode_order(order)
            box = self._results.box() if level == last else None
            task = LevelTask(self._run_id, self._image, level, data, needs=self._needs, box=box)
            rdd = rdd.mapPartitionsWithIndex(task)
        found: list[bytes] = self._results.of(rdd, self._parallelisms[last])
        return found

    @contextlib.contextmanager
    def _spark_errors(self, epoch: int) -> Iterator[None]:
        """Convert Spark's errors to ours, with a separate error for a lost Java process."""
        from py4j.protocol import Py4JError, Py4JJavaError  # Spark is imported when it is used

        try:
            yield
        except Py4JJavaError as error:
            raise self._failure(error, epoch) from error
        except (Py4JError, PicklingError, OSError, EOFError) as error:
            if not self._has_ended():
                raise EpochFailedError(epoch=epoch, job=self._job, reason=str(error)) from error
            code = self._starting.process.returncode if self._starting else 0
            raise SparkLostError(epoch=epoch, job=self._job, how=how_it_ended(code)) from error

    def _failure(self, error: Exception, epoch: int) -> BicycleError:
        """Return our error for a failure that Spark reports, such as the worker's own."""
        # All operators: see ``boot``.
        from bicycle_runtime.engine.spark.worker import OwnError
        from bicycle_runtime.engine.spark.worker_ends import worker_ended

        own = OwnError.found_in(text_of(error))
        if own is not None:
            own.facts["worker_epoch"] = epoch
            return own
        reason = root_reason(error)
        if self._watch is not None and self._watch.has_cancelled:
            return EXECUTORS_LOST(epoch=epoch, job=self._job, wait_s=self._timeout_s, reason=reason)
        if self._plan is not None and is_worker_gone(error):
            ends = [end for end in self._ends() if (end.run_id, end.epoch) == (self._run_id, epoch)]
            if ends:
                return worker_ended(ends[-1], self._plan, job=self._job, reason=str(error))
        return EpochFailedError(epoch=epoch, job=self._job, reason=reason)

    def _ends(self) -> list[LastPosition]:
        """Return the last positions of workers that ended."""
        # All operators: see ``boot``.
        from bicycle_runtime.engine.spark.worker_ends import ends_in, ends_on_hosts

        if self._view is None:
            self._found = ends_in(self._positions_folder)
        else:
            with self._watching():
                self._found = ends_on_hosts(self._context, self._view.hosts())
        return self._found

    def _connect(self, port: int, secret: str) -> Any:
        from pyspark import SparkConf, SparkContext  # slow: loaded while Java comes up
        from pyspark.java_gateway import launch_gateway

        # It loads PySpark, too.
        from bicycle_runtime.engine.spark.task_results import TaskResults, look_up_classes

        hush_py4j()
        hush_serializers()
        on_interrupt = signal.getsignal(signal.SIGINT)
        gateway_settings = {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": secret,
        }
        try:
            with environment_set(gateway_settings):
                gateway = launch_gateway()  # type: ignore[no-untyped-call]  # Spark's own
            conf = SparkConf(loadDefaults=True, _jvm=gateway.jvm).setAppName(f"bicycle-{self._job}")
            conf.setMaster(self._master)
            for name, value in {**self._settings, **self._worker_environment()}.items():
                conf.set(name, value)
            began_s = self._clock.monotonic()
            with self._limit_start(gateway.jvm):
                context = SparkContext(conf=conf, gateway=gateway)
                require_master_id(context, master=self._master)
            self._start_s = self._clock.monotonic() - began_s
            context.pythonExec = self._worker_python()
            # It would print a traceback when Java is killed.
            setattr(context._accumulatorServer, "handle_error", _ignore_broken_request)  # noqa: B010 - types forbid a plain assignment
            look_up_classes(context)
            self._environment = dict(context.environment)
            self._results = TaskResults(context)
            return context
        except Exception as error:
            forget_context()  # PySpark would connect the next start to this Java.
            if isinstance(error, SparkStartError):
                raise
            kind = SparkStartKilledError if self._was_killed() else SparkStartError
            raise kind(master=self._master, reason=root_reason(error) + low_limits()) from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, on_interrupt)  # Spark put its own there

    def _limit_start(self, jvm: Any) -> contextlib.AbstractContextManager[None]:
        """Return a context that limits the wait for the master of a cluster."""
        if is_embedded(self._master) or self._starting is None:
            return contextlib.nullcontext()
        return limit_start(self._starting.process, jvm, self._master, self._timeout_s)

    def _worker_python(self) -> str:
        """Return the interpreter of workers, instead of the first python3 on their PATH."""
        named = {} if is_embedded(self._master) else chosen_variables([_PYTHON_VARIABLE])
        return self._settings.get(_PYTHON_SETTING) or named.get(_PYTHON_VARIABLE) or sys.executable

    def _worker_environment(self) -> dict[str, str]:
        passed = {**chosen_variables(_PASSED_TO_WORKERS), "PYTHONHASHSEED": "0"}
        if is_embedded(self._master):
            passed[FOLDER_VARIABLE] = str(self._positions_folder)
        return {f"spark.executorEnv.{name}": value for name, value in passed.items()}

    def _is_alive(self) -> bool:
        return self._starting is not None and self._starting.process.poll() is None

    def _has_ended(self) -> bool:
        """Return whether Java has ended, after a wait since its sockets close earlier."""
        if self._starting is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._starting.process.wait(_END_SECONDS_MAX)
        return not self._is_alive()

    def _was_killed(self) -> bool:
        """Return whether a signal ended Java."""
        code = self._starting.process.poll() if self._starting and self._has_ended() else None
        return code is not None and code < 0

    def _end_java(self) -> None:
        if self._starting is not None:
            self._starting.end(has_run=bool(self._workers))


def _token(image: JobImage) -> str:
    """Return a file that hosts with the checkpoint folder can see, empty for URLs."""
    if not isinstance(image.storage, LocalStorage):
        return ""
    path = image.storage.local_path(JOB_FILE)
    return str(path) if path.is_file() else ""


def _ignore_broken_request(_request: object, _client: object) -> None:
    """Ignore a broken request: a lost Java process is reported where an epoch fails."""
