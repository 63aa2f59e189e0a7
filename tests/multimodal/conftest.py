"""Tiny vision-language models, made once for each process."""

from __future__ import annotations

import pytest

from . import any_size, both_ways, tiled
from .tiny import MODELS, Tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    """f(name of a model of this folder): the model, with its files."""
    made: dict[str, Tiny] = {}

    def make(name: str) -> Tiny:
        if name not in made:
            models = {**MODELS, **any_size.MODELS, **both_ways.MODELS, **tiled.MODELS}
            made[name] = models[name](tmp_path_factory.mktemp(name))
        return made[name]

    return make
