"""Fixtures: hostile input must cause an EdgewiseError with what, where and remedy, in bounded time
and memory, and existing sessions must still work.
"""

import resource
import time

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError

from .page.page_reader import PageReader
from .seeds import small


class Refusal:
    """Checks that calls are refused correctly."""

    SECONDS, BYTES = 30, 512 << 20  # processor time, since other programs may run on the machine

    def __init__(self):
        self.steady = edgewise.InferenceSession(small()["attention"][0])
        self.feeds = {
            "x": np.linspace(-1, 1, 80, dtype="f4").reshape(2, 5, 8),
            "mask": np.zeros((2, 1, 1, 5), "f4"),
        }
        self.want = self.steady.run(None, self.feeds)[0].tobytes()

    def __call__(self, call, kind=EdgewiseError, match=None, may_work=False):
        """Checks that call() raises `kind`, or, with may_work, that it succeeds or raises an
        EdgewiseError.

        Returns the error, or the result of the call.
        """
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            result = call()
            assert may_work, f"it was not refused, but gave {str(result)[:200]}"
        except EdgewiseError as e:
            assert isinstance(e, kind) or may_work, repr(e)
            assert e.what and e.where and e.remedy, repr(e)
            assert len(str(e)) < 1500 and "\n" not in str(e).strip(), str(e)
            if match:
                assert match in str(e), str(e)
            result = e
        assert time.process_time() - started < self.SECONDS
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < self.BYTES
        return result

    def still_works(self):
        assert self.steady.run(None, self.feeds)[0].tobytes() == self.want


@pytest.fixture(scope="session")
def refusal():
    return Refusal()


@pytest.fixture
def refused(refusal):
    yield refusal
    refusal.still_works()


@pytest.fixture(scope="session")
def page():
    """The page's readers of files, in Node."""
    reader = PageReader()
    yield reader
    reader.close()
