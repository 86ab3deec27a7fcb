"""The queue of the service knows the cores of a real standalone master by its page."""

from bicycle_runtime.base.spark_masters import Masters
from bicycle_sdk.clock import SystemClock
from tests.waiting import until


def test_a_master_tells_the_cores_of_its_live_hosts(cluster):
    page = f"http://127.0.0.1:{cluster.record().page_port}"

    def told():
        return Masters(SystemClock(), {cluster.url: page}).cores(cluster.url)

    until(lambda: told() == 2, "both hosts")
    cluster.kill_host(sorted(cluster.hosts())[0])
    until(lambda: told() == 1, "the end of a host")
