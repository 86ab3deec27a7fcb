"""The generated code of gRPC: made again it is the same, and no number means another field."""

import subprocess
import sys
from pathlib import Path

from bicycle_runtime.api.rpc.generated import jobmanager_pb2 as shapes

ROOT = Path(__file__).parents[3] / "runtime/src"
PROTO = Path("bicycle_runtime/api/rpc/generated/jobmanager.proto")
RELEASED = Path(__file__).parent / "jobmanager_fields.txt"


def test_the_generated_code_is_what_the_locked_tools_make(tmp_path):
    words = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *words, str(PROTO)],
        check=True, cwd=ROOT,
    )  # fmt: skip

    made = sorted((tmp_path / PROTO.parent).iterdir())
    assert len(made) == 2
    for file in made:
        assert file.read_text() == (ROOT / PROTO.parent / file.name).read_text(), file.name


def fields():
    """Return each field of each message with its number and type, and each call."""
    for name, message in shapes.DESCRIPTOR.message_types_by_name.items():
        for field in message.fields:
            of = field.message_type.full_name if field.message_type else field.type
            yield f"{name}.{field.name} = {field.number} {of}"
    for service in shapes.DESCRIPTOR.services_by_name.values():
        for call in service.methods:
            yield f"{service.name}.{call.name} {call.input_type.name} {call.output_type.name}"


def test_what_was_released_stays():
    found = set(fields())

    assert set(RELEASED.read_text().splitlines()) <= found
