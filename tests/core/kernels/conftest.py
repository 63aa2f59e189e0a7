"""Engines of the tests of kernels."""

import ctypes

import pytest

from .harness import LIB


@pytest.fixture(params=[1, 3], scope="module")
def engine(request):
    e = ctypes.c_void_p(LIB.ew_open(request.param))
    yield e
    LIB.ew_close(e)
