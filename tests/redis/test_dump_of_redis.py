"""`bicycle stream dump`: streams of Redis into a file and back, whole."""

import json

from click.testing import CliRunner

from bicycle_runtime.cli import main


def dump(*words):
    done = CliRunner().invoke(main, ["stream", "dump", *words, "--json"], prog_name="bicycle")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["sent"]


def test_streams_with_shards_times_and_bytes_come_back_as_they_were(server, tmp_path):
    file = f"file://{tmp_path}/all.ss"
    with server.client as client:
        for number in range(2_500):
            name = ("orders", "orders:1", "refunds")[number % 3]
            payload = b"\x00\xff\n%d" % number
            client.xadd(name, {"msg": payload}, id=f"{1_000 + number // 2}-*")

        assert dump(f"{server.uri}/orders,refunds", f"{file}/") == 2_500
        assert dump(f"{file}/orders,refunds", f"{server.uri}/", "--output-set", "db=1") == 2_500

        def kept(name):
            entries = client.xrange(name)
            return [(int(entry.split(b"-")[0]), fields[b"msg"]) for entry, fields in entries]

        before = {name: kept(name) for name in ("orders", "orders:1", "refunds")}
        client.select(1)
        assert {name.decode() for name in client.keys("*")} == set(before)
        assert {name: kept(name) for name in before} == before
