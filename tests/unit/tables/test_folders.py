"""Folders of SQL files: one job, in any order of files, with positions in each file."""

import pytest

from bicycle_runtime.extraction.errors import SCRIPT_UNUSABLE
from bicycle_runtime.extraction.scripts import (
    file_name,
    pack_script,
    script_name,
    text_of,
    text_to_send,
)
from bicycle_runtime.tables.building import build_tables
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_runtime.testing import Harness
from bicycle_sdk import StreamEnvironment
from tests.raising import raises

BIDS = "CREATE TABLE bids (auction BIGINT, price BIGINT) WITH (kind = 'file', path = 'bids')"
HOT = "CREATE TABLE hot (auction BIGINT) WITH (kind = 'file', path = 'hot');\n"


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes the files of a folder and returns its job."""

    def write(**files):
        (tmp_path / "views").mkdir()
        for name, text in files.items():
            (tmp_path / "views" / f"{name}.sql").write_text(text)
        return str(tmp_path / "views" / "*.sql")

    return write


def problems(job):
    """Return the problems of a job with their files and positions."""
    with raises(SQL_INVALID) as caught:
        build_tables(StreamEnvironment(), text_of(job), file=job)
    listing = caught.value.facts["listing"].replace(job.removesuffix("*.sql"), "")
    return [line.strip() for line in listing.splitlines()]


def test_files_are_one_job_in_the_order_of_their_dependencies(folder):
    job = folder(
        a="INSERT INTO hot SELECT auction FROM dear -- no semicolon",
        b="CREATE VIEW dear AS SELECT auction FROM high WHERE price < 100",
        c="CREATE VIEW high AS SELECT * FROM bids WHERE price > 10",
        d=HOT + BIDS,
    )
    env = StreamEnvironment()
    build_tables(env, text_of(job), file=job)

    with Harness(env, scripted=["bids-source"]) as harness:
        rows = [{"auction": at, "price": price} for at, price in enumerate((5, 50, 500))]
        harness.push(rows, source="bids-source")
        harness.end()
        harness.run()
        assert harness.results("hot") == [{"auction": 1}]


def test_problems_have_the_file_and_the_line_in_it(folder):
    job = folder(
        a="-- rows\nINSERT INTO hot\nSELECT auctoin FROM bids", b=BIDS, c=f"{HOT}SET on_eror = 'x'"
    )
    first, second = problems(job)
    assert first == (
        "a.sql:3:8: there is no column 'auctoin'; did you mean 'auction'? known: auction, price"
    )
    assert second.startswith("c.sql:2:5: unknown key SET.on_eror; did you mean 'on_error'?")


def test_names_that_are_defined_twice_have_both_positions(folder):
    job = folder(a=BIDS, b=HOT, c="\nCREATE VIEW Bids AS SELECT 1 AS x FROM hot")
    assert problems(job)[0] == "c.sql:2:13: Bids is defined twice; first at a.sql:1:14"


def test_views_that_read_each_other_are_refused_with_their_positions(folder):
    job = folder(
        a="CREATE VIEW v AS SELECT * FROM w;\nINSERT INTO hot SELECT auction FROM v",
        b="CREATE VIEW w AS SELECT * FROM v", c=HOT,
    )  # fmt: skip
    assert "b.sql:1:32: view v reads itself, by w; defined at a.sql:1:13, b.sql:1:13" in problems(
        job
    )


def test_a_service_receives_one_text_that_names_the_files(folder):
    job = folder(a=f"{BIDS};\n{HOT}", b="INSERT INTO hot SELECT autcion FROM bids")
    assert file_name(job) == "views.sql"
    with raises(SQL_INVALID) as caught:
        build_tables(StreamEnvironment(), text_to_send(job), file="views.sql")
    [problem] = caught.value.facts["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == ("b.sql", 1, 24)


def test_a_folder_is_packed_with_its_functions_under_its_name(folder, tmp_path):
    job = folder(a="CREATE FUNCTION twice AS 'shop:twice'", b=BIDS)
    (tmp_path / "views" / "shop.py").write_text("def twice(x: int) -> int:\n    return 2 * x\n")
    ref, packed = pack_script(job, cache_dir=tmp_path / "cache")

    assert (ref.name, script_name(job), ref.dist_name) == ("views", "views", "views.sql")
    assert b"shop.py" in packed.path.read_bytes()


def test_a_folder_without_sql_files_is_refused(tmp_path):
    with raises(SCRIPT_UNUSABLE, match="it has no SQL files"):
        text_of(str(tmp_path / "*.sql"))
    with raises(SCRIPT_UNUSABLE, match="No such folder"):
        text_of(str(tmp_path / "no" / "*.sql"))
