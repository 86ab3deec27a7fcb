"""Kafka as a source and sink, described by chained calls without a connection.

A builder collects settings. ``build_connector`` makes a descriptor of them: the word ``kafka``,
JSON properties, and the objects outside JSON beside them. Absent settings are left out, since the
connector knows the defaults; it also makes the checks that only the broker or its client can make.
"""

import typing

from bicycle_sdk import loading

if typing.TYPE_CHECKING:
    from bicycle_sdk.kafka.base import (
        DecodingSchema,
        EncodingSchema,
        KafkaBuilder,
        is_secret_property,
    )
    from bicycle_sdk.kafka.sink import DeliveryGuarantee, KafkaSinkBuilder
    from bicycle_sdk.kafka.source import KafkaSourceBuilder
else:
    __getattr__, __dir__ = loading.on_demand(
        __name__,
        {
            "base": (
                "DecodingSchema",
                "EncodingSchema",
                "KafkaBuilder",
                "is_secret_property",
            ),
            "sink": ("DeliveryGuarantee", "KafkaSinkBuilder"),
            "source": ("KafkaSourceBuilder",),
        },
    )

__all__ = [
    "DecodingSchema",
    "DeliveryGuarantee",
    "EncodingSchema",
    "KafkaBuilder",
    "KafkaSinkBuilder",
    "KafkaSourceBuilder",
    "is_secret_property",
]
