"""Tiny vision-language models, made once for each process."""

from __future__ import annotations

import pytest

from . import any_size
from .tiny import MODELS, Tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    """f(name of tiny.MODELS or any_size.MODELS): the model, with its folder."""
    made: dict[str, Tiny] = {}

    def make(name: str) -> Tiny:
        if name not in made:
            made[name] = {**MODELS, **any_size.MODELS}[name](tmp_path_factory.mktemp(name))
        return made[name]

    return make
