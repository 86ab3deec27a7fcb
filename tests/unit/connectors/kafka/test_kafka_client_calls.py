"""Fatal errors of the client, in each form in which they come out of its calls."""

import ctypes
import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from bicycle_streams.kafka.producing import client_call

FENCED = KafkaError(KafkaError._FENCED, "by a newer instance", fatal=True)


def raise_bare():
    """Raise as the client does: by its C code, and what is no exception."""
    restore = ctypes.pythonapi.PyErr_Restore
    restore.argtypes = [ctypes.py_object] * 2 + [ctypes.c_void_p]
    restore.restype = None
    for taken in (KafkaError, FENCED):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken))
    restore(KafkaError, FENCED, None)


def raise_wrapped():
    raise SystemError("returned a result with an exception set") from KafkaException(FENCED)


def raise_lost():
    raise SystemError("flush returned NULL without setting an exception")


@pytest.mark.parametrize(
    ("fails", "code"),
    [
        (raise_bare, KafkaError._FENCED),
        (raise_wrapped, KafkaError._FENCED),
        (raise_lost, KafkaError._FATAL),
    ],
)
def test_a_fatal_error_of_the_client_is_an_exception_whatever_it_came_as(fails, code):
    with pytest.raises(KafkaException) as caught:
        client_call(fails)

    assert caught.value.args[0].code() == code


def test_a_thread_that_meets_a_fatal_error_goes_on():
    met = []

    def work():
        try:
            client_call(raise_bare)
        except KafkaException as error:
            met.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert len(met) == 1


def test_other_errors_and_results_pass():
    assert client_call(max, 1, 2, key=abs) == 2
    with pytest.raises(ZeroDivisionError):
        client_call(lambda: 1 / 0)
    with pytest.raises(SystemError, match="something else"):
        client_call(_fail, "something else")


def _fail(text):
    raise SystemError(text)
