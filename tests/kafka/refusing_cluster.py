"""A Kafka cluster that refuses requests on demand: the one inside librdkafka, in this process.

A real broker refuses a single request for the moment in which a leader changes only.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_LIST_OFFSETS = 2
_PRODUCER = 0
_TEXT_BYTES = 512
_POINTER, _SHORT, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int16, ctypes.c_int, ctypes.c_size_t


class RefusingCluster:
    """A cluster of one broker without messages; close it after its clients.

    Args:
        topic: The only topic, of one partition.
    """

    def __init__(self, topic: str) -> None:
        [file] = Path(confluent_kafka.__path__[0]).parent.glob("confluent_kafka.libs/librdkafka*")
        self._library = ctypes.CDLL(str(file))
        settings = self._call("rd_kafka_conf_new", gives=_POINTER)
        # Only a cluster's owner: it reaches no broker, and would say so on stderr.
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        for name, value in ((b"bootstrap.servers", b"127.0.0.1:1"), (b"log_level", b"0")):
            self._call("rd_kafka_conf_set", settings, name, value, text, _SIZE(_TEXT_BYTES))
        self._owner = self._call(
            "rd_kafka_new", _INT(_PRODUCER), settings, text, _SIZE(_TEXT_BYTES), gives=_POINTER
        )
        self._cluster = self._call(
            "rd_kafka_mock_cluster_new", self._owner, _INT(1), gives=_POINTER
        )
        name = topic.encode()
        self._call("rd_kafka_mock_topic_create", self._cluster, name, _INT(1), _INT(1))
        servers = self._call(
            "rd_kafka_mock_cluster_bootstraps", self._cluster, gives=ctypes.c_char_p
        )
        self.bootstrap = servers.decode()

    def refuse_offsets(self, *codes: int) -> None:
        """Refuse the next requests for offsets.

        Args:
            codes: Kafka's code for each request in turn; 0 for an answer.
        """
        self._call(
            "rd_kafka_mock_push_request_errors_array",
            self._cluster, _SHORT(_LIST_OFFSETS), _SIZE(len(codes)), (_INT * len(codes))(*codes),
        )  # fmt: skip

    def accept_offsets(self) -> None:
        """Take back what is left of ``refuse_offsets``."""
        self._call("rd_kafka_mock_clear_request_errors", self._cluster, _SHORT(_LIST_OFFSETS))

    def close(self) -> None:
        self._call("rd_kafka_mock_cluster_destroy", self._cluster)
        self._call("rd_kafka_destroy", self._owner)

    def _call(self, name, *values, gives=None):
        function = getattr(self._library, name)
        function.restype = gives
        return function(*(_POINTER(each) if type(each) is int else each for each in values))
