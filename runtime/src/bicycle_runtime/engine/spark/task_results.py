"""Results of Spark tasks, and the Java objects of jobs, with few requests.

Results go by an accumulator, and the job is one that counts. ``RDD.collect`` reads the byte code of
Spark's own closures three times a job and opens a socket for the answer: 7 of 17 ms of processor
time of a job that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from py4j.java_collections import ListConverter, MapConverter
from pyspark.accumulators import AccumulatorParam
from pyspark.traceback_utils import SCCallSiteSync

_Left: TypeAlias = "list[tuple[int, list[bytes]]]"

_TIMEOUT_MS = 10**13
_CLASSES = ("PairwiseRDD", "PythonPartitioner", "PythonRDD", "PythonUtils", "SimplePythonFunction")
_STATIC_METHODS = (("PythonRDD", "valueOfPair"), ("PythonUtils", "getBroadcastThreshold"))


class _Together(AccumulatorParam[_Left]):
    """Lists that are put together."""

    def zero(self, value: _Left) -> _Left:  # noqa: ARG002 - Spark's own signature
        return []

    def addInPlace(self, value1: _Left, value2: _Left) -> _Left:
        value1.extend(value2)
        return value1


class ResultBox:
    """The container for results of one job's tasks, sent to the tasks.

    Args:
        accumulator: Spark's.
        job: Number of the job: a task of an earlier one, that failed, may end late.
    """

    __slots__ = ("_accumulator", "_job")

    def __init__(self, accumulator: Any, job: int) -> None:
        self._accumulator = accumulator
        self._job = job

    def leave(self, results: list[bytes]) -> None:
        """Leave all results of a task."""
        self._accumulator.add([(self._job, results)])


class TaskResults:
    """Runs jobs whose tasks leave their results in a box.

    Args:
        context: Of Spark.
    """

    def __init__(self, context: Any) -> None:
        self._accumulator = context.accumulator([], _Together())
        self._job = 0

    def box(self) -> ResultBox:
        """Return the box of the next job."""
        self._job += 1
        return ResultBox(self._accumulator, self._job)

    def of(self, tasks: Any, count: int) -> list[bytes]:
        """Run a job, and return the results of its last tasks, in any order.

        Args:
            tasks: The RDD whose partitions are these tasks; they got the box made last.
            count: How many they are.

        Raises:
            OSError: the results of a task were lost on their way.
        """
        # The confidence of a count before the end, which is not used.
        tasks._jrdd.rdd().countApprox(_TIMEOUT_MS, 0.95)
        # Spark has added a task's values before it counts the task as ended.
        left, self._accumulator.value = self._accumulator.value, []
        found = [results for job, results in left if job == self._job]
        if len(found) != count:
            raise OSError(f"{count - len(found)} of {count} tasks ended without results")
        return [each for results in found for each in results]


def look_up_classes(context: Any) -> None:
    """Look the classes up by which jobs are made, so that no job does.

    Java looks for a name in each package that Spark imports, which takes 1 ms.

    Args:
        context: Of Spark.
    """
    jvm = context._jvm
    for name in _CLASSES:
        setattr(jvm, name, getattr(jvm, name))
    for name, method in _STATIC_METHODS:
        found = getattr(jvm, name)
        setattr(found, method, getattr(found, method))
    # Spark would get the lines of code for each stage, which have no reader.
    SCCallSiteSync._spark_stack_depth += 1
    threshold = jvm.PythonUtils.getBroadcastThreshold(context._jsc)
    jvm.PythonUtils.getBroadcastThreshold = lambda _: threshold


def hold_environment(context: Any, environment: dict[str, str]) -> None:
    """Set the workers' environment variables, kept in Java for all jobs.

    Else PySpark would make a map of them, and a list of files, for each stage of a job: ten of the
    forty messages of a job with an exchange.

    Args:
        context: Of Spark.
        environment: The variables.
    """
    client = context._gateway._gateway_client
    context.environment = MapConverter().convert(environment, client)
    context._python_includes = ListConverter().convert(list(context._python_includes), client)


def divide(blocks: Any, count: int, target_of: Callable[[int], int], memory_mb: int) -> Any:
    """Return the blocks of a stage divided over the tasks of the next one.

    Args:
        blocks: The RDD of pairs of targets and blocks.
        count: How many tasks there are.
        target_of: Which one gets a target's blocks.
        memory_mb: How much a worker may hold meanwhile; PySpark would ask Java for it each time.
    """
    blocks._memory_limit = lambda: memory_mb
    behind = blocks.partitionBy(count, target_of)
    behind._is_barrier = lambda: False  # Java would be asked here, too.
    return behind


def broadcast_to_jobs(context: Any, value: bytes) -> Any:
    """Return the broadcast of a value for many jobs, with a cached number.

    Without the cached number, PySpark would request it from Java in each stage of a job.

    Args:
        context: The Spark context.
        value: The value.
    """
    broadcast = context.broadcast(value)
    number = broadcast._jbroadcast.id()
    broadcast._jbroadcast.id = lambda: number
    return broadcast
