"""Errors of the development room: unavailable brokers and clusters."""

from bicycle_sdk.errors import BicycleError

BROKER_JAVA_MISSING = BicycleError.row(
    "BIC-2201",
    "Java for the Kafka broker must be version {needed} or newer, got {found}",
    cause="Java is missing or too old for the Kafka broker.",
    fix="install Java {needed} or newer, or set JAVA_HOME to such a Java",
)
JARS_NOT_FETCHED = BicycleError.row(
    "BIC-2202",
    "the {jar_count} jars of Kafka {version} could not be downloaded: {cause_text}",
    cause=(
        "The jars of the broker could not be downloaded; ``causes`` lists the reason for each "
        "method."
    ),
    fix=(
        "configure access to a Maven repository (a proxy or a mirror in the settings of Maven or "
        "Ivy) and run the command again; {folder} was not changed"
    ),
)
JAR_CHECKSUM_WRONG = BicycleError.row(
    "BIC-2203",
    "SHA-256 of {coordinates} must be {expected}, got {found}; the file was removed",
    cause="A downloaded jar differs from the jar with which Bicycle was tested.",
    fix=(
        "remove the damaged copy from the local Maven repository, or contact the operator of the "
        "mirror; then run the command again"
    ),
)
PORT_TAKEN = BicycleError.row(
    "BIC-2204",
    "port {port} of {host} is used by another program; no broker was started",
    cause="Another program uses the port of the broker.",
    fix="choose another port, or 0 for a free port, or stop that program",
)
BROKER_NOT_STARTED = BicycleError.row(
    "BIC-2205",
    "Kafka broker in {folder} does not respond: {reason}\n  {log}:\n{tail_text}",
    cause="The broker ended or did not respond in time; ``tail`` is the end of its log.",
    fix="see {log}; if the data in {folder} is no longer needed, choose another directory",
)
BROKER_MISSING = BicycleError.row(
    "BIC-2206",
    "no Kafka broker runs in {folder}",
    cause="No broker runs in this directory.",
    fix="start a broker with `bicycle dev kafka start --dir {folder}`, or choose its directory",
)
BROKER_CONFLICT = BicycleError.row(
    "BIC-2207",
    "the Kafka broker in {folder} has {name} {found}, but {asked} was requested",
    cause="The directory belongs to a broker with other settings than requested.",
    fix="stop the broker and start it with the new setting, or choose another directory",
)
KEYSTORE_NOT_MADE = BicycleError.row(
    "BIC-2208",
    "keystore in {folder} could not be created: {reason}",
    cause="The keytool of Java could not create the key of a TLS listener.",
    fix="use a Java with keytool, and a writable directory",
)
TOPIC_REFUSED = BicycleError.row(
    "BIC-2209",
    "topic {topic!r}: {reason}",
    cause="The broker rejected an operation on a topic.",
    fix=(
        "run `bicycle dev kafka topics` to list topics; names have letters, digits, '.', '_', '-'; "
        "settings are the topic settings of Kafka"
    ),
)
BROKER_SILENT = BicycleError.row(
    "BIC-2210",
    "Kafka broker does not respond: {reason}",
    cause="A broker runs but does not respond: it is suspended, or still starting.",
    fix=(
        "see its log, which `bicycle dev kafka status` names, or stop the broker and start it again"
    ),
)
CLUSTER_NOT_STARTED = BicycleError.row(
    "BIC-2220",
    "Spark cluster in {folder} is not ready: {reason}\n  {log}:\n{tail_text}",
    cause="A Spark cluster of this machine is not ready; ``tail`` is the end of the relevant log.",
    fix="see {log}; `bicycle dev cluster stop` ends its remaining processes",
)


class ClusterMissingError(BicycleError):
    """No Spark cluster runs in this directory."""

    code = "BIC-2221"
    message = "no Spark cluster runs in {folder}"
    fix = "start a cluster with `bicycle dev cluster start --dir {folder}`, or choose its directory"


CLUSTER_CONFLICT = BicycleError.row(
    "BIC-2222",
    "the Spark cluster in {folder} has {name} {found}, but {asked} was requested",
    cause="The directory belongs to a cluster with other settings than requested.",
    fix="stop the cluster and start it with the new setting, or choose another directory",
)
CLUSTER_HOST_UNUSABLE = BicycleError.row(
    "BIC-2223",
    "{host} cannot be a worker host: {reason}",
    cause="An address cannot be used as a worker host.",
    fix=(
        "run `bicycle dev cluster status`; on a machine with only one loopback address, add more "
        "(macOS: sudo ifconfig lo0 alias {host})"
    ),
)
