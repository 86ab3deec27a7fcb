"""How much the driver asks Java in an epoch: each message takes a part of a millisecond."""

from py4j.clientserver import ClientServerConnection

from bicycle_runtime.testing import Runner, script_source
from tests.conformance.conftest import KeptSpark

# Of an epoch with one exchange. It only shrinks.
MESSAGES_MAX = 21
# Of these py4j says that Java may forget an object; another thread sends them, at any time.
FORGET = "m\n"


def test_an_epoch_with_an_exchange_takes_few_messages_to_java(spark, monkeypatch):
    sent = []
    send = ClientServerConnection.send_command

    def counted(connection, command):
        if not command.startswith(FORGET):
            sent.append(command)
        return send(connection, command)

    with Runner(lambda: KeptSpark(spark)).harness(
        lambda env: env.add_source(script_source(str)).key_by(str).count().collect("out")
    ) as harness:
        harness.push(["ada"])
        harness.run_epoch()
        monkeypatch.setattr(ClientServerConnection, "send_command", counted)
        harness.push(["ada"])
        harness.run_epoch()

        assert harness.published == [("ada", 1), ("ada", 2)]
        assert 0 < len(sent) <= MESSAGES_MAX
