"""The driver's view of a cluster: its master, present hosts, and lost hosts.

Spark itself waits without end, for a master, for the first executor and for one after the last is
lost. Here each of these waits has a bound and an error. Nothing here decides where tasks run.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bicycle_runtime.base.environment import chosen_variables
from bicycle_runtime.engine.errors import MASTER_UNREACHABLE, NO_EXECUTOR, SparkStartError
from bicycle_sdk.clock import Clock, SystemClock

_CONNECT_S = 5.0
_POLL_S = 0.1
_WATCH_S = 1.0
_END_S = 5.0  # A call to Java that hangs ends with it.
_PORT_DEFAULT = 7077
_SCHEME = "spark://"
_PORT = re.compile(r":\d+$")
# After an executor has come: how long the next gets until the job starts with the present ones.
_OTHERS_S = 5.0
_SMALL = "--conf spark.executor.instances=1 --conf spark.executor.memory=512m"
# By kind of master, for errors: its address, where its free resources are shown, smaller requests.
_KINDS = {
    "spark": (
        "`bicycle dev cluster status` shows a cluster of this machine",
        "the page of the master",
        "--conf spark.cores.max=2 --conf spark.executor.memory=512m",
    ),
    "yarn": (
        "it is in yarn-site.xml in the folder HADOOP_CONF_DIR",
        "the queue and the nodes on the page of the resource manager",
        f"{_SMALL}, or another queue with --conf spark.yarn.queue=…",
    ),
    "k8s": ("`kubectl cluster-info` shows it", "`kubectl describe pods`", _SMALL),
}
_OWN_ID = "spark-application-"  # Of Spark's driver, until it has an id of the master.
# Private in Scala: the client of YARN of a Spark context, and its client of the resource manager.
_CLIENT = "org$apache$spark$scheduler$cluster$YarnClientSchedulerBackend$$client"
_MASTER_CLIENT = "org$apache$spark$deploy$yarn$Client$$yarnClient"
_CONNECTION_ERROR = re.compile(
    r"^(?:: |Caused by: )"
    r"([\w.$]*(?:Connect|ConnectTimeout|NoRouteToHost|SocketTimeout|UnknownHost)Exception: .*)",
    re.MULTILINE,
)


def require_master(master: str) -> None:
    """Refuse a standalone master without a listener, and YARN without settings.

    Raises:
        MASTER_UNREACHABLE: no address in the URL answers, or the address of YARN is unknown.
    """
    if master == "yarn" and not chosen_variables(("HADOOP_CONF_DIR", "YARN_CONF_DIR")):
        reason = "the variable HADOOP_CONF_DIR must name the folder of yarn-site.xml"
        raise _unreachable(master, reason)
    if not master.startswith(_SCHEME):
        return
    reasons = []
    for address in master.removeprefix(_SCHEME).split(","):
        host, _, port = address.partition(":")
        try:
            with socket.create_connection((host, int(port or _PORT_DEFAULT)), timeout=_CONNECT_S):
                return
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise _unreachable(master, "; ".join(reasons))


@contextlib.contextmanager
def limit_start(
    java: subprocess.Popen[bytes], jvm: Any, master: str, timeout_s: float
) -> Iterator[None]:
    """Kill Java if the block, which creates a Spark context, takes too long.

    Spark retries for a minute (standalone), for minutes (Kubernetes) or for 15 minutes (YARN), and
    waits for a queue of YARN and for a silent server without limit.

    Raises:
        MASTER_UNREACHABLE: the master did not respond in time.
        NO_EXECUTOR: YARN responded, but the application did not start in time.
    """
    ends: list[SparkStartError] = []

    def end() -> None:
        killer = threading.Timer(_END_S, java.kill)  # Java and YARN may hang.
        killer.start()
        try:
            is_queued = master == "yarn" and _kill_application(jvm)
        except Exception:  # noqa: BLE001 - Java or YARN is gone, of whatever kind py4j's error is.
            is_queued = False
        reason = f"no response within {timeout_s:g} s (--cluster-timeout-ms)"
        ends.append(_no_executor(master, timeout_s) if is_queued else _unreachable(master, reason))
        killer.cancel()
        java.kill()

    timer = threading.Timer(timeout_s, end)
    timer.start()
    try:
        yield
    except Exception as error:
        if not ends and (found := _CONNECTION_ERROR.search(str(error))):
            raise _unreachable(master, found[1]) from error
        raise
    finally:
        timer.cancel()
        timer.join()
        if ends:
            raise ends[0]


def require_master_id(context: Any, *, master: str) -> None:
    """Refuse a context that no standalone master has registered.

    Raises:
        MASTER_UNREACHABLE: no master gave the application an id.
    """
    if master.startswith(_SCHEME) and context.applicationId.startswith(_OWN_ID):
        raise _unreachable(master, "it did not register the driver")


def _kill_application(jvm: Any) -> bool:
    """Kill the application that waits in a queue of YARN; return whether there is one."""
    field = jvm.java.lang.Class.forName("org.apache.spark.SparkContext$").getDeclaredField(
        "contextBeingConstructed"
    )
    field.setAccessible(True)
    client = getattr(field.get(None).get().schedulerBackend(), _CLIENT)()
    application = client.getApplicationId()
    if application is not None:
        with contextlib.suppress(Exception):  # It may have only an id, while Spark uploads files.
            getattr(client, _MASTER_CLIENT)().killApplication(application)
    return application is not None


def _unreachable(master: str, reason: str) -> SparkStartError:
    address, _, _ = _kind(master)
    return MASTER_UNREACHABLE(master=master, reason=reason, address=address)


def _no_executor(master: str, wait_s: float) -> SparkStartError:
    _, resources, requests = _kind(master)
    return NO_EXECUTOR(master=master, wait_s=wait_s, resources=resources, requests=requests)


def _kind(master: str) -> tuple[str, str, str]:
    return _KINDS.get(master.partition(":")[0], _KINDS["spark"])


class ClusterView:
    """The executors of one Spark context, as its driver sees them.

    Args:
        context: The running context.
        master: Its URL, for errors.
        clock: Measures waits.
    """

    def __init__(self, context: Any, *, master: str, clock: Clock | None = None) -> None:
        self._scala = context._jsc.sc()
        self._master = master
        self._clock = clock or SystemClock()
        self._hosts: dict[str, str] = {}
        self._known: set[str] = set()
        self._ready: set[str] = set()

    def hosts(self) -> dict[str, int]:
        """Return the hosts with executors that take tasks, and how many each has.

        Spark knows an executor first, then its place, and only when that has started can a task
        prefer it: until then it does not count.
        """
        ids = set(filter(None, str(self._scala.getExecutorIds().mkString(",")).split(",")))
        if not ids <= self._hosts.keys():
            self._hosts |= self._listed_hosts()
        self._known = ids
        self._ready &= ids
        self._ready |= {
            name for name in (ids & self._hosts.keys()) - self._ready if self._is_ready(name)
        }
        return dict(Counter(self._hosts[name] for name in sorted(self._ready)))

    @property
    def executors(self) -> frozenset[str]:
        """The ids of the executors that ``hosts`` counted the last time."""
        return frozenset(self._ready)

    def _has_settled(self, parallelism: int) -> bool:
        """Return whether all that are known have started, and are enough."""
        return self._ready == self._known and self.slot_count() >= parallelism

    def _is_ready(self, name: str) -> bool:
        return bool(self._scala.taskScheduler().hasExecutorsAliveOnHost(self._hosts[name]))

    def _listed_hosts(self) -> dict[str, str]:
        """Return the hosts of executors by id; port and host may appear later."""
        listed = self._scala.statusStore().executorList(True)
        members = [listed.apply(index) for index in range(listed.size())]
        hosts = {str(member.id()): str(member.hostPort()) for member in members}
        return {name: _PORT.sub("", host) for name, host in hosts.items() if host}

    def slot_count(self) -> int:
        """Return how many tasks run at a time now."""
        profile = self._scala.resourceProfileManager().defaultResourceProfile()
        return int(self._scala.maxNumConcurrentTasks(profile))

    def wait_for_executors(
        self, *, parallelism: int, timeout_s: float, spent_s: float = 0.0
    ) -> dict[str, int]:
        """Wait for an executor, and a little for as many as the job is wide.

        Args:
            parallelism: Tasks of the widest level.
            timeout_s: The longest wait for the first one.
            spent_s: How much of it has passed.

        Raises:
            NO_EXECUTOR: no executor was there in time, or the master refused the job.
        """
        pause = threading.Event()
        end = self._clock.monotonic() + timeout_s - spent_s
        while not (hosts := self.hosts()):
            if self._scala.isStopped() or self._clock.monotonic() >= end:
                raise _no_executor(self._master, timeout_s)
            pause.wait(_POLL_S)
        seen, end = hosts, self._clock.monotonic() + _OTHERS_S
        while not self._has_settled(parallelism) and self._clock.monotonic() < end:
            pause.wait(_POLL_S)
            hosts = self.hosts()
            if hosts != seen:
                seen, end = hosts, self._clock.monotonic() + _OTHERS_S
        return hosts


class ExecutorWatch:
    """A watch that cancels running jobs of a context without executors for too long.

    Use it as a context manager around the life of a job; ``working`` marks when one runs.

    Args:
        context: The running context.
        view: Its executors.
        timeout_s: How long a job may be without any.
        clock: Measures that.
    """

    def __init__(
        self, context: Any, view: ClusterView, *, timeout_s: float, clock: Clock | None = None
    ) -> None:
        self._context = context
        self._view = view
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._is_working = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="executor-watch", daemon=True)
        self.has_cancelled = False

    def __enter__(self) -> ExecutorWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_S)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Mark that a job of Spark runs in the block."""
        self.has_cancelled = False
        self._is_working.set()
        try:
            yield
        finally:
            self._is_working.clear()

    def _watch(self) -> None:
        last_seen_s = self._clock.monotonic()
        while not self._ended.wait(_WATCH_S):
            now_s = self._clock.monotonic()
            try:
                if not self._is_working.is_set() or self._view.hosts():
                    last_seen_s = now_s
                elif now_s - last_seen_s >= self._timeout_s:
                    self.has_cancelled = True
                    self._context.cancelAllJobs()
                    last_seen_s = now_s  # The next job may be without executors as well.
            except Exception:  # noqa: BLE001 - Java is gone, of whatever kind py4j's error is.
                return


def assign_to_hosts(context: Any, items: Sequence[tuple[str, str]]) -> Any:
    """Return texts as a Java RDD, each in a partition that prefers a host.

    Args:
        context: The running context.
        items: Pairs of text and host.
    """
    jvm = context._jvm
    pairs = [jvm.scala.Tuple2(text, jvm.PythonUtils.toSeq([host])) for text, host in items]
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").AnyRef()
    return context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), tag).toJavaRDD()


def host_counts(hosts: Mapping[str, int]) -> str:
    """Return hosts for people.

    Example:
        >>> host_counts({"b": 1, "a": 2})
        'a (2), b'
    """
    return ", ".join(
        name if count == 1 else f"{name} ({count})" for name, count in sorted(hosts.items())
    )
