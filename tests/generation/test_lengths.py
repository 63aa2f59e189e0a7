"""Lengths of texts against transformers' (tests/conformance/generation_lengths.json);
tests/logic/test_generation.py runs the same without a decoder.
"""

import json
import warnings

import pytest
from conformance.vectors import vectors
from edgewise.errors import InputError
from edgewise.text import GenerationConfig, generate

from .conftest import SamplingEngine
from .lengths import EOS, lengths_of_transformers

ROWS = vectors("generation_lengths")


class Decoder:
    """All logits are alike."""

    vocab_size, max_length, config = 16, 64, {}

    def __init__(self, engine: SamplingEngine, file: dict):
        self.engine, self.generation_config = engine, {"eos_token_id": EOS, **file}
        self.logits = engine.alloc(64)
        engine.write(self.logits, bytes(64))

    def open(self):
        return 1

    def close(self, sequence):
        pass

    def copy(self, source, target):
        pass

    def truncate(self, sequence, n):
        pass

    def forward(self, sequence, ids):
        return self.logits


@pytest.mark.parametrize(
    "row",
    ROWS,
    ids=lambda row: (
        f"{row['prompt']}{'e' if row['ends'] else ''}"
        f" {json.dumps([row['file'], row['config'], row['fields']])}"
    ),
)
def test_lengths(engine, row):
    decoder = Decoder(engine, row["file"])
    bias = [[[EOS], 100.0 if row["ends"] else -100.0]]
    for config in (GenerationConfig(**row["config"]), row["config"]) if row["config"] else (None,):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                length = len(
                    generate(
                        decoder, [1] * row["prompt"], config, sequence_bias=bias, **row["fields"]
                    )[0]
                )
        except InputError:
            length = None
        assert length == row["length"]
    engine.free(decoder.logits)


@pytest.mark.slow("test_lengths")
def test_the_vectors_are_transformers():
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    assert lengths_of_transformers() == ROWS
