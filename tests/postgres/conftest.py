"""One server for all tests of a file; each test has a table of its own."""

import gc
import itertools
import sys
import threading

import psycopg
import pytest

from tests.postgres.postgres_server import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.remove()


def has_sessions():
    """Return whether an open session of a lookup is left in this process."""
    gc.collect()
    found = (each for each in gc.get_objects() if isinstance(each, psycopg.AsyncConnection))
    return any(not each.closed for each in found)


@pytest.fixture(scope="module", autouse=True)
def lost_sessions():
    """Collect the sessions of killed workers here: the process of the tests goes on."""
    report = sys.unraisablehook

    def report_others(unraisable):
        if "BaseConnection.__del__" not in repr(unraisable.object):
            report(unraisable)

    sys.unraisablehook = report_others
    yield
    for _ in range(50):
        if not has_sessions():
            break
        threading.Event().wait(0.1)
    sys.unraisablehook = report


@pytest.fixture
def table():
    return f"rows_{next(_numbers)}"
