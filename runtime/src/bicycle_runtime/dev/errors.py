"""Errors of the room for development: a broker or a cluster of this machine that cannot be had."""

from __future__ import annotations

from bicycle_sdk.errors import BicycleError

__all__ = [
    "BrokerConflictError",
    "BrokerJavaError",
    "BrokerMissingError",
    "BrokerSilentError",
    "BrokerStartError",
    "ClusterConflictError",
    "ClusterHostError",
    "ClusterMissingError",
    "ClusterStartError",
    "JarChecksumError",
    "JarFetchError",
    "KeystoreError",
    "PortTakenError",
    "TopicError",
]


class BrokerJavaError(BicycleError):
    """Java is missing or too old for Kafka's broker."""

    code = "BIC-2201"
    message = "the Kafka broker needs Java {needed} or newer; found {found}"
    fix = "install Java {needed} or newer, or set JAVA_HOME to one"


class JarFetchError(BicycleError):
    """The jars of the broker could not be fetched; ``causes`` says why, for each way tried."""

    code = "BIC-2202"
    message = "the {jar_count} jars of Kafka {version} could not be fetched: {cause_text}"
    fix = (
        "give this machine a way to a Maven repository (a proxy or mirror belongs in the settings "
        "of Maven or Ivy) and run the command again; {folder} was not changed"
    )


class JarChecksumError(BicycleError):
    """A fetched jar is not the one that Bicycle was tested with."""

    code = "BIC-2203"
    message = "{coordinates} has the SHA-256 {found}, expected {expected}; it was thrown away"
    fix = (
        "remove the damaged copy from the local Maven repository, or ask who runs the mirror that "
        "it came from; then run the command again"
    )


class PortTakenError(BicycleError):
    """Another program listens on the port that the broker is to have."""

    code = "BIC-2204"
    message = "port {port} of {host} is taken by another program; no broker was started"
    fix = "give another port, or 0 for any free one; or end that program"


class BrokerStartError(BicycleError):
    """The broker ended or did not answer in time; ``tail`` is the end of its log."""

    code = "BIC-2205"
    message = "the Kafka broker in {folder} does not answer: {reason}\n  {log}:\n{tail_text}"
    fix = "see {log}; when the data in {folder} is of no use any more, give another directory"


class BrokerMissingError(BicycleError):
    """No broker runs in this directory."""

    code = "BIC-2206"
    message = "no Kafka broker runs in {folder}"
    fix = "start one with `bicycle dev kafka start --dir {folder}`, or name its directory"


class BrokerConflictError(BicycleError):
    """The directory belongs to a broker with other settings than those asked for."""

    code = "BIC-2207"
    message = "the Kafka broker in {folder} has {name} {found}; asked for {asked}"
    fix = "stop it and start it with that setting, or give another directory"


class KeystoreError(BicycleError):
    """Java's keytool could not make the key of a TLS listener."""

    code = "BIC-2208"
    message = "no keystore could be made in {folder}: {reason}"
    fix = "use a Java that brings its keytool, and a directory that can be written"


class TopicError(BicycleError):
    """The broker refused something about a topic."""

    code = "BIC-2209"
    message = "topic {topic!r}: {reason}"
    fix = (
        "see `bicycle dev kafka topics` for what exists; names have letters, digits, '.', '_', "
        "'-'; settings are those that Kafka knows for topics"
    )


class BrokerSilentError(BicycleError):
    """A broker runs and gives no answer: it is halted, or busy with its start."""

    code = "BIC-2210"
    message = "the Kafka broker gives no answer: {reason}"
    fix = "see its log, which `bicycle dev kafka status` names; or stop it and start it again"


class ClusterStartError(BicycleError):
    """A Spark cluster of this machine is not ready; ``tail`` is the end of the log at fault."""

    code = "BIC-2220"
    message = "the Spark cluster in {folder} is not ready: {reason}\n  {log}:\n{tail_text}"
    fix = "see {log}; `bicycle dev cluster stop` ends what is left of it"


class ClusterMissingError(BicycleError):
    """No Spark cluster runs in this directory."""

    code = "BIC-2221"
    message = "no Spark cluster runs in {folder}"
    fix = "start one with `bicycle dev cluster start --dir {folder}`, or name its directory"


class ClusterConflictError(BicycleError):
    """The directory belongs to a cluster of another size than the one asked for."""

    code = "BIC-2222"
    message = "the Spark cluster in {folder} has {name} {found}; asked for {asked}"
    fix = "stop it and start it with that setting, or give another directory"


class ClusterHostError(BicycleError):
    """An address cannot be a worker host."""

    code = "BIC-2223"
    message = "{host} is no host for a worker: {reason}"
    fix = (
        "see `bicycle dev cluster status`; where a machine has only one loopback address, add more "
        "(macOS: sudo ifconfig lo0 alias {host})"
    )
