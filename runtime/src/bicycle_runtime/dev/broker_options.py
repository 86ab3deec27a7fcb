"""Options of a broker of this room, and the files that pass them to Kafka.

One node is broker and controller (KRaft), on the loopback only. The settings that differ from
Kafka's own are those without which one node cannot hold its internal topics, and those that make a
small broker quick. This module writes no file.
"""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bicycle_runtime.base.java import escaped_property
from bicycle_runtime.dev.errors import KEYSTORE_NOT_MADE
from bicycle_runtime.dev.java_programs import require_keytool
from bicycle_sdk.errors import ConfigError
from bicycle_sdk.options import check, option

HOST = "127.0.0.1"
_SCRAM = "SCRAM-SHA-512"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
# The room itself decides these: a broker with others would not be found, stopped or reached.
_OWN = frozenset(
    {
        "controller.listener.names",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
        "node.id",
        "process.roles",
    }
)
_ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_SMALL = {
    "auto.create.topics.enable": "false",
    # After a crash the broker may register again only when its last session is over.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Messages with times in the past are older than Kafka's seven days at once.
    "log.retention.hours": "-1",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """A listener with TLS and SASL/SCRAM (SHA-512) for registered users only.

    Args:
        keystore: The key of the listener.
        users: User name to password. The first one is the broker's own. All may do everything,
            unless the broker's settings (``extra``) name an authorizer. Users are made with the
            data; they cannot be added later. The passwords are for tests: the process list shows
            them while data is prepared.
    """

    keystore: Keystore
    users: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.users:
            raise ConfigError(problem="the broker's security has no user", hint="name one")

    def user(self, name: str | None = None) -> tuple[str, str]:
        """Return name and password of a user, the first one without a name."""
        chosen = next(iter(self.users)) if name is None else name
        return chosen, self.users[chosen]

    def scram_arguments(self) -> list[str]:
        """Return the arguments that create the users when the data is formatted."""
        return [
            word
            for name, password in self.users.items()
            for word in ("--add-scram", f"{_SCRAM}=[name={name},password={password}]")
        ]

    def client_settings(self, name: str | None = None) -> dict[str, str]:
        """Return the properties (of librdkafka) with which a user gets in."""
        user, password = self.user(name)
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _SCRAM,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.keystore.ca_path),
        }

    def server_properties(self) -> dict[str, str]:
        """Return the broker's side; it is a client of itself, so it logs in as well."""
        user, password = self.user()
        return {
            "sasl.enabled.mechanisms": _SCRAM,
            "sasl.mechanism.inter.broker.protocol": _SCRAM,
            f"listener.name.client.{_SCRAM.lower()}.sasl.jaas.config": (
                f'{_LOGIN} required username="{user}" password="{password}";'
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.keystore.path),
            "ssl.keystore.password": self.keystore.password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.keystore.ca_path),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """One broker of this machine, for development and tests."""

    folder: Path = option(doc="Directory for the data, settings and log of the broker.")
    port: int = option(
        0,
        low=0,
        high=65_535,
        doc="Port for clients. 0: the last port of this broker, or a free port.",
    )
    heap_mb: int = option(
        512,
        low=128,
        high=65_536,
        doc="Memory for the Java process of the broker, in MiB; 256 is enough for tests.",
    )
    start_timeout_ms: int = option(
        90_000, low=1_000, high=600_000, doc="Time limit for the first response of the broker."
    )
    stop_timeout_ms: int = option(
        30_000,
        low=0,
        high=600_000,
        doc="Time limit for a graceful stop; then the broker is killed.",
    )
    extra: Mapping[str, str] = field(default_factory=dict)
    security: BrokerSecurity | None = None

    def __post_init__(self) -> None:
        """Check the bounds, and that no setting is given that the room decides.

        Raises:
            OptionError: a value is out of bounds.
            ConfigError: ``extra`` names such a setting.
        """
        check(self)
        for name in sorted(_OWN & self.extra.keys()):
            raise ConfigError(
                problem=f"the broker setting {name!r} is set by this command",
                hint=f"remove {name}; port and directory have separate options",
            )

    def with_extra(self, extra: Mapping[str, str]) -> BrokerOptions:
        """Return these options with other settings of Kafka's ``server.properties``."""
        return dataclasses.replace(self, extra=dict(extra))


def server_properties(options: BrokerOptions, *, port: int, controller_port: int) -> str:
    """Return the text of ``server.properties``, with ``options.extra`` at the end."""
    protocol = "PLAINTEXT" if options.security is None else "SASL_SSL"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        # Not kept in the data, unlike a dynamic quorum: the next start may use another port.
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": f"CLIENT:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "log.dirs": str(options.folder / "data"),
        **_ONE_NODE,
        **_SMALL,
        **({} if options.security is None else options.security.server_properties()),
        **options.extra,
    }
    return "".join(f"{name}={escaped_property(value)}\n" for name, value in settings.items())


# The key of a TLS listener for development: made by Java's keytool, trusted through a PEM file.
#
# The certificate signs itself and names this machine's loopback only. It is for brokers of tests
# and of developers; a broker that others reach gets a certificate from its own issuer.

_ALIAS = "broker"
_PASSWORD = "development"  # Protects nothing: it is in the folder of the key.
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Keystore:
    """A key with its certificate (PKCS 12), and the clients' CA certificate (PEM)."""

    path: Path
    ca_path: Path
    password: str = field(repr=False)


def make_keystore(folder: Path) -> Keystore:
    """Create a key for ``localhost`` and ``127.0.0.1``, or return an existing one.

    Raises:
        BROKER_JAVA_MISSING: there is no Java.
        KEYSTORE_NOT_MADE: there is no keytool, or it failed.
    """
    store = Keystore(path=folder / "broker.p12", ca_path=folder / "ca.pem", password=_PASSWORD)
    if store.path.is_file() and store.ca_path.is_file():
        return store
    folder.mkdir(parents=True, exist_ok=True)
    store.path.unlink(missing_ok=True)
    store_words = (
        "-keystore",
        str(store.path),
        "-storetype",
        "PKCS12",
        "-storepass",
        store.password,
    )
    _keytool(
        folder,
        *("-genkeypair", "-alias", _ALIAS, "-keyalg", "RSA", "-keysize", "2048", *store_words),
        *("-dname", "CN=localhost", "-ext", "SAN=DNS:localhost,IP:127.0.0.1"),
        *("-ext", "BC=ca:true", "-validity", "3650"),
    )
    certificate = ("-exportcert", "-rfc", "-alias", _ALIAS, "-file", str(store.ca_path))
    _keytool(folder, *certificate, *store_words)
    return store


def _keytool(folder: Path, *arguments: str) -> None:
    keytool = require_keytool()
    if keytool is None:
        raise KEYSTORE_NOT_MADE(folder=str(folder), reason="keytool of Java was not found")
    try:
        result = subprocess.run(
            [str(keytool), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KEYSTORE_NOT_MADE(folder=str(folder), reason=str(error)) from error
    if result.returncode:
        reason = " ".join(f"{result.stdout} {result.stderr}".split()) or "no output"
        raise KEYSTORE_NOT_MADE(folder=str(folder), reason=reason)
