"""Bounds of connections: who is dropped, who is refused, and what always gets in."""

import pytest

from bicycle_streams.access.connections import ConnectionOptions, Connections
from bicycle_streams.access.errors import CONNECTIONS_EXHAUSTED, CONNECTIONS_TOO_MANY
from bicycle_streams.access.roles import LOCAL, NOBODY, Identity, Role
from tests.raising import raises

FEW = ConnectionOptions(
    strangers=4, strangers_per_address=3, known=5, known_per_identity=3, streams=3,
    streams_per_identity=2, reserve=2, reserve_per_identity=1,
)  # fmt: skip
ADA = Identity(name="ada", role=Role.VIEWER, token="1")
BOB = Identity(name="bob", role=Role.VIEWER, token="2")
EVE = Identity(name="eve", role=Role.VIEWER, token="3")


class Server:
    def __init__(self):
        self.connections = Connections(FEW)
        self.dropped = []

    def open(self, name, address="192.0.2.1"):
        return self.connections.open(address, lambda: self.dropped.append(name))

    def enter(self, name, identity, **words):
        connection = self.open(name, words.pop("address", "192.0.2.1"))
        connection.enter(identity, **words)
        return connection


@pytest.fixture
def server():
    return Server()


def test_a_new_stranger_costs_its_own_address_the_oldest_connection(server):
    server.open("other", "192.0.2.2")
    for number in range(4):
        server.open(number)

    assert server.dropped == [0]


def test_too_many_addresses_cost_the_one_with_most_its_oldest(server):
    for number in range(3):
        server.open(number)
    server.open("second", "192.0.2.2")
    server.open("third", "192.0.2.3")

    assert server.dropped == [0]


def test_who_is_known_is_not_dropped_for_strangers(server):
    server.enter("ada", ADA)
    for number in range(20):
        server.open(number)

    assert "ada" not in server.dropped


def test_one_identity_is_bounded_and_others_are_answered(server):
    for number in range(3):
        server.enter(number, ADA)
    with raises(CONNECTIONS_TOO_MANY):
        server.enter("fourth", ADA)

    server.enter("bob", BOB)

    assert server.dropped == []


def test_an_idle_connection_makes_room_for_a_new_one(server):
    for number in range(3):
        server.enter(number, ADA).leave()

    server.enter("new", ADA)

    assert server.dropped == [0]


def test_all_identities_together_are_bounded_but_for_the_reserve(server):
    for number, identity in enumerate([ADA, ADA, BOB, BOB, EVE]):
        server.enter(number, identity)
    root = Identity(name="root", role=Role.ADMIN, token="4")
    with raises(CONNECTIONS_EXHAUSTED):
        server.enter("read", root)

    server.enter("stop", root, is_reserved=True)

    server.enter("drain", root, is_reserved=True)
    with raises(CONNECTIONS_EXHAUSTED):
        server.enter("cancel", root, is_reserved=True)


def test_one_identity_does_not_take_the_whole_reserve(server):
    for number in range(3):
        server.enter(number, ADA)
    server.enter("stop", ADA, is_reserved=True)

    with raises(CONNECTIONS_TOO_MANY):
        server.enter("cancel", ADA, is_reserved=True)


def test_streams_of_one_identity_are_bounded_and_end_with_their_request(server):
    streams = [server.enter(number, ADA) for number in range(3)]
    streams[0].begin_stream()
    streams[1].begin_stream()
    with raises(CONNECTIONS_TOO_MANY):
        streams[2].begin_stream()

    server.enter("bob", BOB).begin_stream()
    with raises(CONNECTIONS_EXHAUSTED):
        server.enter("eve", EVE).begin_stream()
    streams[0].leave()

    streams[2].begin_stream()


def test_callers_that_need_no_token_share_the_whole(server):
    for number in range(5):
        server.enter(number, LOCAL)
    with raises(CONNECTIONS_EXHAUSTED):
        server.enter("sixth", LOCAL)


def test_what_is_closed_counts_no_longer(server):
    for _ in range(20):
        connection = server.enter("ada", ADA)
        connection.begin_stream()
        connection.close()
        server.open("stranger").close()

    assert server.dropped == []


def test_a_known_connection_without_a_token_is_a_stranger_again(server):
    connection = server.enter("ada", ADA)
    connection.leave()
    connection.enter(NOBODY)
    for number in range(3):
        server.open(number)

    assert server.dropped == ["ada"]


def test_a_server_without_file_descriptors_drops_strangers_first(server):
    server.enter("busy", ADA)
    server.enter("idle", BOB).leave()
    server.open("stranger")

    for _ in range(3):
        server.connections.drop_one()

    assert server.dropped == ["stranger", "idle"]
