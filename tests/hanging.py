"""Functions that hang, as the text of a module: in Python, in a lock, in C code, and stopped."""

__all__ = ["HANGING", "WAYS"]

WAYS = ("loop", "lock", "native", "frozen")
HANGING = """
import itertools, os, signal, threading
from collections import deque

def loop():
    while True:
        pass

def lock():
    one = threading.Lock()
    with one, one:
        pass

def native():
    deque(itertools.repeat(0), maxlen=0)  # It keeps the interpreter to itself, and knows no signal.

def frozen():
    os.kill(os.getpid(), signal.SIGSTOP)
    loop()
"""
