"""Kafka as a source and sink, described by chained calls without a connection.

A builder collects options, and ``build_connector`` makes a descriptor of them: the word ``kafka``,
JSON properties, and the objects outside JSON beside them. The options classes are sources and sinks
as well. Absent settings are left out, since the
connector knows the defaults; it also makes the checks that only the broker or its client can make.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.kafka.base import (
        DecodingSchema,
        EncodingSchema,
        KafkaBuilder,
    )
    from bicycle_sdk.kafka.options import KafkaSinkOptions, KafkaSourceOptions
    from bicycle_sdk.kafka.sink import DeliveryGuarantee, KafkaSinkBuilder
    from bicycle_sdk.kafka.source import KafkaSourceBuilder
    from bicycle_sdk.kafka.values import KafkaProperties, StartingOffsets, TopicPlan
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "base": (
                "DecodingSchema",
                "EncodingSchema",
                "KafkaBuilder",
            ),
            "options": ("KafkaSinkOptions", "KafkaSourceOptions"),
            "sink": ("DeliveryGuarantee", "KafkaSinkBuilder"),
            "source": ("KafkaSourceBuilder",),
            "values": ("KafkaProperties", "StartingOffsets", "TopicPlan"),
        },
    )

__all__ = [
    "DecodingSchema",
    "DeliveryGuarantee",
    "EncodingSchema",
    "KafkaBuilder",
    "KafkaProperties",
    "KafkaSinkBuilder",
    "KafkaSinkOptions",
    "KafkaSourceBuilder",
    "KafkaSourceOptions",
    "StartingOffsets",
    "TopicPlan",
]
