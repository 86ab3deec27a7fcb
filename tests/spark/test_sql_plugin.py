"""A wheel with an SQL file on real Spark, through a service: uploaded, submitted, upgraded."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.jobs.status import read_status
from tests.plugin_zoo.sql_wheels import sql_wheel
from tests.spark.jobsite import SHORT_LIVED_JAVA
from tests.unit.service_process.served import Served
from tests.unit.service_process.test_uploads import upload
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def home(tmp_path, spark_cache, monkeypatch):
    for name, value in SHORT_LIVED_JAVA.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BICYCLE_HOME", str(tmp_path / "home"))
    home = Home(tmp_path / "home")
    home.prepare()
    (home.path / "cache").symlink_to(spark_cache)
    return home


def test_a_wheel_with_sql_is_submitted_and_upgraded(tmp_path, home):
    def rows():
        lines = [file.read_text() for file in Path(tmp_path, "loud").glob("*.jsonl")]
        return sorted(row["who"] for row in map(json.loads, "".join(lines).splitlines()))

    def feed(*names):
        with Path(tmp_path, "words.jsonl").open("a") as file:
            file.writelines(json.dumps({"n": 5, "who": name}) + "\n" for name in names)

    def bicycle(*words):
        done = CliRunner().invoke(main, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    follow = ", follow = TRUE"
    wheels = [sql_wheel(tmp_path, version, more=follow) for version in ("1.0", "2.0")]
    wrong = sql_wheel(tmp_path, "3.0", column="shout(whoo)", more=follow)
    status = home.folder("loud").status_path
    feed("ada")
    served = Served(home.path).start()
    try:
        refused = upload(served, wrong)
        submitted = ("--plugin", "loud_words", "--wheel", str(wheels[0]), "--name", "loud")
        bicycle("submit", *submitted, "--master", "local[1]", "--restart-attempts", "0")
        until(lambda: rows() == ["ADA!"], lambda: read_status(status), patience_s=180)
        first = read_status(status).plugin_version
        done = bicycle("upgrade", "loud", "--wheel", str(wheels[1]), "--epochs", "1")
        feed("bob")
        until(lambda: rows() == ["ADA!", "BOB!!"], "a row of 2.0", patience_s=180)
    finally:
        served.ask("POST", "/api/v1/jobs/loud/cancel")
        served.end()

    answer = json.loads(refused[2])
    assert (refused[0], answer["code"]) == (422, "BIC-3200")
    assert "shop_views/loud.sql of shop-views 3.0 has 1 problem" in answer["message"]
    assert "shop_views/loud.sql:4:39: there is no column 'whoo'" in answer["message"]
    assert (first, done["plugin_version"]) == ("1.0", "2.0")
    assert rows() == ["ADA!", "BOB!!"]
