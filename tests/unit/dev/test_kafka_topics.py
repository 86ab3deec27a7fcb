from bicycle_runtime.dev.errors import BROKER_SILENT
from bicycle_runtime.dev.kafka_topics import list_topics, open_admin
from tests.raising import raises


def test_topics_of_a_broker_that_does_not_answer_are_an_error():
    admin = open_admin({"bootstrap.servers": "127.0.0.1:1"})

    with raises(BROKER_SILENT) as error:
        list_topics(admin, timeout_s=0.5)

    assert error.value.facts["reason"]
