"""Sequences of Pulsar messages: ledger, entry and batch index in one number.

Ledgers of a topic have growing numbers, entries of a ledger follow each other from 0, and so do the
messages of an entry. So sequences grow, too, with gaps where an entry holds fewer messages than it
might, and 63 bits are enough: 31 for the ledger, 20 for the entry, 12 for the message.
"""

from __future__ import annotations

from typing import Any

import pulsar

from bicycle_streams.pulsar.errors import POSITION_UNUSABLE

_ENTRY_BITS, _BATCH_BITS = 20, 12
_LEDGER_BITS = 31


def sequence_of(message_id: Any, address: str, key: str) -> int:
    """Return the sequence of a message of a stream.

    Raises:
        POSITION_UNUSABLE: its ledger, entry or batch is too large for a sequence.
    """
    ledger, entry = message_id.ledger_id(), message_id.entry_id()
    batch = max(0, message_id.batch_index())
    if ledger >> _LEDGER_BITS or entry >> _ENTRY_BITS or batch >> _BATCH_BITS:
        raise POSITION_UNUSABLE(address=address, id=str(message_id), key=key)
    return int((ledger << _ENTRY_BITS | entry) << _BATCH_BITS | batch)


def id_of(sequence: int) -> Any:
    """Return the message id of the entry that contains a sequence."""
    entry = sequence >> _BATCH_BITS
    return pulsar.MessageId(-1, entry >> _ENTRY_BITS, entry & (1 << _ENTRY_BITS) - 1, -1)._msg_id


def entry_before(sequence: int) -> Any:
    """Return the message id of the entry before the entry of a sequence."""
    entry = sequence >> _BATCH_BITS
    return pulsar.MessageId(-1, entry >> _ENTRY_BITS, (entry & (1 << _ENTRY_BITS) - 1) - 1, -1)
