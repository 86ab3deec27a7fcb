"""Tokens as they are made, kept and taken."""

import json
import re

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli.root import main
from bicycle_runtime.jobs.home import Home
from bicycle_runtime.service.address import service_folder
from bicycle_sdk.clock import ManualClock
from bicycle_streams.access import tokens as module
from bicycle_streams.access.control import CONTROL
from bicycle_streams.access.database import SqliteDatabase
from bicycle_streams.access.errors import (
    TOKEN_LIFETIME_INVALID,
    TOKEN_NAME_INVALID,
    TOKEN_OWNER_INVALID,
    TOKEN_UNKNOWN,
    TOKEN_UNUSABLE,
)
from bicycle_streams.access.roles import Role
from bicycle_streams.access.tokens import tokens_of
from tests.raising import raises

HOUR_MS = 3_600_000


@pytest.fixture
def clock():
    return ManualClock(1_000_000)


@pytest.fixture
def database_server():
    """The database server of the home: none, but where these tests run on PostgreSQL."""
    return None


@pytest.fixture
def tokens(tmp_path, clock, database_server):
    with tokens_of(tmp_path / "home", clock, database_server) as found:
        yield found


def test_a_token_says_who_has_it_until_it_expires(tokens, clock):
    entry, text = tokens.create("ada", role=Role.OPERATOR, lifetime_ms=HOUR_MS, by="test")

    assert tokens.holder(text) == entry.identity
    assert (entry.identity.name, entry.identity.role) == ("ada", Role.OPERATOR)
    clock.advance(HOUR_MS - 1)
    assert tokens.holder(text) is not None
    clock.advance(1)
    assert tokens.holder(text) is None


def test_nothing_but_the_whole_token_is_taken(tokens):
    _, text = tokens.create("ada", role=Role.ADMIN, lifetime_ms=HOUR_MS, by="test")
    _, other = tokens.create("bob", role=Role.ADMIN, lifetime_ms=HOUR_MS, by="test")
    head, number, secret = text.split("_", 2)
    turned = ("A" if secret[0] != "A" else "B") + secret[1:]
    wrong = [
        "", "bic", text[:-1], text + "A", text.upper(), f"{head}_{number}_{turned}", f" {text}",
        f"{head}_{other.split('_')[1]}_{secret}", f"{head}_000000000000_{secret}", text + "\n",
        f"{head}_{number}_{'A' * 43}", f"{head}_%_{secret}", f"{head}_' OR 1=1 --_{secret}",
    ]  # fmt: skip

    assert [tokens.holder(each) for each in wrong] == [None] * len(wrong)


def test_secrets_are_compared_in_constant_time_also_where_there_is_no_such_token(
    tokens, monkeypatch
):
    compared = []
    real = module.hmac.compare_digest
    monkeypatch.setattr(
        module.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or real(a, b)
    )
    _, text = tokens.create("ada", role=Role.ADMIN, lifetime_ms=HOUR_MS, by="test")

    tokens.holder(text)
    tokens.holder("bic_000000000000_" + text.split("_", 2)[2])

    assert [(len(a), len(b)) for a, b in compared] == [(32, 32)] * 2


@pytest.mark.parametrize("name", ["", " ", "a" * 61, "a\nb", "a\x00", "<b>", "a\u202eb"])
def test_a_name_that_cannot_be_shown_is_refused(tokens, name):
    with raises(TOKEN_NAME_INVALID):
        tokens.create(name, role=Role.VIEWER, lifetime_ms=HOUR_MS, by="test")


@pytest.mark.parametrize("lifetime_ms", [0, -1, 59_999, 3_651 * 86_400_000])
def test_a_lifetime_out_of_bounds_is_refused(tokens, lifetime_ms):
    with raises(TOKEN_LIFETIME_INVALID):
        tokens.create("ada", role=Role.VIEWER, lifetime_ms=lifetime_ms, by="test")


def test_a_token_is_revoked_once_and_an_unknown_one_is_told(tokens, clock):
    entry, text = tokens.create("ada", role=Role.VIEWER, lifetime_ms=HOUR_MS, by="test")

    first = tokens.revoke(entry.id, by="test")
    clock.advance(5)

    assert tokens.revoke(entry.id, by="test") == first
    assert tokens.holder(text) is None
    with raises(TOKEN_UNKNOWN):
        tokens.revoke("000000000000", by="test")


def test_commands_make_list_and_revoke_tokens_and_show_each_once(tmp_path):
    words = ["--home", str(tmp_path / "home")]
    runner = CliRunner()

    made = runner.invoke(main, ["token", "create", "ada", "--role", "admin", *words])
    listed = runner.invoke(main, ["token", "list", *words])
    number = made.stdout.split("_")[1]
    revoked = runner.invoke(main, ["token", "revoke", number, *words])
    again = runner.invoke(main, ["token", "list", *words])

    assert made.stdout.startswith("bic_")
    assert made.stdout.strip().split("_", 2)[2] not in listed.stdout
    assert ("admin" in listed.stdout, "taken" in listed.stdout) == (True, True)
    assert revoked.exit_code == 0
    assert "revoked" in again.stdout
    assert runner.invoke(main, ["token", "revoke", "nobody", *words]).exit_code == 2


@pytest.mark.parametrize("owners", [[], [""], ["ada", "a\nb"], ["*"], ["a,b"], ["a" * 61]])
def test_an_owner_that_nobody_can_be_is_refused(tokens, owners):
    with raises(TOKEN_OWNER_INVALID):
        tokens.create("ada", role=Role.VIEWER, lifetime_ms=HOUR_MS, by="test", owners=owners)


def test_a_token_for_some_owners_starts_jobs_of_its_own_name_else_of_the_first(tokens):
    found = {}
    for owners in (None, ["team", "ada", "team"], ["team", "bob"]):
        _, text = tokens.create(
            "ada", role=Role.OPERATOR, lifetime_ms=HOUR_MS, by="test", owners=owners
        )
        who = tokens.holder(text)
        found[who.owners] = (who.owner, who.sees("bob"), who.sees("ada"), who.sees(""))

    assert found == {
        None: ("ada", True, True, True),
        ("team", "ada"): ("ada", False, True, False),
        ("team", "bob"): ("team", True, False, False),
    }


def test_the_command_tells_for_which_owners_a_token_counts(tmp_path):
    words = ["--home", str(tmp_path / "home")]
    runner = CliRunner()

    made = runner.invoke(main, ["token", "create", "a", "--owner", "bob", "--owner", "eve", *words])
    every = runner.invoke(main, ["token", "create", "b", "--json", *words])
    listed = runner.invoke(main, ["token", "list", *words])
    wrong = runner.invoke(main, ["token", "create", "c", "--owner", "*", *words])
    role = ["--client-role", "a=viewer:*", "--detach", *words]
    client = runner.invoke(main, ["up", *role])

    assert "of the jobs of bob, eve" in made.stderr
    assert json.loads(every.stdout)["owners"] is None
    assert re.search(r"bob, eve .*\n|all .*\n", listed.stdout)
    assert [("BIC-2329" in each.stderr, each.exit_code) for each in (wrong, client)] == [
        (True, 2), (True, 2),
    ]  # fmt: skip


def test_a_database_from_before_owners_is_kept_with_tokens_for_all(tmp_path, clock):
    home = Home(tmp_path / "home")
    folder = service_folder(home)
    folder.mkdir(parents=True)
    with SqliteDatabase(folder / "control.db", CONTROL[:3], synchronous="FULL") as old:
        old.write(_write_old_rows).result()

    with tokens_of(home.path, clock) as tokens:
        [entry] = tokens.list()
        control = tokens._control
        owners = control.read(lambda c: c.execute("SELECT id, owner FROM operations").fetchall())
        lines = control.read(lambda c: c.execute("SELECT actor, owner FROM audit").fetchall())

    assert (entry.name, entry.owners) == ("ada", None)
    assert [tuple(row) for row in owners] == [(1, "ada"), (2, "")]
    assert [tuple(row) for row in lines] == [("ada", "")]


def _write_old_rows(connection):
    connection.execute(
        "INSERT INTO tokens VALUES ('1', 'ada', x'00', 'viewer', 1, 9000000000000, NULL)"
    )
    connection.execute("INSERT INTO owners VALUES ('job', 'ada')")
    for number, job in ((1, "job"), (2, "other")):
        connection.execute(
            "INSERT INTO operations VALUES"
            f" ({number}, 'ada', NULL, '', '{job}', 'stop', '{{}}', 'done', 1, 2, NULL, NULL)"
        )
    connection.execute(
        "INSERT INTO audit VALUES (1, 1, 'ada', '', 'stop', 'job', 'accepted', '{}')"
    )


def test_a_given_token_is_registered_in_another_home_and_its_facts_are_replaced(
    tokens, tmp_path, clock
):
    _, text = tokens.create("ada", role=Role.VIEWER, lifetime_ms=HOUR_MS, by="test")
    with tokens_of(tmp_path / "other", clock) as others:
        for role, owners in ((Role.VIEWER, None), (Role.ADMIN, ["team"])):
            entry, same = others.create(
                "root", role=role, lifetime_ms=HOUR_MS, by="test", owners=owners, given=text
            )
            assert (same, others.holder(text)) == (text, entry.identity)
        assert [(each.role, each.owners) for each in others.list()] == [("admin", ("team",))]

        others.revoke(entry.id, by="test")
        again, _ = others.create(
            "root", role=Role.ADMIN, lifetime_ms=HOUR_MS, by="test", given=text
        )
        assert again.revoked_ms is not None
        assert others.holder(text) is None


def test_a_given_token_that_is_malformed_or_has_the_id_of_another_is_refused(tokens):
    entry, text = tokens.create("ada", role=Role.VIEWER, lifetime_ms=HOUR_MS, by="test")
    for given in ("bic", text + "x", f"bic_{entry.id}_{'A' * 43}"):
        with raises(TOKEN_UNUSABLE):
            tokens.create("eve", role=Role.ADMIN, lifetime_ms=HOUR_MS, by="test", given=given)
    assert [each.role for each in tokens.list()] == ["viewer"]


def test_the_command_registers_the_token_of_a_file_and_does_not_print_it(tmp_path):
    home, file = ["--home", str(tmp_path / "home")], tmp_path / "token"
    runner = CliRunner()
    made = runner.invoke(main, ["token", "create", "a", "--home", str(tmp_path / "other")])
    file.write_text(made.stdout)
    words = ["token", "create", "root", "--role", "admin", "--from-file", str(file), *home]

    first, second = runner.invoke(main, words), runner.invoke(main, [*words, "--json"])

    assert re.match(r"admin 'root' until .*: registered\n", first.stderr)
    assert made.stdout.strip() not in first.stdout + first.stderr + second.stdout
    assert json.loads(second.stdout)["role"] == "admin"
    file.write_text("none")
    refused = runner.invoke(main, words)
    assert ("BIC-2333" in refused.stderr, refused.exit_code) == (True, 2)
