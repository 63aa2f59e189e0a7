"""Models that the tests of pipelines share."""

import pytest

from . import tiny


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """function(kind, head, **config) that returns the folder of a tiny random model."""
    pytest.importorskip("transformers")
    made = {}

    def get(kind, head, **config):
        key = (kind, head, *sorted(config.items()))
        if key not in made:
            made[key] = tiny.make(tmp_path_factory.mktemp(f"{kind}-{head}"), kind, head, **config)
        return made[key]

    return get
