"""Errors of the Pulsar backend."""

from __future__ import annotations

from bicycle_runtime.streams.errors import (
    StreamConnectError,
    StreamError,
    StreamUnsupportedError,
)

PARTITIONS_MISSING = StreamConnectError.row(
    "BIC-2684",
    "topic {key!r} in {address} has {found} partitions, and {partitions} are needed",
    cause="A shard is a partition, and the topic has fewer than were asked for, or none at all.",
    fix="create it with so many partitions, or let it be made with the option create=if-missing; a "
    "topic without partitions cannot get any",
)
NOT_DELIVERED = StreamError.row(
    "BIC-2685",
    "{address} did not take a message of stream {key!r}: {reason}",
    cause="Pulsar gave a message up: too large, no right to send it, or no answer in time.",
    fix="see to the reason; messages with a receipt have arrived",
)
READ_FAILED = StreamError.row(
    "BIC-2686",
    "cannot read from {address}: {reason}",
    cause="Pulsar answered a consumer with an error that does not pass by itself.",
    fix="see to the reason: topics, namespaces or rights",
)
GROUP_IN_USE = StreamConnectError.row(
    "BIC-2687",
    "group {group!r} of {address} is in use by another consumer of {key!r}",
    cause="The position of a group in mode resumable is that of one consumer at a time, and the "
    "messages of one in mode load-balanced are not those of one in mode resumable.",
    fix="end the other consumer, name another group, or share the messages in mode load-balanced",
)
POSITION_UNUSABLE = StreamError.row(
    "BIC-2688",
    "message {id} of stream {key!r} in {address} has a place that no sequence stands for",
    cause="A ledger with more than a million entries, or an entry with more than 4,096 messages.",
    fix="let ledgers be closed earlier (managedLedgerMaxEntriesPerLedger), or send smaller "
    "batches; the next call goes on",
)
DEDUPLICATION_OFF = StreamUnsupportedError.row(
    "BIC-2689",
    "{address} cannot take messages of {key!r} exactly once: {reason}",
    cause="What is sent again after a lost connection is dropped by brokers only where "
    "deduplication is on, and the client does not tell whether it is.",
    fix="switch it on for the namespace (pulsar-admin namespaces set-deduplication --enable) and "
    "check admin_url; or send at-least-once",
)
NOT_TEXT = StreamUnsupportedError.row(
    "BIC-2678",
    "{backend} cannot take key and headers of a message for {key!r}: {reason}",
    cause="Pulsar's keys and properties are texts, and a property has one value.",
    fix="send UTF-8, or base64 for binary data, each name once and with a value; nothing was sent",
)
ADMIN_UNREACHABLE = StreamConnectError.row(
    "BIC-2679",
    "the administration of {address} cannot be asked at {url}: {reason}",
    cause="Partitions and settings of topics are asked for and made over HTTP, beside the client.",
    fix="name its place with the option admin_url=http://host:8080, and see to rights and token",
)
