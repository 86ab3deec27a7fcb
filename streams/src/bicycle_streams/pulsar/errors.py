"""Errors of the Pulsar backend."""

from bicycle_streams.errors import StreamConnectError, StreamError, StreamUnsupportedError

PARTITIONS_MISSING = StreamConnectError.row(
    "BIC-2684",
    "topic {key!r} in {address} must have at least {partitions} partitions, got {found}",
    cause=(
        "A topic has fewer partitions than the requested number of shards, or is not partitioned."
    ),
    fix=(
        "create the topic with enough partitions, or use the option create=if-missing; partitions "
        "cannot be added to a topic that is not partitioned"
    ),
)
NOT_DELIVERED = StreamError.row(
    "BIC-2685",
    "{address} rejected a message of stream {key!r}: {reason}",
    cause=(
        "Pulsar did not accept a message: it is too large, permissions are missing, or the broker "
        "did not respond in time."
    ),
    fix="correct the reported cause; messages with a receipt have arrived",
)
READ_FAILED = StreamError.row(
    "BIC-2686",
    "cannot read from {address}: {reason}",
    cause="Pulsar returned a permanent error to a consumer.",
    fix="correct the reported cause: topics, namespaces or permissions",
)
GROUP_IN_USE = StreamConnectError.row(
    "BIC-2687",
    "group {group!r} of {address} is already used by another consumer of {key!r}",
    cause=(
        "A group in mode resumable has one consumer at a time, and it cannot share messages with "
        "consumers in mode load-balanced."
    ),
    fix="end the other consumer, choose another group, or share the messages in mode load-balanced",
)
POSITION_UNUSABLE = StreamError.row(
    "BIC-2688",
    "message {id} of stream {key!r} in {address} has an id that cannot be converted to a "
    "sequence number",
    cause="A ledger has more than a million entries, or an entry has more than 4,096 messages.",
    fix=(
        "close ledgers earlier (managedLedgerMaxEntriesPerLedger), or send smaller batches; a "
        "consumer continues after this message with the next call, and a job cannot read past it"
    ),
)
DEDUPLICATION_OFF = StreamUnsupportedError.row(
    "BIC-2689",
    "{address} does not support exactly-once messages of {key!r}: {reason}",
    cause=(
        "Brokers drop repeated messages only if deduplication is enabled, and the client cannot "
        "detect this."
    ),
    fix=(
        "enable deduplication for the namespace (pulsar-admin namespaces set-deduplication "
        "--enable) and check admin_url, or send at-least-once"
    ),
)
NOT_TEXT = StreamUnsupportedError.row(
    "BIC-2678",
    "{backend} does not support the key or the headers of a message for {key!r}: {reason}",
    cause="Keys and properties of Pulsar are texts, and a property has one value.",
    fix=(
        "send UTF-8 text, or base64 for binary data; set each header only once, with a value; "
        "nothing was sent"
    ),
)
ADMIN_UNREACHABLE = StreamConnectError.row(
    "BIC-2679",
    "admin API of {address} does not respond at {url}: {reason}",
    cause="Partitions and settings of topics are managed over the HTTP API of Pulsar.",
    fix=(
        "set the option admin_url=http://host:8080, and check permissions and token; if it "
        "redirects to another server of the cluster, set admin_url to that server"
    ),
)
