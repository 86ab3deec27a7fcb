"""A plugin for tests: it passes texts from topic to topic, exactly once, in order for each key."""

from tests.plugin_zoo.zoo import whole

__all__ = ["PASSWORD_VARIABLE", "RELAY"]

PASSWORD_VARIABLE = "RELAY_PASSWORD"
# A text is KEY:ANYTHING. With `ca` it logs in as ada; the source takes the password from the
# environment, the sink from a file.
RELAY = whole(
    "relay",
    """
    from dataclasses import dataclass
    from datetime import timedelta

    from bicycle_sdk import (
        DeliveryGuarantee, KafkaSinkBuilder, KafkaSourceBuilder, Secret, StreamEnvironment,
        bicycle_plugin,
    )


    @dataclass(frozen=True, kw_only=True)
    class Params:
        brokers: str
        source: str
        target: str
        bounded: bool = False
        ca: str = ""
        password_file: str = ""


    def key(text: str) -> str:
        return text.partition(":")[0]


    def itself(text: str) -> str:
        return text


    @bicycle_plugin(name="relay", version="1.0")
    def job(env: StreamEnvironment, params: Params) -> None:
        source = KafkaSourceBuilder[str](params.brokers, params.source).group_id(params.target)
        source.discovery_interval(timedelta(milliseconds=500))
        sink = KafkaSinkBuilder[str](params.brokers, params.target).key(key)
        sink.delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        sink.transactional_id_prefix(params.target)
        if params.bounded:
            source.bounded()
        if params.ca:
            source.tls(ca_location=params.ca)
            source.sasl("SCRAM-SHA-512", "ada", Secret.env("RELAY_PASSWORD"))
            sink.tls(ca_location=params.ca)
            sink.sasl("SCRAM-SHA-512", "ada", Secret.file(params.password_file))
        texts = env.add_source(source).uid("in")
        texts.key_by(key).map(itself).uid("same").sink_to(sink).uid("out")
    """,
)
