"""Options of `edgewise serve` with which tokens are guessed: answers are those without."""

import json
import urllib.request

import pytest
from edgewise.errors import InputError

BODY = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}


def answer(url):
    request = urllib.request.Request(
        f"{url}/completions", json.dumps(BODY).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as found:
        return json.load(found)["choices"][0]["text"]


def test_answers_are_those_without(server, folder, encoder, monkeypatch):
    from edgewise.extras.serve.catalog import Catalog
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import ServeOptions
    from edgewise.logic.generation.draft import Draft
    from edgewise.logic.generation.speculation import DraftPace, Lookup

    looked, drawn, guess, draw = [], [], Lookup.guess, Draft._draw
    monkeypatch.setattr(Lookup, "guess", lambda *a: looked.append(a[2]) or guess(*a))
    # measured times decide otherwise, and those of a loaded machine are anything
    monkeypatch.setattr(DraftPace, "allows", lambda *a: True)
    monkeypatch.setattr(Draft, "_draw", lambda *a: drawn.append(1) or draw(*a))
    want = answer(server.url)
    assert not looked and not drawn
    catalog = Catalog({"stories": str(folder)}, lookup=15, assistant=str(folder))
    with Server(catalog, ServeOptions(port=0)) as other:
        assert answer(other.url) == want
    assert looked and drawn
    with pytest.raises(InputError, match="0 language models for it"):
        Catalog({"tiny": str(encoder)}, assistant=str(folder))
