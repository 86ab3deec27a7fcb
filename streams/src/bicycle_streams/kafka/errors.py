"""Errors of the Kafka backend."""

from bicycle_streams.errors import StreamConnectError, StreamError

TOPIC_MISSING = StreamConnectError.row(
    "BIC-2680",
    "{address} has no topic {key!r} with at least {partitions} partitions",
    cause="A topic is missing, or has fewer partitions than the requested number of shards.",
    fix="create the topic, or use the option create=if-missing",
)
NOT_DELIVERED = StreamError.row(
    "BIC-2681",
    "{address} rejected a message of stream {key!r}: {reason}",
    cause=(
        "Kafka did not accept a message: it is too large, the topic is missing, or the broker did "
        "not respond in time."
    ),
    fix=(
        "correct the reported cause; messages with a receipt have arrived. `bicycle stream topics "
        "alter --shards N` adds partitions to a topic, and the option partitions sets the number "
        "for a new topic"
    ),
)
READ_FAILED = StreamError.row(
    "BIC-2682",
    "cannot read from {address}: {reason}",
    cause="Kafka returned a permanent error to a consumer.",
    fix=(
        "correct the reported cause: topics, permissions, or offsets that the topic no longer "
        "retains"
    ),
)
SETTINGS_UNREADABLE = StreamConnectError.row(
    "BIC-2683",
    "client settings of Kafka for {address} are invalid: {reason}",
    cause=(
        "The option properties has an unknown property or a wrong value, or options contradict "
        "security_protocol."
    ),
    fix=(
        "correct the property; user and password require security_protocol=SASL_SSL or "
        "SASL_PLAINTEXT, certificates require SSL or SASL_SSL"
    ),
)
TRANSACTION_FAILED = StreamError.row(
    "BIC-2676",
    "transaction of {transactional_id!r} in {address} failed: {reason}",
    cause=(
        "A broker rejected the transaction, it exceeded transaction_timeout_ms, or another "
        "transaction was open."
    ),
    fix=(
        "correct the reported cause and repeat the transaction: consumers do not see messages of "
        "incomplete transactions"
    ),
)
PRODUCER_FENCED = StreamError.row(
    "BIC-2677",
    "{address} assigned the transactional id {transactional_id!r} to another producer",
    cause=(
        "A later producer has the same transactional_id, so this producer is fenced and its "
        "transaction is aborted."
    ),
    fix="end this producer; use a separate transactional_id for each concurrent producer",
)
OUTSIDE_TRANSACTION = StreamError.row(
    "BIC-2698",
    "producer of {address} with transactional_id {transactional_id!r} can send messages only "
    "in a transaction",
    cause="A message was sent before a transaction began, or after its end.",
    fix="send inside `async with producer.transaction():`, or omit transactional_id",
)
TRANSACTION_LEFT_UNREAD = StreamError.row(
    "BIC-2699",
    "{address}: messages of {partition} from offset {offset} are unread: a transaction is still "
    "open after {limit_ms} ms",
    cause=(
        "A read to the end reached an open transaction, whose messages are not readable before it "
        "ends. Its producer hangs, or its timeout exceeds transaction_wait_ms."
    ),
    fix=(
        "end the transaction (`kafka-transactions.sh find-hanging`), raise transaction_wait_ms, or "
        "read messages of open transactions with properties=isolation.level=read_uncommitted"
    ),
)
