"""Errors of connectors: unknown words and options, unreadable input, unwritable output.

Codes 17xx, and 269x of streams, 280x of PostgreSQL, 30xx of lakes, 31xx of HTTP; those of Kafka are
in its own room. They name the vertex or the file, so that a user can act without reading a log.
"""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

UNKNOWN_CONNECTOR = BicycleError.row(
    "BIC-1701",
    "vertex {vertex!r}: there is no {direction} connector {word!r}; "
    "known are {known_text}{refusal_text}",
    cause="No extension offers a connector of this name.",
    fix="{hint}",
)
UNKNOWN_STATE_BACKEND = BicycleError.row(
    "BIC-1704",
    "there is no state backend {word!r}; known are {known_text}{refusal_text}",
    cause="No extension offers a state backend of this name.",
    fix="write one of them, or install the extension that offers it where the job starts",
)
CONNECTOR_OPTION_WRONG = BicycleError.row(
    "BIC-1702",
    "vertex {vertex!r}, connector {connector!r}, property {name!r}: {problem}",
    cause="A property of a source or sink is unknown, missing, ill-typed or out of bounds.",
    fix="{hint}",
)
CONNECTOR_PAYLOAD_WRONG = BicycleError.row(
    "BIC-1703",
    "vertex {vertex!r}, connector {connector!r}: payload {role!r} is {found}; "
    "{expected} is expected",
    cause="An object that must travel beside the graph is absent or of the wrong type.",
    fix="give {expected}; calls of the SDK set this payload",
)
INPUT_MISSING = BicycleError.row(
    "BIC-1710",
    "vertex {vertex!r}: input {path!r} {problem}; nothing was read",
    cause="The path of a file source leads to nothing.",
    fix="{hint}",
)
INPUT_CHANGED = BicycleError.row(
    "BIC-1711",
    "input file {path!r} was read up to byte {offset}, but now {problem}; "
    "nothing of this epoch was published",
    cause="A file that was partly read was removed, replaced or cut while it was still needed.",
    fix="put the original file back, or read from the start with another checkpoint directory",
)
INPUT_UNREADABLE = BicycleError.row(
    "BIC-1712",
    "input file {path!r} cannot be read: {reason}",
    cause="The operating system refused to open or read a file.",
    fix="check that the file exists and is readable on every host that runs tasks",
)
INPUT_DAMAGED = BicycleError.row(
    "BIC-1713",
    "input file {path!r} is damaged or cut behind decompressed byte {offset}: {reason}",
    cause="A compressed file cannot be decompressed.",
    fix="replace the file by a whole one (write it under a .tmp name and rename it when complete)",
)
NO_PARQUET_FILE = BicycleError.row(
    "BIC-1715",
    "input file {path!r} cannot be read as Parquet: {reason}",
    cause="A file is no Parquet file, or not a whole one.",
    fix="replace the file by a whole one (write it under a .tmp name and rename it when complete)",
)
CSV_HEADER_AMBIGUOUS = BicycleError.row(
    "BIC-1716",
    "input file {path!r}: its header names more than one column {name_text}",
    cause="The header of a CSV file gives two columns one name, and records take fields by name.",
    fix="give each column a name of its own, or take the fields by place: type=tuple[str, …]",
)
OUTPUT_UNWRITABLE = BicycleError.row(
    "BIC-1720",
    "vertex {vertex!r}: output {path!r} cannot be written: {reason}; nothing was changed",
    cause="The output directory of a file sink cannot be used.",
    fix="give a directory that may be created and written by this user",
)
STAGED_FILE_DAMAGED = BicycleError.row(
    "BIC-1721",
    "staged file {path!r} has {found_byte_count} bytes with checksum {found_crc32:08x}, "
    "sealed were {byte_count} with {crc32:08x}; it was not published",
    cause="Staged output is not what its writer reported.",
    fix="restore the file from a copy of the checkpoint directory, or restart from an older epoch",
)
OPEN_PART_DAMAGED = BicycleError.row(
    "BIC-1722",
    "open part {path!r} has {found_byte_count} bytes, at least {byte_count} were sealed",
    cause="The part under construction of a file sink is gone or too short.",
    fix="restore the file from a copy of the checkpoint directory; published parts are whole",
)
OUTPUT_TAKEN_OVER = BicycleError.row(
    "BIC-1724",
    "vertex {vertex!r}: another run has taken over the output {path!r}, our mark {mark!r} is "
    "not there any more; epoch {epoch} was not published by this one",
    cause="Another run has taken over the output, so this one may not publish any more.",
    fix="let this process end: the other run goes on; if there is none, start the job again",
)


class PublishInterruptedError(BicycleError):
    """The job had to end while the publication of an epoch waited for another system."""

    code = "BIC-1725"
    message = (
        "vertex {vertex!r}: stopped while epoch {epoch} waited to be published to {target!r}: "
        "{reason}; its output is kept"
    )
    fix = "start the job again when {target!r} answers: it publishes this epoch first"


OUTPUT_HELD = BicycleError.row(
    "BIC-1726",
    "vertex {vertex!r}: job {owner!r} (process {pid} on {host} since {since}, its files in "
    "{place!r}) goes on with the parts of run {run} in the output {path!r}; "
    "nothing was changed there",
    cause="A job that may still run goes on with the very same parts, as after one savepoint.",
    fix="end job {owner!r}, or give this one another output, and repeat the command; "
    "if that job is gone for good, remove {mark!r}",
)
PORT_UNAVAILABLE = BicycleError.row(
    "BIC-1730",
    "vertex {vertex!r}: cannot listen on {host}:{port}: {reason}",
    cause="A socket connector cannot listen on its address.",
    fix="stop the program that uses port {port}, or choose another port (0 takes any free one)",
)
JOURNAL_DAMAGED = BicycleError.row(
    "BIC-1740",
    "journal {path!r} of a socket source: {problem}",
    cause="The journal of a socket source lacks bytes that were received and not yet processed.",
    fix="restore the journal from a copy of the checkpoint directory; the job needs it",
)
COLUMN_TYPE_UNKNOWN = BicycleError.row(
    "BIC-1780",
    "vertex {vertex!r}, column {column!r}: {found} is no type of a column; known are {known}",
    cause="A column of a sink is declared with a type, or made of a field with one, that no table "
    "can hold.",
    fix="give the field one of these types, or map it to one before the sink",
)
COLUMNS_WRONG = BicycleError.row(
    "BIC-1781",
    "vertex {vertex!r}: the columns of its table cannot be as asked for: {problem}",
    cause="The columns, folders or keys that a sink is given do not fit the records.",
    fix="{hint}",
)
TABLE_DIFFERS = BicycleError.row(
    "BIC-1782",
    "vertex {vertex!r}: the table {table!r} has other columns than the records: {problem}; "
    "nothing was written",
    cause="Rows would be written to a table, or beside files, whose columns do not fit theirs.",
    fix="map the records to the columns that are there, change the table, or name another one",
)


STREAMS_UNREACHABLE = BicycleError.row(
    "BIC-2690",
    "vertex {vertex!r}: {address} cannot be used after {waited_ms} ms: {reason}",
    cause="No server answers, it refuses the login, or a file cannot be opened.",
    fix="see that it is there and that the address is right, then start again: output that is "
    "sealed is kept",
)
STREAMS_LOST = BicycleError.row(
    "BIC-2691",
    "{address}: of {expected:count message} of {shard!r} from {start} to {end}, {found} are there",
    cause="Messages that an epoch was to read were removed: the stream was trimmed or emptied.",
    fix="set on_data_loss=continue to go on without them",
)
STREAMS_REPLACED = BicycleError.row(
    "BIC-2696",
    "{address}: {shard!r} {problem}, and {next} is to be read next; nothing of this epoch was "
    "published",
    cause="A stream was deleted, or made again, before all its messages were read.",
    fix="set on_data_loss=continue to read what is there now from its beginning, or start under a "
    "new job name",
)
STREAM_KEY_WRONG = BicycleError.row(
    "BIC-2697",
    "vertex {vertex!r}: the key {key!r} of {address} is a {found}, not a stream; nothing was read",
    cause="A stream of Redis is named like a key of another type.",
    fix="name a stream in the address, or delete the key",
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


POSTGRES_UNREACHABLE = BicycleError.row(
    "BIC-2800",
    "vertex {vertex!r}: PostgreSQL at {server} cannot be used after {waited_ms} ms: {reason}",
    cause="No server answers, or it refuses the login.",
    fix="see that the server runs and that url, user and password are right, then start again: "
    "output that is sealed is kept",
)
POSTGRES_TABLE_UNSUITABLE = BicycleError.row(
    "BIC-2801",
    "vertex {vertex!r}: table {table!r} cannot be used: {problem}; nothing was written",
    cause="The table is missing, or its columns, keys or rights do not fit the records.",
    fix="{hint}",
)
POSTGRES_SOURCE_UNSUITABLE = BicycleError.row(
    "BIC-2804",
    "vertex {vertex!r}: table {table!r} cannot be read: {problem}; nothing was read",
    cause="The table is missing, or it has no column by which new rows can be told from old ones.",
    fix="{hint}",
)
POSTGRES_REFUSED = BicycleError.row(
    "BIC-2802",
    "vertex {vertex!r}: table {table!r} refused epoch {epoch}: {reason}; nothing of it was "
    "written, and its output is kept",
    cause="A constraint, a trigger or a change of the table refuses rows of a sealed epoch.",
    fix="change the table so that it takes the rows, or set on_error(dead_letter()) or "
    "on_error(skip()) for the sink, and start the job again",
)
POSTGRES_HISTORY_AHEAD = BicycleError.row(
    "BIC-2803",
    "vertex {vertex!r}: the job begins with epoch {epoch}, and table {table!r} has its output up "
    "to epoch {published}; rows would come again",
    cause="An older epoch or savepoint was restored than was written to the table.",
    fix="restore the newest epoch; or set on_rewind=publish_again, which is right for upserts",
)


LAKE_UNREACHABLE = BicycleError.row(
    "BIC-3000",
    "vertex {vertex!r}: table {table!r} cannot be used after {waited_ms} ms: {reason}",
    cause="The storage or the catalogue of a table does not answer, or refuses what was asked.",
    fix="see that the place is there and may be written, then start again: output that is sealed "
    "is kept",
)
LAKE_HISTORY_AHEAD = BicycleError.row(
    "BIC-3001",
    "vertex {vertex!r}: the job begins with epoch {epoch}, and table {table!r} has its output up "
    "to epoch {published}; rows would come again",
    cause="An older epoch or savepoint was restored than was written to the table.",
    fix="restore the newest epoch; or set on_rewind=publish_again, which is right for upserts",
)
LAKE_REFUSED = BicycleError.row(
    "BIC-3002",
    "vertex {vertex!r}: table {table!r} refused epoch {epoch}: {reason}; nothing of it was "
    "written, and its output is kept",
    cause="A table refuses rows of a sealed epoch: a constraint, or columns that were changed.",
    fix="change the table so that it takes the rows, and start the job again",
)


HTTP_UNREACHABLE = BicycleError.row(
    "BIC-3100",
    "vertex {vertex!r}: {url} does not take requests after {waited_ms} ms: {reason}",
    cause="No server answers, or it says that it cannot take requests now.",
    fix="see that the server runs and takes requests there, then start again: output that is "
    "sealed is kept",
)
HTTP_REFUSED = BicycleError.row(
    "BIC-3101",
    "vertex {vertex!r}: {url} refused a request of epoch {epoch} with {status}: {reason}; its "
    "output is kept",
    cause="The server refuses requests for good: the address or the rights are wrong, or a record "
    "is, and on_refused is fail.",
    fix="give the right url and headers, or set on_refused=keep for records, and start again",
)
