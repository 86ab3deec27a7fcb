"""Errors of the room for development: a broker or a cluster of this machine that cannot be had."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

BROKER_JAVA_MISSING = BicycleError.row(
    "BIC-2201",
    "the Kafka broker needs Java {needed} or newer; found {found}",
    cause="Java is missing or too old for Kafka's broker.",
    fix="install Java {needed} or newer, or set JAVA_HOME to one",
)
JARS_NOT_FETCHED = BicycleError.row(
    "BIC-2202",
    "the {jar_count} jars of Kafka {version} could not be fetched: {cause_text}",
    cause="The jars of the broker could not be fetched; ``causes`` says why, for each way tried.",
    fix="give this machine a way to a Maven repository (a proxy or mirror belongs in the settings "
    "of Maven or Ivy) and run the command again; {folder} was not changed",
)
JAR_CHECKSUM_WRONG = BicycleError.row(
    "BIC-2203",
    "{coordinates} has the SHA-256 {found}, expected {expected}; it was thrown away",
    cause="A fetched jar is not the one that Bicycle was tested with.",
    fix="remove the damaged copy from the local Maven repository, or ask who runs the mirror that "
    "it came from; then run the command again",
)
PORT_TAKEN = BicycleError.row(
    "BIC-2204",
    "port {port} of {host} is taken by another program; no broker was started",
    cause="Another program listens on the port that the broker is to have.",
    fix="give another port, or 0 for any free one; or end that program",
)
BROKER_NOT_STARTED = BicycleError.row(
    "BIC-2205",
    "the Kafka broker in {folder} does not answer: {reason}\n  {log}:\n{tail_text}",
    cause="The broker ended or did not answer in time; ``tail`` is the end of its log.",
    fix="see {log}; when the data in {folder} is of no use any more, give another directory",
)
BROKER_MISSING = BicycleError.row(
    "BIC-2206",
    "no Kafka broker runs in {folder}",
    cause="No broker runs in this directory.",
    fix="start one with `bicycle dev kafka start --dir {folder}`, or name its directory",
)
BROKER_CONFLICT = BicycleError.row(
    "BIC-2207",
    "the Kafka broker in {folder} has {name} {found}; asked for {asked}",
    cause="The directory belongs to a broker with other settings than those asked for.",
    fix="stop it and start it with that setting, or give another directory",
)
KEYSTORE_NOT_MADE = BicycleError.row(
    "BIC-2208",
    "no keystore could be made in {folder}: {reason}",
    cause="Java's keytool could not make the key of a TLS listener.",
    fix="use a Java that brings its keytool, and a directory that can be written",
)
TOPIC_REFUSED = BicycleError.row(
    "BIC-2209",
    "topic {topic!r}: {reason}",
    cause="The broker refused something about a topic.",
    fix="see `bicycle dev kafka topics` for what exists; names have letters, digits, '.', '_', "
    "'-'; settings are those that Kafka knows for topics",
)
BROKER_SILENT = BicycleError.row(
    "BIC-2210",
    "the Kafka broker gives no answer: {reason}",
    cause="A broker runs and gives no answer: it is halted, or busy with its start.",
    fix="see its log, which `bicycle dev kafka status` names; or stop it and start it again",
)
CLUSTER_NOT_STARTED = BicycleError.row(
    "BIC-2220",
    "the Spark cluster in {folder} is not ready: {reason}\n  {log}:\n{tail_text}",
    cause="A Spark cluster of this machine is not ready; ``tail`` is the end of the log at fault.",
    fix="see {log}; `bicycle dev cluster stop` ends what is left of it",
)


class ClusterMissingError(BicycleError):
    """No Spark cluster runs in this directory."""

    code = "BIC-2221"
    message = "no Spark cluster runs in {folder}"
    fix = "start one with `bicycle dev cluster start --dir {folder}`, or name its directory"


CLUSTER_CONFLICT = BicycleError.row(
    "BIC-2222",
    "the Spark cluster in {folder} has {name} {found}; asked for {asked}",
    cause="The directory belongs to a cluster of another size than the one asked for.",
    fix="stop it and start it with that setting, or give another directory",
)
CLUSTER_HOST_UNUSABLE = BicycleError.row(
    "BIC-2223",
    "{host} is no host for a worker: {reason}",
    cause="An address cannot be a worker host.",
    fix="see `bicycle dev cluster status`; where a machine has only one loopback address, add more "
    "(macOS: sudo ifconfig lo0 alias {host})",
)
