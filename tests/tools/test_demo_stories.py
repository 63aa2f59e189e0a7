"""The stories that the demo's model was trained on: the same ones for a seed, whatever is data."""

import hashlib
from itertools import islice
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "web/demo/model-training"
# Of the first 300 stories of seed 1, by the module whose sentences were Python.
FIRST = "80c44daadd28ff57594682249ee72abd0e7e8471abb77aa03412863565504a76"


def test_stories_are_those_of_the_model(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import stories

    told = "\n\n".join(islice(stories.stories(1), 300))
    assert hashlib.sha256(told.encode()).hexdigest() == FIRST


def test_all_sentences_are_told(monkeypatch):
    """Each name in stories.json is one that the plots use, and each of the names is there."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import stories

    source = (FOLDER / "stories.py").read_text()
    assert not [name for name in stories.SENTENCES if f'"{name}"' not in source]
