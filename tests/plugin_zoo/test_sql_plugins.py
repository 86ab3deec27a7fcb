"""A wheel whose entry point names an SQL file: listed, checked, planned, and its errors."""

import pytest

from bicycle_runtime.extraction.discovery import discover
from bicycle_runtime.extraction.errors import ENTRY_POINT_BROKEN, SCRIPT_UNUSABLE
from bicycle_runtime.extraction.extract import check_all, extract
from bicycle_runtime.tables.errors import SQL_INVALID
from bicycle_sdk import StreamEnvironment
from bicycle_sdk.errors import StreamDefinitionError
from tests.cluster.wheels import install, new_venv
from tests.plugin_zoo.sql_wheels import sql_wheel
from tests.plugin_zoo.zoo import install as put
from tests.plugin_zoo.zoo import whole
from tests.raising import raises
from tests.unit.cli.conftest import Shell


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.setenv("BICYCLE_HOME", str(tmp_path / "home"))
    return Shell(tmp_path / "home")


@pytest.fixture
def site(tmp_path):
    """A folder with an installed SQL plugin, as pip would leave it."""
    folder = tmp_path / "site"
    (folder / "views").mkdir(parents=True)
    (folder / "views" / "__init__.py").touch()
    beast = whole("loud", "", target="views:loud.sql")
    put(folder, beast)
    return folder


def test_a_wheel_with_sql_is_listed_checked_and_planned(tmp_path, shell):
    install(new_venv(tmp_path / "venv"), "--no-deps", str(sql_wheel(tmp_path)))
    env = ("--plugin-env", str(tmp_path / "venv"))

    [listed] = shell.answer("plugins", *env)["plugins"]
    checked = shell.answer("plugins", "check", *env)
    plan = shell.run("plan", "--plugin", "loud_words", *env)

    assert (listed["name"], listed["target"]) == ("loud_words", "shop_views:loud.sql")
    assert checked["ok"] == ["loud_words"]
    assert plan.exit_code == 0, plan.output
    assert plan.output.startswith("operators:\n")
    answer = shell.answer("plan", "--plugin", "loud_words", *env)
    assert (answer["plugin_version"], answer["guarantee"]) == ("1.0", "exactly-once")


def test_a_folder_of_sql_files_in_a_wheel_is_one_job(tmp_path, shell):
    wheel = sql_wheel(tmp_path, is_split=True)
    install(new_venv(tmp_path / "venv"), "--no-deps", str(wheel))
    env = ("--plugin-env", str(tmp_path / "venv"))

    checked = shell.answer("plugins", "check", *env)
    plan = shell.run("plan", "--plugin", "loud_words", *env)

    assert checked["ok"] == ["loud_words"]
    assert plan.exit_code == 0, plan.output
    assert "  loud: INSERT INTO loud" in plan.output
    [site] = (tmp_path / "venv").glob("lib/*/site-packages")
    bundle = extract(discover([str(site)]).find("loud_words"), {})
    assert (bundle.graph.name, bundle.plugin_version) == ("loud", "1.0")


def test_an_error_in_a_folder_of_a_wheel_names_the_file_of_its_line(site):
    (site / "views" / "loud").mkdir()
    (site / "views" / "loud" / "a.sql").write_text(
        "CREATE TABLE x (a BIGNIT) WITH (kind = 'file');"
    )
    (site / "views" / "loud" / "b.sql").write_text("\nSELECT 1;")

    [result] = check_all([discover([str(site)]).find("loud")])

    assert result.error.facts["file"] == "views/loud/*.sql of loud 1.0"
    found = [(each["file"], each["line"]) for each in result.error.facts["problems"]]
    assert found == [("views/loud/a.sql", 1), ("views/loud/b.sql", 2)]


def test_a_folder_without_sql_files_in_a_wheel_is_refused(site):
    (site / "views" / "loud").mkdir()

    with raises(SCRIPT_UNUSABLE) as caught:
        extract(discover([str(site)]).find("loud"), {})

    assert caught.value.facts["problem"] == "it has no SQL files"


def test_an_error_in_a_wheel_names_file_line_and_version(tmp_path, shell):
    wheel = sql_wheel(tmp_path, "2.1", column="shout(whoo)")
    install(new_venv(tmp_path / "venv"), "--no-deps", str(wheel))

    for command in (("plan", "--plugin", "loud_words"), ("plugins", "check")):
        done = shell.run(*command, "--plugin-env", str(tmp_path / "venv"))

        assert done.exit_code != 0
        assert "shop_views/loud.sql of shop-views 2.1 has 1 problem; nothing was" in done.output
        assert "shop_views/loud.sql:4:39: there is no column 'whoo'; did you" in done.output


def test_a_wheel_without_its_file_is_refused(site):
    with raises(ENTRY_POINT_BROKEN) as caught:
        extract(discover([str(site)]).find("loud"), {})

    assert caught.value.facts["reason"] == f"{site}/views/loud.sql not found; add it to the wheel"


def test_a_file_beside_a_module_is_refused(site):
    (site / "views" / "__init__.py").unlink()
    (site / "views").rmdir()
    (site / "views.py").touch()

    with raises(ENTRY_POINT_BROKEN) as caught:
        extract(discover([str(site)]).find("loud"), {})

    assert caught.value.facts["reason"] == "module 'views' is not a package"


def test_a_file_that_is_not_text_is_refused(site):
    (site / "views" / "loud.sql").write_bytes(b"SELECT\n'\xff'")

    with raises(SCRIPT_UNUSABLE) as caught:
        extract(discover([str(site)]).find("loud"), {})

    assert caught.value.facts["problem"] == "line 2: byte 0xff is not UTF-8"


def test_all_problems_of_a_file_are_reported_with_the_distribution(site):
    (site / "views" / "loud.sql").write_text("CREATE TABEL x;\n\nSELECT 1;")

    [result] = check_all([discover([str(site)]).find("loud")])

    assert result.error.code == SQL_INVALID.code
    assert result.error.facts["file"] == "views/loud.sql of loud 1.0"
    assert [each["line"] for each in result.error.facts["problems"]] == [1, 3]


def test_a_file_name_that_no_entry_point_can_have_is_refused(tmp_path):
    put(tmp_path, whole("loud", "", target="views:my-views.sql"))

    [refused] = discover([str(tmp_path)]).refused

    assert "'views:my-views.sql' is not of the form module:attribute, or" in refused.reason


def test_an_sql_file_is_not_a_function_for_other_jobs(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))

    with pytest.raises(StreamDefinitionError) as caught:
        StreamEnvironment().from_collection([1]).process_plugin("loud")

    assert "'loud' is a job, not a function class" in str(caught.value)
