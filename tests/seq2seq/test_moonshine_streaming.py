"""automatic-speech-recognition with Moonshine for streams against transformers, on a tiny random
model (make_streaming.py).
"""

import json
import shutil

import numpy as np
import pytest
from edgewise.cli import main
from edgewise.errors import InputError
from edgewise.pipelines import pipeline

from .sounds import SOUNDS, samples
from .test_moonshine import EXTRACTOR, HERE, Ids, plain

CASES = json.loads((HERE / "moonshine_streaming.json").read_text()).values()


@pytest.fixture(scope="module")
def listen():
    pipe = pipeline("asr", HERE / "moonshine_streaming", Ids(), feature_extractor=EXTRACTOR)
    yield pipe
    pipe.close()


@pytest.mark.family("Moonshine streaming", exporter="torch")
def test_tokens_are_those_of_transformers(listen):
    assert any(count % 80 for count in SOUNDS)  # frames that silence completes
    for case in CASES:
        for i, (count, ids) in enumerate(zip(SOUNDS, case["sequences"], strict=True)):
            assert listen(samples(count, i), **case["options"]) == {"text": plain(ids)}


def test_packages(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(HERE / "moonshine_streaming", folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR))
    main(["build", "--task", "asr", str(folder), "-o", str(tmp_path / "model.edge")])
    with pipeline("asr", tmp_path / "model.edge", Ids()) as listen:
        for case in CASES:
            for i, (count, ids) in enumerate(zip(SOUNDS, case["sequences"], strict=True)):
                assert listen(samples(count, i), **case["options"]) == {"text": plain(ids)}
        most = 1664 * 4 * 80
        assert listen(samples(most, 1), max_new_tokens=1)
        with pytest.raises(InputError, match="takes 33.28"):
            listen(samples(most + 1, 1))


def test_too_short(listen):
    with pytest.raises(InputError, match="needs 80"):
        listen(np.zeros(79, "f"))
