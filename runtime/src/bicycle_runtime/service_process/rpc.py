"""The gRPC server of the service: in its event loop, by the rules of the REST API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bicycle_runtime.api.rpc.calls import add_to_server
from bicycle_runtime.api.rpc.guard import CallGuard
from bicycle_runtime.api.rpc.jobmanager import ROLES, SERVICE, WRITES, JobManager
from bicycle_runtime.service.service import Service
from bicycle_streams.access.addresses import require_safe
from bicycle_streams.access.authentication import Authenticator
from bicycle_streams.access.doors import Doors
from bicycle_streams.access.errors import ADDRESS_TAKEN, TLS_UNUSABLE
from bicycle_streams.access.limits import Limits

_GRACE_S = 2.0
_CALLS_MAX = 1_000  # Of all callers; the guard counts them for each.
_OPTIONS = (
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.server_handshake_timeout_ms", 15_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.so_reuseport", 0),  # Else a port that is taken would be shared.
)


@asynccontextmanager
async def serve_rpc(
    service: Service, host: str, *, doors: Doors, authenticator: Authenticator, limits: Limits
) -> AsyncIterator[str]:
    """Serve gRPC inside the block, and yield the address.

    Args:
        service: What is served.
        host: Where to listen, as for REST.
        doors: The port, and what TLS is spoken with.
        authenticator: Tells who asks.
        limits: Counts what they ask.

    Raises:
        ADDRESS_TAKEN: the port is taken.
        TLS_UNUSABLE: a certificate or key cannot be used.
    """
    port = doors.grpc_port or 0
    address = str(require_safe(host, port, missing=None)[3][0])
    literal = f"[{address}]" if ":" in address else address
    keeper = CallGuard(
        service, authenticator=authenticator, limits=limits, roles=ROLES, writes=WRITES,
        is_tls=doors.tls_cert is not None,
    )  # fmt: skip
    server = grpc.aio.server(
        interceptors=[keeper], options=_OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX
    )
    add_to_server(JobManager(service), server)
    states = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(states, server)
    for name in ("", SERVICE):
        await states.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection(
        (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    bound = _listen(server, f"{literal}:{port}", doors)
    if not bound:
        raise ADDRESS_TAKEN(host=host, port=port, reason="gRPC cannot listen there")
    await server.start()
    try:
        yield f"{literal}:{bound}"
    finally:
        await states.enter_graceful_shutdown()
        await server.stop(_GRACE_S)


def _listen(server: grpc.aio.Server, address: str, doors: Doors) -> int:
    """Return the port of the server, or 0."""
    try:
        if doors.tls_cert is None or doors.tls_key is None:
            return int(server.add_insecure_port(address))
        ca = None if doors.tls_client_ca is None else Path(doors.tls_client_ca).read_bytes()
        pair = (Path(doors.tls_key).read_bytes(), Path(doors.tls_cert).read_bytes())
        # gRPC requests certificates of clients either always or never.
        credentials = grpc.ssl_server_credentials([pair], ca, require_client_auth=ca is not None)
        return int(server.add_secure_port(address, credentials))
    except OSError as error:
        raise TLS_UNUSABLE(files=str(doors.tls_cert), reason=str(error)) from error
    except RuntimeError:  # gRPC raises it for a port that is taken.
        return 0
