"""Writes tests/conformance/audio/inputs.json: what processors of sound do to 1, 2, 3, ... before
their graphs. test_audio.py compares the same code with transformers.
"""

from __future__ import annotations

import array
import hashlib
import json
from pathlib import Path
from typing import Any

from edgewise.host.pipelines.audio_features import fitted
from edgewise.logic.speech.samples import input_of
from edgewise.processors.reader import audio_processor

CASES: list[tuple[dict[str, Any], int]] = [
    ({"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1}, 900),
    (
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "chunk_length": 1,
            "return_attention_mask": True,
        },
        1000,
    ),
    ({"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1}, 17000),
    ({"feature_extractor_type": "ASTFeatureExtractor", "max_length": 20}, 1234),
    ({"feature_extractor_type": "ASTFeatureExtractor", "max_length": 20}, 9999),
    ({"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, 4000),
    ({"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, 4160),
    ({"feature_extractor_type": "ParakeetFeatureExtractor"}, 3333),
    ({"feature_extractor_type": "Wav2Vec2FeatureExtractor", "return_attention_mask": True}, 77),
    ({"feature_extractor_type": "DacFeatureExtractor"}, 1025),
    (
        {
            "feature_extractor_type": "EncodecFeatureExtractor",
            "chunk_length_s": 0.01,
            "overlap": 0.1,
        },
        1000,
    ),
    *(
        (
            {
                "feature_extractor_type": "ClapFeatureExtractor",
                "max_length_s": 1,
                "sampling_rate": 1000,
                "frequency_max": 500,
                "truncation": "rand_trunc",
                "padding": padding,
            },
            count,
        )
        for padding in ("repeat", "repeatpad", "pad")
        for count in (300, 1000, 1200)
    ),
]


def cases() -> list[dict[str, Any]]:
    """Descriptions and results."""
    out = []
    for config, count in CASES:
        processor = audio_processor(config)
        sound = processor.description()
        given = input_of(sound, count)
        samples = memoryview(array.array("f", range(1, count + 1))).cast("B")
        data = fitted(samples, sound, given.total)
        case: dict[str, Any] = {
            "description": json.loads(json.dumps(sound)),
            "count": count,
            "total": given.total,
            "digest": hashlib.sha256(data).hexdigest()[:32],
        }
        if given.mask is not None:
            case["mask"] = list(given.mask)
        if given.valid is not None:
            case["valid"] = given.valid
        out.append(case)
    return out


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "conformance" / "audio" / "inputs.json"
    path.write_text(json.dumps(cases()).replace('{"description"', '\n{"description"') + "\n")
