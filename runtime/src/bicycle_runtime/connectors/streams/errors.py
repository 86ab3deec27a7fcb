"""Errors of streams in jobs. Codes 269x."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

STREAMS_UNREACHABLE = BicycleError.row(
    "BIC-2690",
    "vertex {vertex!r}: {address} cannot be used after {waited_ms} ms: {reason}",
    cause="No server answers, it refuses the login, or a file cannot be opened.",
    fix="see that it is there and that the address is right, then start again: output that is "
    "sealed is kept",
)
STREAMS_LOST = BicycleError.row(
    "BIC-2691",
    "{address}: of {expected} messages of {shard!r} from {start} to {end}, {found} are there",
    cause="Messages that an epoch was to read were removed: the stream was trimmed or emptied.",
    fix="set on_data_loss=continue to go on without them",
)
STREAMS_REFUSED = BicycleError.row(
    "BIC-2692",
    "vertex {vertex!r}: {address} refused epoch {epoch}: {reason}; its output is kept",
    cause="The server or the file does not take the messages of a sealed epoch.",
    fix="see to the reason, and start the job again",
)
STREAMS_AHEAD = BicycleError.row(
    "BIC-2693",
    "vertex {vertex!r}: the job begins with epoch {epoch}, and {address} has its output up to "
    "epoch {published}; messages would come again",
    cause="An older epoch or savepoint was restored than was written.",
    fix="restore the newest epoch; or set on_rewind=publish_again to have messages twice",
)
STREAM_ADDRESS_WRONG = BicycleError.row(
    "BIC-2694",
    "vertex {vertex!r}: {address!r} cannot be an address here: {problem}",
    cause="An address has another backend, or names too few or too many streams.",
    fix="write redis://host:6379/orders, or file://./events.ss/orders",
)
STREAM_FILE_CHANGED = BicycleError.row(
    "BIC-2695",
    "vertex {vertex!r}: {path} has messages behind epoch {written} of this job that are not "
    "those of epoch {epoch}; nothing was changed",
    cause="The job died while it wrote an epoch, and another program appended to the file then.",
    fix="move the file away or repair it, and let only one program write it",
)
