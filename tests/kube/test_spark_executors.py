"""Spark's requests to a real API server, with the rights that the chart grants to drivers.

Without nodes, pods stay pending: a thread here starts the process of each pod, and writes that it
runs.
"""

import json
import sys
import threading
from contextlib import contextmanager

import pytest

from tests.cluster.clustersite import ClusterSite
from tests.cluster.pods import ADDRESS, Pods
from tests.kube.api_server import DRIVER, MERGE
from tests.spark.jobsite import expected_counts, visible_counts

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.timeout(500)]

PODS = "/api/v1/namespaces/jobs/pods"
_SECONDS_MAX = 400
_PERIOD_S = 0.2


@contextmanager
def node(server, folder):
    """Run the pods of the cluster, as a node does; yield them."""
    pods, is_over = Pods(folder), threading.Event()

    def keep():
        while not is_over.wait(_PERIOD_S):
            found = {each["metadata"]["name"]: each for each in server.ask("GET", PODS)[1]["items"]}
            for name in found.keys() - pods.names:
                pods.start(found[name])
                status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
                code, answer = server.ask(
                    "PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE
                )
                assert code == 200, answer
            for name in pods.names - found.keys():
                pods.end(name)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield pods
    finally:
        is_over.set()
        thread.join()
        pods.end_all()


def test_pods_that_spark_creates_in_a_real_cluster_run_the_tasks_of_a_job(
    server, tmp_path, spark_cache
):
    master = f"k8s://{server.url}"
    site = ClusterSite(tmp_path / "site", spark_cache, master=master, host_python=sys.executable)
    words = site.write_words(lines=50)
    settings = {
        "spark.kubernetes.container.image": "bicycle:1",
        "spark.kubernetes.namespace": "jobs",
        "spark.kubernetes.authenticate.oauthToken": DRIVER,
        "spark.kubernetes.authenticate.caCertFile": str(server.certificate),
        "spark.executor.instances": "1",
        "spark.driver.host": ADDRESS,
    }
    given = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    with node(server, tmp_path) as pods:
        try:
            life = site.start("--cluster-timeout-ms", "300000", *given)
            assert life.wait(_SECONDS_MAX) == 0, (life.stderr, pods.log)
        finally:
            site.kill_everything()

    assert visible_counts(site.output) == expected_counts(words)
    [container] = pods.created[0]["spec"]["containers"]
    assert (container["image"], container["args"]) == ("bicycle:1", ["executor"])
    assert "orbidden" not in life.stderr
    assert server.ask("GET", PODS)[1]["items"] == []  # The driver deletes its executors.
    maps = server.ask("GET", "/api/v1/namespaces/jobs/configmaps")[1]["items"]
    assert "spark-exec" not in json.dumps(maps)
