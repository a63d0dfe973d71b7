"""What the tests of the short ways share in all front ends: calls with the extension and without, and interrupts."""

import contextlib
import os
import random
import signal
import threading
import time

import pytest

from horovod.common import _extension

native = _extension.load()  # None where there is none


@contextlib.contextmanager
def way(compiled):
    """Calls go through the extension, or through ctypes alone."""
    native.enable(compiled)
    try:
        yield
    finally:
        native.enable(True)


def by_both(call, outcome):
    """``outcome(call)`` through the extension, and through ctypes alone."""
    outcomes = []
    for compiled in (True, False):
        with way(compiled):
            outcomes.append(outcome(call))
    return outcomes


def interrupted(job, call, after=0.2):
    """Press Ctrl-C in ``call`` that many seconds after its operation is under way. ``job`` is the front end."""

    def press():
        while not job.metrics()["pending"]:
            time.sleep(0.0005)
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        call()
    thread.join()


class Interrupt(BaseException):
    pass


def interrupts_at_any_point(calls, longest, then=lambda: None):
    """A fuzzer: 500 times, interrupt ``calls(chance)`` after a random time of at most ``longest`` seconds.

    ``chance`` is a ``random.Random``. ``then`` is called after each, without interrupts. Returns how many were
    interrupted before their end.
    """

    def interrupt(*_):
        if armed:
            raise Interrupt

    chance, armed, interrupts = random.Random(1), False, 0
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(500):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, longest))
                calls(chance)
                armed = False
            except Interrupt:
                armed = False
                interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            then()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    return interrupts
