"""Client and server of ``bicycle.v1.JobManager``, made from its description."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from bicycle_runtime.api.rpc.generated.jobmanager_pb2 import DESCRIPTOR

_SERVICE = DESCRIPTOR.services_by_name["JobManager"]
SERVICE = _SERVICE.full_name


class JobManagerStub:
    """The client, with one method for each call.

    A method takes the request, and a ``timeout`` in seconds.

    Args:
        channel: A ``grpc.Channel``, or one of ``grpc.aio``.
    """

    def __init__(self, channel: Any) -> None:
        self._calls = {
            call.name: (channel.unary_stream if call.server_streaming else channel.unary_unary)(
                f"/{SERVICE}/{call.name}",
                request_serializer=GetMessageClass(call.input_type).SerializeToString,
                response_deserializer=GetMessageClass(call.output_type).FromString,
            )
            for call in _SERVICE.methods
        }

    def __getattr__(self, name: str) -> Any:
        """Return the call of this name."""
        try:
            return self._calls[name]
        except KeyError:
            raise AttributeError(f"{SERVICE} has no call {name!r}") from None


def add_to_server(implementation: object, server: grpc.aio.Server) -> None:
    """Serve the calls by the methods of an object that have their names."""
    handlers = {
        call.name: (
            grpc.unary_stream_rpc_method_handler
            if call.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )(
            getattr(implementation, call.name),
            request_deserializer=GetMessageClass(call.input_type).FromString,
            response_serializer=GetMessageClass(call.output_type).SerializeToString,
        )
        for call in _SERVICE.methods
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
