"""Messages of Protobuf, compiled once."""

import subprocess
import sys

import pytest

PROTO = """
syntax = "proto3";
package plain;
import "google/protobuf/timestamp.proto";
message Plain {
  int64 number = 1;
  string text = 2;
  double real = 3;
  float single = 4;
  bytes raw = 5;
  google.protobuf.Timestamp at = 6;
  repeated float singles = 7;
  repeated Plain nested = 8;
}
"""


@pytest.fixture(scope="session")
def plain_message(tmp_path_factory):
    """The name of a message with fields of all plain kinds."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "plain.proto").write_text(PROTO, encoding="utf-8")
    words = (f"-I{folder}", f"--python_out={folder}", str(folder / "plain.proto"))
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    sys.path.insert(0, str(folder))
    yield "plain_pb2:Plain"
    sys.path.remove(str(folder))
    sys.modules.pop("plain_pb2", None)
