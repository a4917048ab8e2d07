"""SIGINT that Python drops is raised again at the next look."""

import gc
import os
import signal

import pytest

from jaxtroj.cli.interrupt import Interrupts


def test_a_signal_is_raised_at_once():
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.check()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_inside_a_callback_of_the_collector_is_not_lost():
    def callback(phase, info):
        if phase == "start":
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(1000))  # the handler runs between these

    with Interrupts() as interrupts:
        gc.callbacks.append(callback)
        try:
            gc.collect()  # Python says "Exception ignored" and goes on
        finally:
            gc.callbacks.remove(callback)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()  # once is enough


def test_the_handler_that_was_there_comes_back():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
