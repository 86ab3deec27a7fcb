"""Errors of connectors: unknown names or options, bad input, failed output.

Codes 17xx, and 269x of streams, 280x of PostgreSQL, 30xx of lakes, 31xx of HTTP; Kafka's are in its
own room. They name the vertex or the file, so that a user can act without reading a log.
"""

from bicycle_sdk.errors import BicycleError

UNKNOWN_CONNECTOR = BicycleError.row(
    "BIC-1701",
    "vertex {vertex!r}: unknown {direction} connector {word!r}; known are "
    "{known_text}{refusal_text}",
    cause="No extension provides a connector of this name.",
    fix="{hint}",
)
UNKNOWN_STATE_BACKEND = BicycleError.row(
    "BIC-1704",
    "unknown state backend {word!r}; known are {known_text}{refusal_text}",
    cause="No extension provides a state backend of this name.",
    fix=(
        "use a known backend, or install the extension that provides it on the host that starts "
        "the job"
    ),
)
CONNECTOR_OPTION_WRONG = BicycleError.row(
    "BIC-1702",
    "vertex {vertex!r}, connector {connector!r}, property {name!r}: {problem}",
    cause="A property of a source or sink is unknown, missing, of the wrong type or out of bounds.",
    fix="{hint}",
)
CONNECTOR_PAYLOAD_WRONG = BicycleError.row(
    "BIC-1703",
    "vertex {vertex!r}, connector {connector!r}: payload {role!r} must be {expected}, got {found}",
    cause="An object that must be sent with the graph is missing or of the wrong type.",
    fix="pass {expected}; the SDK's own calls set this payload",
)
INPUT_MISSING = BicycleError.row(
    "BIC-1710",
    "vertex {vertex!r}: input {path!r} {problem}; nothing was read",
    cause="The path of a file source does not exist or cannot be read.",
    fix="{hint}",
)
INPUT_CHANGED = BicycleError.row(
    "BIC-1711",
    "input file {path!r} was read up to byte {offset}, but now {problem}; this epoch was not "
    "published",
    cause="A partly read file was removed, replaced or truncated.",
    fix="restore the original file, or read from the start with another checkpoint directory",
)
INPUT_UNREADABLE = BicycleError.row(
    "BIC-1712",
    "input file {path!r} cannot be read: {reason}",
    cause="The operating system refused to open or read a file.",
    fix="check that the file exists and is readable on every host that runs tasks",
)
INPUT_DAMAGED = BicycleError.row(
    "BIC-1713",
    "input file {path!r} is damaged or truncated after decompressed byte {offset}: {reason}",
    cause="A compressed file cannot be decompressed.",
    fix=(
        "replace the file with a complete file (write it under a .tmp name and rename it when "
        "complete)"
    ),
)
NO_PARQUET_FILE = BicycleError.row(
    "BIC-1715",
    "input file {path!r} cannot be read as Parquet: {reason}",
    cause="A file is not a complete Parquet file.",
    fix=(
        "replace the file with a complete file (write it under a .tmp name and rename it when "
        "complete)"
    ),
)
CSV_HEADER_AMBIGUOUS = BicycleError.row(
    "BIC-1716",
    "input file {path!r}: duplicate columns in the header: {name_text}",
    cause="The header of a CSV file contains duplicate names, and records take fields by name.",
    fix="make the column names unique, or read the fields by column index: type=tuple[str, …]",
)
OUTPUT_UNWRITABLE = BicycleError.row(
    "BIC-1720",
    "vertex {vertex!r}: output {path!r} cannot be written: {reason}; nothing was changed",
    cause="The output directory of a file sink cannot be used.",
    fix="choose a directory that this user may create and write",
)
STAGED_FILE_DAMAGED = BicycleError.row(
    "BIC-1721",
    "staged file {path!r} has {found_byte_count} bytes with checksum {found_crc32:08x}, "
    "expected {byte_count} with {crc32:08x}; it was not published",
    cause="A staged file differs from the report of its writer.",
    fix=(
        "restore the file from a copy of the checkpoint directory, or start from an older "
        "savepoint with --from"
    ),
)
OPEN_PART_DAMAGED = BicycleError.row(
    "BIC-1722",
    "open part {path!r} must have at least {byte_count} sealed bytes, got {found_byte_count}",
    cause="The open part of a file sink is missing or too short.",
    fix="restore the file from a copy of the checkpoint directory; published parts are intact",
)
OUTPUT_TAKEN_OVER = BicycleError.row(
    "BIC-1724",
    "vertex {vertex!r}: another run took over the output {path!r}, its owner file {mark!r} is "
    "gone; this run did not publish epoch {epoch}",
    cause="Another run took over the output, so this run may no longer publish.",
    fix="no action needed while the other run continues; otherwise start the job again",
)


class PublishInterruptedError(BicycleError):
    """The job ended while the publication of an epoch waited for another system."""

    code = "BIC-1725"
    message = (
        "vertex {vertex!r}: stopped while epoch {epoch} waited to be published to {target!r}: "
        "{reason}; its output is kept"
    )
    fix = "start the job again when {target!r} responds; it publishes this epoch first"


OUTPUT_HELD = BicycleError.row(
    "BIC-1726",
    "vertex {vertex!r}: job {owner!r} (process {pid} on {host} since {since}, its files in "
    "{folder!r}) already writes the output parts of run {run} in {path!r}; nothing was changed "
    "there",
    cause=(
        "Another job, which may still be running, writes the same output parts. This happens if "
        "two jobs start from one savepoint with the same output."
    ),
    fix=(
        "stop job {owner!r}, or choose another output for this job, and repeat the command; if the "
        "other job no longer exists, remove {mark!r}"
    ),
)
PART_GONE = BicycleError.row(
    "BIC-1727",
    "output file {path!r} is missing, and its content is no longer in the checkpoint directory",
    cause=(
        "A consumer moved or deleted an output file before its publication was recorded, or a file "
        "of the checkpoint directory was deleted."
    ),
    fix=(
        "if a consumer has read the file, create an empty file at {path!r} and start again; "
        "otherwise restore the checkpoint directory from a copy"
    ),
)
PORT_UNAVAILABLE = BicycleError.row(
    "BIC-1730",
    "vertex {vertex!r}: cannot listen on {host}:{port}: {reason}",
    cause="A socket connector cannot listen on its address.",
    fix="stop the program that uses port {port}, or choose another port (0 selects a free port)",
)
JOURNAL_DAMAGED = BicycleError.row(
    "BIC-1740",
    "journal {path!r} of a socket source: {problem}",
    cause="The journal of a socket source lacks bytes that were received but not yet processed.",
    fix="restore the journal from a copy of the checkpoint directory; the job needs it to continue",
)
COLUMN_TYPE_UNKNOWN = BicycleError.row(
    "BIC-1780",
    "vertex {vertex!r}, column {column!r}: {found} is not a column type; known are {known}",
    cause="A column of a sink has a type that tables do not support.",
    fix="declare the field with a known type, or convert it before the sink",
)
COLUMNS_WRONG = BicycleError.row(
    "BIC-1781",
    "vertex {vertex!r}: invalid columns: {problem}",
    cause="The columns, folders or keys of a sink do not match the records.",
    fix="{hint}",
)
TABLE_DIFFERS = BicycleError.row(
    "BIC-1782",
    "vertex {vertex!r}: the columns of table {table!r} differ from the records: {problem}; "
    "nothing was written",
    cause="Rows would be written to a table, or next to files, with different columns.",
    fix="map the records to the existing columns, change the table, or choose another table",
)


STREAMS_UNREACHABLE = BicycleError.row(
    "BIC-2690",
    "vertex {vertex!r}: {address} cannot be used after {waited_ms} ms: {reason}",
    cause="The server does not respond, rejects the login, or a file cannot be opened.",
    fix=(
        "check that the server or file exists and that the address is correct, then start again; "
        "sealed output is kept"
    ),
)
STREAMS_LOST = BicycleError.row(
    "BIC-2691",
    "{address}: expected {expected:count message} of {shard!r} from {start} to {end}, got {found}",
    cause="Messages that an epoch must read were removed: the stream was trimmed or emptied.",
    fix="set on_data_loss=continue to continue without these messages",
)
STREAMS_REPLACED = BicycleError.row(
    "BIC-2696",
    "{address}: {shard!r} {problem}, but the next message to read is {next}; this epoch was "
    "not published",
    cause="A stream was deleted or recreated before all its messages were read.",
    fix=(
        "set on_data_loss=continue to read the current stream from its start, or start under a new "
        "job name"
    ),
)
STREAM_KEY_WRONG = BicycleError.row(
    "BIC-2697",
    "vertex {vertex!r}: the key {key!r} of {address} is a {found}, not a stream; nothing was read",
    cause="A key of Redis exists with another type than stream.",
    fix="choose a stream in the address, or delete the key",
)
STREAMS_REFUSED = BicycleError.row(
    "BIC-2692",
    "vertex {vertex!r}: {address} rejected epoch {epoch}: {reason}; its output is kept",
    cause="The server or the file rejects the messages of a sealed epoch.",
    fix="correct the reported cause, and start the job again",
)
STREAMS_AHEAD = BicycleError.row(
    "BIC-2693",
    "vertex {vertex!r}: the job starts with epoch {epoch}, but {address} already has its "
    "output up to epoch {published}; messages would be duplicated",
    cause="The restored epoch or savepoint is older than the published output.",
    fix=(
        "start from the newest epoch or savepoint, or set on_rewind=publish_again to accept "
        "duplicate messages"
    ),
)
STREAM_ADDRESS_WRONG = BicycleError.row(
    "BIC-2694",
    "vertex {vertex!r}: {address!r} is not a valid address here: {problem}",
    cause="An address has another backend, or too few or too many streams.",
    fix="write redis://host:6379/orders, or file://./events.ss/orders",
)
STREAM_FILE_CHANGED = BicycleError.row(
    "BIC-2695",
    "vertex {vertex!r}: {path} has messages of this job after epoch {written} that do not "
    "belong to epoch {epoch}; nothing was changed",
    cause="The job ended while it wrote an epoch, and then another program appended to the file.",
    fix="move the file away or repair it, and write the file from one program only",
)


POSTGRES_UNREACHABLE = BicycleError.row(
    "BIC-2800",
    "vertex {vertex!r}: PostgreSQL at {server} cannot be used after {waited_ms} ms: {reason}",
    cause="The server does not respond, or rejects the login.",
    fix=(
        "check that the server runs and that url, user and password are correct, then start again; "
        "sealed output is kept"
    ),
)
POSTGRES_TABLE_UNSUITABLE = BicycleError.row(
    "BIC-2801",
    "vertex {vertex!r}: table {table!r} cannot be used: {problem}; nothing was written",
    cause="The table is missing, or its columns, keys or permissions do not match the records.",
    fix="{hint}",
)
POSTGRES_SOURCE_UNSUITABLE = BicycleError.row(
    "BIC-2804",
    "vertex {vertex!r}: table {table!r} cannot be read: {problem}; nothing was read",
    cause="The table is missing, or has no column that identifies new rows.",
    fix="{hint}",
)
POSTGRES_REFUSED = BicycleError.row(
    "BIC-2802",
    "vertex {vertex!r}: table {table!r} rejected epoch {epoch}: {reason}; no row of it was "
    "written, and its output is kept",
    cause="A constraint, a trigger or a change of the table rejects rows of a sealed epoch.",
    fix=(
        "change the table to accept the rows, or set on_error(dead_letter()) or on_error(skip()) "
        "for the sink, and start the job again"
    ),
)
POSTGRES_HISTORY_AHEAD = BicycleError.row(
    "BIC-2803",
    "vertex {vertex!r}: the job starts with epoch {epoch}, but table {table!r} already has its "
    "output up to epoch {published}; rows would be duplicated",
    cause="The restored epoch or savepoint is older than the output in the table.",
    fix=(
        "start from the newest epoch or savepoint, or set on_rewind=publish_again, which is "
        "correct for upserts"
    ),
)


LAKE_UNREACHABLE = BicycleError.row(
    "BIC-3000",
    "vertex {vertex!r}: table {table!r} cannot be used after {waited_ms} ms: {reason}",
    cause="The storage or the catalog of a table does not respond, or rejects a request.",
    fix="check that the location exists and is writable, then start again; sealed output is kept",
)
LAKE_HISTORY_AHEAD = BicycleError.row(
    "BIC-3001",
    "vertex {vertex!r}: the job starts with epoch {epoch}, but table {table!r} already has its "
    "output up to epoch {published}; rows would be duplicated",
    cause="The restored epoch or savepoint is older than the output in the table.",
    fix=(
        "start from the newest epoch or savepoint, or set on_rewind=publish_again, which is "
        "correct for upserts"
    ),
)
LAKE_REFUSED = BicycleError.row(
    "BIC-3002",
    "vertex {vertex!r}: table {table!r} rejected epoch {epoch}: {reason}; no row of it was "
    "written, and its output is kept",
    cause="A table rejects rows of a sealed epoch: a constraint failed, or columns were changed.",
    fix="change the table to accept the rows, and start the job again",
)


LAKE_TABLE_REPLACED = BicycleError.row(
    "BIC-3003",
    "vertex {vertex!r}: table {table!r} {problem}; epoch {epoch} was not written, and its output "
    "is kept",
    cause=(
        "A table was dropped, created again or restored to an earlier version while the job ran."
    ),
    fix=(
        "restore the table; or start the job again to continue with the table that exists then, "
        "without the earlier rows"
    ),
)


HTTP_UNREACHABLE = BicycleError.row(
    "BIC-3100",
    "vertex {vertex!r}: {url} does not accept requests after {waited_ms} ms: {reason}",
    cause="The server does not respond, or reports that it cannot accept requests now.",
    fix=(
        "check that the server runs and accepts requests there, then start again; sealed output is "
        "kept"
    ),
)
HTTP_REFUSED = BicycleError.row(
    "BIC-3101",
    "vertex {vertex!r}: {url} rejected a request of epoch {epoch} with {status}: {reason}; its "
    "output is kept",
    cause=(
        "The server rejects requests permanently: the address, the permissions or a record is "
        "wrong, and ``on_refused`` is ``fail``."
    ),
    fix="correct url and headers, or set on_refused=keep for records, and start again",
)
