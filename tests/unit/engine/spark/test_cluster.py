"""What the driver makes of what Spark says about executors; Spark is played by plain objects."""

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from bicycle_runtime.engine.errors import (
    HANDSHAKE_FAILED,
    MASTER_UNREACHABLE,
    NO_EXECUTOR,
)
from bicycle_runtime.engine.hosts.handshake import own_facts
from bicycle_runtime.engine.spark import spark_cluster
from bicycle_runtime.engine.spark.settings import spark_settings
from bicycle_runtime.engine.spark.spark_cluster import (
    ClusterView,
    ExecutorWatch,
    limit_start,
    require_master,
    require_master_id,
)
from bicycle_runtime.engine.spark.worker_needs import WorkerNeeds
from tests.raising import raises
from tests.waiting import PATIENCE_S


class FakeSpark:
    """A context with executors: ids that run, and places that are listed."""

    def __init__(self, running=(), listed=None, slots=0):
        self.running = list(running)
        self.listed = dict(listed or {})
        self.slots = slots
        self.list_count = 0
        self.starting = set()
        self.cancelled = threading.Event()
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getExecutorIds(self):
        return SimpleNamespace(mkString=lambda separator: separator.join(self.running))

    def statusStore(self):
        self.list_count += 1
        members = [
            SimpleNamespace(id=lambda n=name: n, hostPort=lambda p=place: p)
            for name, place in self.listed.items()
        ]
        listed = SimpleNamespace(size=lambda: len(members), apply=lambda index: members[index])
        return SimpleNamespace(executorList=lambda _active: listed)

    def taskScheduler(self):
        return SimpleNamespace(hasExecutorsAliveOnHost=lambda host: host not in self.starting)

    def resourceProfileManager(self):
        return SimpleNamespace(defaultResourceProfile=lambda: None)

    def maxNumConcurrentTasks(self, _profile):
        return self.slots

    def isStopped(self):
        return False

    def cancelAllJobs(self):
        self.cancelled.set()


DRIVER = {"driver": "10.0.0.1:4000"}


def view(spark):
    return ClusterView(spark, master="spark://m:7077")


def test_executors_are_counted_by_host_and_the_driver_is_none():
    spark = FakeSpark(["0", "1", "2"], {**DRIVER, "0": "a:1", "1": "b:1", "2": "a:2"})

    assert view(spark).hosts() == {"a": 2, "b": 1}


def test_one_that_is_not_listed_yet_or_without_a_host_does_not_count_until_it_is():
    spark = FakeSpark(["0", "1"], {**DRIVER, "0": ""})
    seen = view(spark)
    assert seen.hosts() == {}

    spark.listed |= {"0": "a", "1": "[::1]:4000"}

    assert seen.hosts() == {"a": 1, "[::1]": 1}


def test_one_that_is_still_starting_does_not_count_as_no_task_can_prefer_it():
    spark = FakeSpark(["0", "1"], {"0": "a:1", "1": "b:1"})
    spark.starting = {"b"}
    seen = view(spark)
    assert seen.hosts() == {"a": 1}

    spark.starting = set()

    assert seen.hosts() == {"a": 1, "b": 1}


def test_one_that_is_gone_does_not_count_although_it_is_listed():
    spark = FakeSpark(["0", "1"], {"0": "a:1", "1": "b:1"})
    seen = view(spark)
    seen.hosts()

    spark.running = ["1"]

    assert seen.hosts() == {"b": 1}
    assert spark.list_count == 1  # Nothing new, so nothing was asked.


def test_a_job_starts_with_the_executors_that_it_has_slots_for():
    spark = FakeSpark(["0"], {"0": "a:1"}, slots=4)

    assert view(spark).wait_for_executors(parallelism=4, timeout_s=0) == {"a": 1}


def test_without_any_executor_the_wait_ends_with_an_error():
    with raises(NO_EXECUTOR) as error:
        view(FakeSpark()).wait_for_executors(parallelism=1, timeout_s=0)

    facts = error.value.facts
    assert (facts["master"], facts["wait_s"]) == ("spark://m:7077", 0)


@pytest.mark.parametrize(
    ("master", "setting"),
    [
        ("spark://m:7077", "spark.cores.max"),
        ("yarn", "spark.yarn.queue"),
        ("k8s://https://m:6443", "spark.executor.instances"),
    ],
)
def test_the_advice_names_settings_that_have_an_effect_with_the_master(master, setting):
    with raises(NO_EXECUTOR) as error:
        ClusterView(FakeSpark(), master=master).wait_for_executors(parallelism=1, timeout_s=0)

    assert setting in error.value.remedy
    assert ("spark.cores.max" in error.value.remedy) == master.startswith("spark")


def test_the_time_until_the_context_was_created_counts_for_the_wait_for_executors():
    with raises(NO_EXECUTOR) as error:
        view(FakeSpark()).wait_for_executors(parallelism=1, timeout_s=3_600, spent_s=3_600)

    assert error.value.facts["wait_s"] == 3_600


def test_work_without_executors_is_cancelled(monkeypatch):
    monkeypatch.setattr(spark_cluster, "_WATCH_S", 0.001)
    spark = FakeSpark()
    with ExecutorWatch(spark, view(spark), timeout_s=0) as watch:
        assert not spark.cancelled.wait(0.05)  # Nothing runs, so nothing is missed.
        with watch.working():
            assert spark.cancelled.wait(PATIENCE_S)
    assert watch.has_cancelled


def test_each_job_without_executors_is_cancelled_also_after_another_one_was(monkeypatch):
    """The first may be that of a rescale, after which the loop goes on."""
    monkeypatch.setattr(spark_cluster, "_WATCH_S", 0.001)
    spark = FakeSpark()
    with ExecutorWatch(spark, view(spark), timeout_s=0) as watch:
        for _ in range(2):
            with watch.working():
                assert spark.cancelled.wait(PATIENCE_S)
            assert watch.has_cancelled
            spark.cancelled.clear()


def test_work_goes_on_while_one_executor_is_there(monkeypatch):
    monkeypatch.setattr(spark_cluster, "_WATCH_S", 0.001)
    spark = FakeSpark(["0"], {"0": "a:1"})
    with ExecutorWatch(spark, view(spark), timeout_s=0) as watch, watch.working():
        assert not spark.cancelled.wait(0.1)
    assert not watch.has_cancelled


class FakeJava:
    """The Java process, on whose end a call to it raises."""

    def __init__(self):
        self.has_ended = threading.Event()

    def kill(self):
        self.has_ended.set()

    def call(self):
        assert self.has_ended.wait(PATIENCE_S)
        raise OSError("the connection was closed")


@pytest.mark.parametrize("master", ["spark://m:7077", "yarn", "k8s://https://m:6443"])
def test_java_is_killed_when_a_master_does_not_respond_in_time(master):
    java = FakeJava()
    with (
        raises(MASTER_UNREACHABLE) as error,
        limit_start(java, None, master=master, timeout_s=0),
    ):
        java.call()

    assert error.value.facts["master"] == master
    assert "within 0 s" in error.value.facts["reason"]


class FakeYarn:
    """The classes of Java, with a context whose application waits in a queue of YARN."""

    def __init__(self):
        self.killed = []
        self.java = SimpleNamespace(lang=SimpleNamespace(Class=self))

    def forName(self, _name):
        return self

    def getDeclaredField(self, _name):
        return self

    def setAccessible(self, _is_accessible):
        """Private fields can be read."""

    def get(self, *_):
        return self

    def schedulerBackend(self):
        client = SimpleNamespace(getApplicationId=lambda: "application_1")
        setattr(client, spark_cluster._MASTER_CLIENT, lambda: self)
        return SimpleNamespace(**{spark_cluster._CLIENT: lambda: client})

    def killApplication(self, application):
        self.killed.append(application)


def test_an_application_that_waits_in_a_queue_for_too_long_is_killed():
    java, yarn = FakeJava(), FakeYarn()
    with (
        raises(NO_EXECUTOR) as error,
        limit_start(java, yarn, master="yarn", timeout_s=0),
    ):
        java.call()

    assert error.value.facts["wait_s"] == 0
    assert yarn.killed == ["application_1"]


def test_java_of_a_context_that_was_created_in_time_is_not_killed():
    java = FakeJava()
    with limit_start(java, None, master="yarn", timeout_s=PATIENCE_S):
        pass

    assert not java.has_ended.is_set()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred\n: org.KubernetesClientException: failed\n\tat org.A\n"
            "Caused by: io.netty.AbstractChannel$AnnotatedConnectException: refused: /10.0.0.1:1",
            "io.netty.AbstractChannel$AnnotatedConnectException: refused: /10.0.0.1:1",
        ),
        ("An error\n: java.net.UnknownHostException: m", "java.net.UnknownHostException: m"),
    ],
)
def test_an_error_of_the_network_means_that_the_master_is_unreachable(text, reason):
    with (
        raises(MASTER_UNREACHABLE) as error,
        limit_start(FakeJava(), None, master="yarn", timeout_s=PATIENCE_S),
    ):
        raise RuntimeError(text)

    assert error.value.facts["reason"] == reason


def test_other_errors_of_the_start_stay_as_they_are():
    with (
        pytest.raises(RuntimeError, match="not a number"),
        limit_start(FakeJava(), None, master="yarn", timeout_s=PATIENCE_S),
    ):
        raise RuntimeError("An error\n: java.lang.NumberFormatException: not a number")


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:1", "spark://127.0.0.1:x", "spark://127.0.0.1:99999"]
)
def test_a_master_that_nobody_listens_as_is_refused(master):
    with raises(MASTER_UNREACHABLE) as error:
        require_master(master)

    assert error.value.facts["master"] == master


def test_one_of_several_masters_is_enough_and_other_kinds_are_sparks_affair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        require_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    require_master("local[2]")
    require_master("k8s://https://nowhere:1")


def test_a_driver_without_an_id_of_a_standalone_master_is_not_registered():
    registered = SimpleNamespace(applicationId="app-20261129141455-0000")
    require_master_id(registered, master="spark://m:7077")
    with raises(MASTER_UNREACHABLE):
        require_master_id(
            SimpleNamespace(applicationId="spark-application-1"), master="spark://m:7077"
        )


def test_yarn_needs_a_variable_that_names_its_configuration(monkeypatch):
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with raises(MASTER_UNREACHABLE) as caught:
        require_master("yarn")

    assert "HADOOP_CONF_DIR" in caught.value.facts["reason"]
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    require_master("yarn")


def test_what_the_user_sets_wins_and_variables_of_workers_are_not_shown(tmp_path):
    settings = spark_settings(
        "spark://m:7077", tmp_path, {"spark.locality.wait": "9s", "spark.ui.enabled": "true"}
    )

    assert settings["spark.locality.wait"] == "9s"
    assert settings["spark.ui.enabled"] == "true"
    assert "executorEnv" in settings["spark.redaction.regex"]
    assert "spark.driver.host" not in settings
    assert spark_settings("local[2]", tmp_path, {})["spark.locality.wait"] == "0"
    loopback = spark_settings("spark://127.0.0.1:7077", tmp_path, {})
    assert loopback["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("master", "folder", "expected"),
    [
        ("local[2]", "/tmp/bicycle-spark-1", "/tmp/bicycle-spark-1"),
        ("local[2]", "/a" + 60 * "b", "/tmp"),
        ("spark://m:7077", "/tmp/bicycle-spark-1", "/tmp"),
    ],
    ids=["own", "too-long-for-a-socket", "other-hosts-lack-it"],
)
def test_java_and_python_meet_in_the_folder_of_the_run(master, folder, expected):
    settings = spark_settings(master, Path(folder), {})

    assert settings["spark.python.unix.domain.socket.dir"] == expected


def test_a_host_that_comes_later_with_other_versions_is_refused_in_its_first_task():
    facts = own_facts(spark=pyspark.__version__)
    WorkerNeeds(facts=facts).meet()

    with raises(HANDSHAKE_FAILED) as error:
        WorkerNeeds(facts={**facts, "msgspec": "0.1"}).meet()

    assert error.value.facts["differing"] == ["msgspec"]
