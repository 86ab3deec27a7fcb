"""`bicycle stream topics` on a real Redis server."""

import json

import pytest
from click.testing import CliRunner

from bicycle_runtime.cli import main
from tests.redis.redis_server import RedisServer
from tests.topic_calls import call, refused, told


def test_a_stream_is_made_listed_altered_and_deleted_with_its_shards(server):
    url = f"{server.uri}/orders"

    [made] = told("create", url, "--shards", "3")
    assert [shard["shard_id"] for shard in made["shards"]] == [0, 1, 2]
    assert made["message_count"] == 0
    assert made["groups"] == []
    with server.client as client:
        client.set("text", "no stream")
        client.xadd("strange name", {"msg": "of another program"})
        client.xadd("payments", {"msg": "1"})
    assert told("list", f"{server.uri}/") == ["orders", "payments"]
    assert call("list", f"{server.uri}/").stdout.split() == ["orders", "payments"]

    [grown] = told("alter", url, "--shards", "4")
    assert [shard["shard_id"] for shard in grown["shards"]] == [0, 1, 2, 3]

    deleted = json.loads(call("delete", url, "--json").stdout)
    assert deleted == {"deleted": ["orders"]}
    assert told("list", f"{server.uri}/") == ["payments"]
    with server.client as client:
        assert sorted(client.keys("*")) == [b"payments", b"strange name", b"text"]


def test_shards_groups_and_their_lag_are_described(server):
    with server.client as client:
        for number in range(1, 6):
            client.xadd("orders", {"msg": number}, id=f"{number}000-0")
        client.xadd("orders:1", {"msg": 9}, id="9000-3")
        client.xgroup_create("orders", "billing", "0")
        client.xreadgroup("billing", "ada", {"orders": ">"}, count=2)  # Two are held, three wait.
        client.xack("orders", "billing", "1000-0")
        client.xgroup_create("orders", "audit", "2000-0")  # A position in the middle.
        client.xgroup_create("orders:1", "audit", "$")

    [orders] = told("describe", f"{server.uri}/orders")

    first, second = orders["shards"]
    assert first == {
        "shard_id": 0,
        "message_count": 5,
        "first_sequence": 1000 << 16,
        "last_sequence": 5000 << 16,
        "last_timestamp_ms": 5000,
    }
    assert (second["shard_id"], second["last_sequence"]) == (1, 9000 << 16 | 3)
    assert orders["groups"] == [
        {"name": "audit", "consumer_count": 0, "lag_by_shard": {"0": 3, "1": 0}},
        {"name": "billing", "consumer_count": 1, "lag_by_shard": {"0": 4}},
    ]
    assert (orders["message_count"], orders["lag"]) == (6, 4)
    text = call("describe", f"{server.uri}/orders").stdout
    assert "orders: 6 messages, shards: 2" in text
    assert "1970-01-01T00:00:09.000" in text
    assert "billing  1          4" in text


def test_settings_trim_what_is_there(server):
    with server.client as client:
        for number in range(1, 6):
            client.xadd("orders", {"msg": number}, id=f"{number}000-0")

    [trimmed] = told("alter", f"{server.uri}/orders", "--config", "maxlen=3")
    assert trimmed["message_count"] == 3
    [trimmed] = told("alter", f"{server.uri}/orders", "--config", "minid=5000")
    assert trimmed["message_count"] == 1


@pytest.mark.parametrize("action", ["describe", "delete", "alter"])
def test_a_stream_that_is_not_there_is_told_with_those_that_are(server, action):
    told("create", f"{server.uri}/payments")
    words = ("--shards", "2") if action == "alter" else ()

    code, error, facts = refused(action, f"{server.uri}/orders", *words)

    assert (code, error, facts["key"]) == (4, "BIC-2664", "orders")
    assert facts["known_text"] == "payments"


def test_what_cannot_be_done_is_told_and_changes_nothing(server):
    url = f"{server.uri}/orders"
    told("create", url, "--shards", "2")
    with server.client as client:
        client.set("text", "no stream")

    assert refused("create", url)[1] == "BIC-2665"
    assert refused("alter", url, "--shards", "1")[1] == "BIC-2666"
    assert refused("alter", url, "--config", "colour=red")[1] == "BIC-2667"
    assert refused("alter", url, "--config", "maxlen=many")[1] == "BIC-2667"
    assert refused("create", f"{server.uri}/new", "--config", "maxlen=5")[1] == "BIC-2667"
    _, code, facts = refused("describe", f"{server.uri}/text")
    assert (code, facts["reason"]) == ("BIC-2667", "the key is a string, not a stream")
    assert call("alter", url).exit_code == 2
    assert call("delete", f"{server.uri}/").exit_code == 2
    assert told("list", f"{server.uri}/") == ["orders"]
    assert len(told("describe", url)[0]["shards"]) == 2


def test_an_entry_that_no_sequence_stands_for_hides_no_stream(server):
    with server.client as client:
        client.xadd("orders", {"msg": "x"}, id="5-70000")

    [orders] = told("describe", f"{server.uri}/orders")
    assert (orders["message_count"], orders["shards"][0]["last_sequence"]) == (1, None)


def test_what_a_user_may_not_do_is_told(server):
    with server.client as client:
        client.xadd("orders", {"msg": "x"})
        client.acl_setuser(
            "guest", enabled=True, nopass=True, keys=["*"], commands=["+ping", "+info"]
        )
    user = ("--set", "username=guest", "--set", "password=any")

    for action in ("list", "describe", "delete"):
        code, error, facts = refused(action, f"{server.uri}/orders", *user)
        assert (code, error) == (1, "BIC-2675")
        assert "scan" in facts["reason"]
    for command in ("cat", "top", "tail"):
        once = ("--once",) if command == "top" else ()
        words = ["stream", command, f"{server.uri}/orders", *once, *user, "--json"]
        done = CliRunner().invoke(main, words, prog_name="bicycle")
        assert (done.exit_code, json.loads(done.stdout)["code"]) == (1, "BIC-2675")


def test_a_server_without_the_command_is_told():
    server = RedisServer(words=["--rename-command", "SCAN", ""])
    try:
        for action in ("list", "describe", "delete", "create"):
            code, error, facts = refused(action, f"{server.uri}/orders")
            assert (code, error) == (4, "BIC-2667")
            assert "unknown command" in facts["reason"]
    finally:
        server.remove()


def test_a_server_that_is_gone_is_told(server):
    server.kill()
    code, error, _ = refused("list", f"{server.uri}/")
    server.start()
    assert (code, error) == (4, "BIC-2609")
