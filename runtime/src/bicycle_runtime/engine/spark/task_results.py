"""Results of Spark tasks: how the last tasks of a job hand the driver what it asks for.

They go by an accumulator, and the job is one that counts. ``RDD.collect`` reads the byte code of
Spark's own closures three times a job and opens a socket for the answer: 7 of 17 ms of processor
time of a job that does nothing.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.accumulators import AccumulatorParam

__all__ = ["ResultBox", "TaskResults", "look_up_classes"]

_Left: TypeAlias = "list[tuple[int, list[bytes]]]"

_TIMEOUT_MS = 10**13
_CLASSES = (
    "PairwiseRDD", "PythonPartitioner", "PythonRDD", "PythonUtils", "SimplePythonFunction"
)  # fmt: skip
_STATIC_METHODS = (("PythonRDD", "valueOfPair"), ("PythonUtils", "getBroadcastThreshold"))


class _Together(AccumulatorParam[_Left]):
    """Lists that are put together."""

    def zero(self, value: _Left) -> _Left:  # noqa: ARG002 - Spark's own signature
        return []

    def addInPlace(self, value1: _Left, value2: _Left) -> _Left:
        value1.extend(value2)
        return value1


class ResultBox:
    """Where the tasks of one job leave their results; it travels to them.

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
        """Run a job, and return what its last tasks left, in any order.

        Args:
            tasks: The RDD whose partitions are these tasks; they got the box made last.
            count: How many they are.

        Raises:
            OSError: the results of a task were lost on their way.
        """
        # The confidence is that of a count before the end, which nobody takes.
        tasks._jrdd.rdd().countApprox(_TIMEOUT_MS, 0.95)
        # Spark has added what a task left before it counts the task as ended.
        left, self._accumulator.value = self._accumulator.value, []
        found = [results for job, results in left if job == self._job]
        if len(found) != count:
            raise OSError(f"{count - len(found)} of {count} tasks ended without their results")
        return [each for results in found for each in results]


def look_up_classes(jvm: Any) -> None:
    """Look the classes up by which jobs are made, so that no job does.

    Java looks for a name in each package that Spark imports, which takes 1 ms.

    Args:
        jvm: The view of Java's classes of one context.
    """
    for name in _CLASSES:
        setattr(jvm, name, getattr(jvm, name))
    for name, method in _STATIC_METHODS:
        found = getattr(jvm, name)
        setattr(found, method, getattr(found, method))
