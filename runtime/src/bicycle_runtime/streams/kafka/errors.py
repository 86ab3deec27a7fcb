"""Errors of the Kafka backend."""

from __future__ import annotations

from bicycle_runtime.streams.errors import StreamConnectError, StreamError

TOPIC_MISSING = StreamConnectError.row(
    "BIC-2680",
    "there is no topic {key!r} with {partitions} partitions or more in {address}",
    cause="A stream is a topic, and it is missing or has fewer partitions than shards were asked.",
    fix="create it, or let it be made with the option create=if-missing",
)
NOT_DELIVERED = StreamError.row(
    "BIC-2681",
    "{address} did not take a message of stream {key!r}: {reason}",
    cause="Kafka gave a message up: too large, no topic of that name, or no answer in time.",
    fix="see to the reason; messages with a receipt have arrived. A topic gets more partitions by "
    "`bicycle stream topics alter --shards N`, and a new one as many as the option partitions says",
)
READ_FAILED = StreamError.row(
    "BIC-2682",
    "cannot read from {address}: {reason}",
    cause="Kafka answered a consumer with an error that does not pass by itself.",
    fix="see to the reason: topics, rights, or offsets that the topic does not keep any more",
)
SETTINGS_UNREADABLE = StreamConnectError.row(
    "BIC-2683",
    "the settings of Kafka's client for {address} cannot be used: {reason}",
    cause="The option client_settings has another form, or names what the client does not know, or "
    "options do not go with security_protocol.",
    fix="write client_settings as name=value with commas between; a user and a password go with "
    "security_protocol=SASL_SSL or SASL_PLAINTEXT, certificates with SSL or SASL_SSL",
)
TRANSACTION_FAILED = StreamError.row(
    "BIC-2676",
    "the transaction of {transactional_id!r} in {address} did not go through: {reason}",
    cause="A broker refused it, it took longer than transaction_timeout_ms, or one was open.",
    fix="see to the reason, and do it again: nobody sees anything of a transaction without its end",
)
PRODUCER_FENCED = StreamError.row(
    "BIC-2677",
    "{address} has given the transactional id {transactional_id!r} to another producer",
    cause="A producer with the same transactional_id began later: this one counts as dead, and its "
    "transaction is aborted.",
    fix="end this producer; give each one that runs at the same time a transactional_id of its own",
)
OUTSIDE_TRANSACTION = StreamError.row(
    "BIC-2698",
    "a producer of {address} with transactional_id {transactional_id!r} takes messages only in a "
    "transaction",
    cause="A message was sent before a transaction began, or after its end.",
    fix="send inside `async with producer.transaction():`, or leave transactional_id out",
)
