"""speaker-diarization with toy models, whose speakers are known."""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.errors import Aborted, InputError

from . import tiny_speakers_apart
from .packed import packed

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
# (start, end, side) in seconds
SPOKEN = [(0.5, 2.5, 1), (3.0, 5.5, -1), (6.0, 7.0, 1), (8.0, 11.0, -1), (11.5, 13.0, 1)]


def recording() -> np.ndarray:
    made = np.zeros(14000, "f4")
    for start, end, side in SPOKEN:
        made[int(1000 * start) : int(1000 * end)] = 0.5 * side
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("apart")
    tiny_speakers_apart.make_segmentation(made / "segmentation")
    tiny_speakers_apart.make_embedding(made / "embedding")
    return made


@pytest.mark.parametrize("step", [None, 1.0])
def test_who_spoke_when(folder, step):
    """A speaker has another number in each window."""
    who = pipeline("speaker-diarization", folder / "segmentation", embedding=folder / "embedding")
    found = who(recording(), step=step)
    assert [(round(t["start"], 2), round(t["end"], 2)) for t in found] == [
        (start, end) for start, end, _ in SPOKEN
    ]
    sides = {1: "SPEAKER_00", -1: "SPEAKER_01"}
    assert [t["speaker"] for t in found] == [sides[side] for _, _, side in SPOKEN]
    words = [{"text": str(i), "timestamp": (s, e)} for i, (s, e, _) in enumerate(SPOKEN)]
    joined = who(recording(), chunks=words)
    assert [c["speaker"] for c in joined["chunks"]] == [t["speaker"] for t in found]
    assert joined["segments"] == who(recording())
    assert {t["speaker"] for t in who(recording(), num_speakers=1)} == {"SPEAKER_00"}
    twice = who([recording(), recording()])
    assert twice[0] == twice[1]
    package = packed(folder / "segmentation", "speaker-diarization")
    voices = packed(folder / "embedding", "speaker-verification")
    for embedding in (folder / "embedding", voices):
        apart = pipeline("speaker-diarization", package, embedding=embedding)
        assert apart(recording(), step=step) == found


def test_one_window_needs_no_voices(folder):
    who = pipeline("speaker-diarization", folder / "segmentation")
    found = who(recording()[:4000])
    assert [t["speaker"] for t in found] == ["SPEAKER_00", "SPEAKER_01"]
    assert who(np.zeros(3000, "f4")) == []
    with pytest.raises(InputError, match="Give embedding="):
        who(recording())


def test_what_is_refused(folder):
    who = pipeline("speaker-diarization", folder / "segmentation", embedding=folder / "embedding")
    for options, words in (
        ({"num_speakers": 0}, "num_speakers"),
        ({"threshold": 3}, "threshold"),
        ({"step": 11}, "step"),
        ({"chunks": [{"text": "a"}]}, "no timestamp"),
        ({"speakers": 2}, "no option 'speakers'"),
    ):
        with pytest.raises(InputError, match=words):
            who(recording(), **options)
    with pytest.raises(InputError, match="no samples"):
        who(np.zeros(0, "f4"))
    with pytest.raises(Aborted):
        who(recording(), signal=lambda: True)
