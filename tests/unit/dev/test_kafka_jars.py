import hashlib
import threading

import pytest

from bicycle_runtime.dev.errors import JAR_CHECKSUM_WRONG, JARS_NOT_FETCHED
from bicycle_runtime.dev.kafka_jars import KAFKA_VERSION, FetchFailure, Jar, kafka_jars, listed_jars
from tests.raising import raises
from tests.waiting import PATIENCE_S

CONTENTS = {"wheel": b"round", "bell": b"ding"}
JARS = tuple(
    Jar(
        group="org.sample",
        artifact=name,
        version="1",
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
    )
    for name, data in CONTENTS.items()
)


class Way:
    """A way to fetch that counts its calls and brings what it is told."""

    def __init__(self, contents=CONTENTS, *, failure=None):
        self.contents = contents
        self.failure = failure
        self.call_count = 0

    def __call__(self, jars, folder):
        self.call_count += 1
        if self.failure:
            raise FetchFailure(self.failure)
        for jar in jars:
            if jar.artifact in self.contents:
                (folder / jar.file_name).write_bytes(self.contents[jar.artifact])


def fetch(folder, *ways):
    """Fetch by ways that are named first, second, and so on."""
    named = list(zip(("first", "second"), ways, strict=False))
    return kafka_jars(folder, report=lambda _line: None, ways=lambda: named, jars=JARS)


def test_the_list_names_each_jar_of_one_kafka_once():
    jars = listed_jars()
    kafka = {jar.version for jar in jars if jar.group == "org.apache.kafka"}

    assert kafka == {KAFKA_VERSION}
    assert len({jar.file_name for jar in jars}) == len(jars) == 46
    assert all(len(bytes.fromhex(jar.sha256)) == 32 and jar.size_bytes > 0 for jar in jars)
    assert {"kafka_2.13", "log4j-slf4j-impl"} <= {jar.artifact for jar in jars}


def test_jars_are_fetched_once(tmp_path):
    way = Way()

    first, second = fetch(tmp_path, way), fetch(tmp_path, way)

    assert first == second
    assert [path.read_bytes() for path in first] == list(CONTENTS.values())
    assert way.call_count == 1


def test_nothing_but_jars_stays_in_the_cache(tmp_path):
    [folder] = {path.parent for path in fetch(tmp_path, Way())}

    assert {path.name for path in folder.iterdir()} == {"wheel-1.jar", "bell-1.jar"}
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, f"{folder.name}.lock"}


@pytest.mark.parametrize("damage", ["", "longer than it was"])
def test_a_jar_that_was_cut_or_removed_is_fetched_again(tmp_path, damage):
    way = Way()
    path = fetch(tmp_path, way)[1]
    path.write_text(damage) if damage else path.unlink()

    assert fetch(tmp_path, way)[1].read_bytes() == b"ding"
    assert way.call_count == 2


def test_a_jar_with_other_bytes_is_refused_and_not_kept(tmp_path):
    with raises(JAR_CHECKSUM_WRONG) as error:
        fetch(tmp_path, Way({**CONTENTS, "bell": b"dong"}))

    assert error.value.facts["coordinates"] == "org.sample:bell:1"
    assert error.value.facts["expected"] == hashlib.sha256(b"ding").hexdigest()
    assert error.value.facts["found"] == hashlib.sha256(b"dong").hexdigest()
    assert list(tmp_path.rglob("*.jar")) == []


def test_the_second_way_is_tried_when_the_first_fails(tmp_path):
    second = Way()

    assert len(fetch(tmp_path, Way(failure="no network"), second)) == 2
    assert second.call_count == 1


def test_what_each_way_said_is_told_when_all_fail(tmp_path):
    with raises(JARS_NOT_FETCHED) as error:
        fetch(tmp_path, Way(failure="no network"), Way({"wheel": b"round"}))

    causes = error.value.facts["causes"]
    assert causes["first"] == "no network"
    assert "bell-1.jar" in causes["second"]
    assert list(tmp_path.rglob("*.jar")) == []


def test_a_machine_without_any_way_is_told_so(tmp_path):
    with raises(JARS_NOT_FETCHED) as error:
        fetch(tmp_path)

    assert list(error.value.facts["causes"]) == ["java"]


def test_a_cache_that_cannot_be_written_is_told_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with raises(JARS_NOT_FETCHED) as error:
        fetch(tmp_path / "file" / "cache", Way())

    assert list(error.value.facts["causes"]) == ["cache"]


def test_of_several_at_once_one_fetches_and_the_others_wait_for_it(tmp_path):
    way = Way()
    is_started, may_go_on = threading.Event(), threading.Event()

    def slow(jars, folder):
        is_started.set()
        assert may_go_on.wait(PATIENCE_S)
        way(jars, folder)

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(tmp_path, slow))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert is_started.wait(PATIENCE_S)
    may_go_on.set()
    for thread in threads:
        thread.join(30)

    assert way.call_count == 1
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
