"""Lines that are meant to do harm: they are bad records, and their neighbors are read."""

import gzip

import pytest

from bicycle_runtime.testing import Harness
from bicycle_sdk import dead_letter

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("bad", [DEEP, b'{"a":' * 50_000 + b"1" + b"}" * 50_000])
@pytest.mark.parametrize("is_first", [True, False])
def test_json_that_is_nested_too_deeply_is_a_bad_record(tmp_path, bad, is_first):
    path = tmp_path / "in.jsonl"
    lines = [bad, b'{"a": 1}', b'{"a": 2}'] if is_first else [b'{"a": 1}', bad, b'{"a": 2}']
    path.write_bytes(b"\n".join(lines))

    def job(env):
        rows = env.read_jsonl(path).uid("in").on_error(dead_letter())
        rows.map(lambda row: row["a"]).uid("a").collect("out")

    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == [1, 2]
        assert len(harness.dead_letters) == 1


def test_a_line_that_grows_out_of_few_compressed_bytes_is_a_bad_record(tmp_path):
    path = tmp_path / "in.jsonl.gz"
    with gzip.open(path, "wb", 1) as stream:
        stream.write(b'{"a": 1}\n')
        for _ in range(100):
            stream.write(bytes(1 << 20))
        stream.write(b'\n{"a": 2}\n')

    def job(env):
        rows = env.read_jsonl(path).uid("in").on_error(dead_letter())
        rows.map(lambda row: row["a"]).uid("a").collect("out")

    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == [1, 2]
        assert len(harness.dead_letters) == 1
