"""Prompts that are longer than a window, on both forms. Expected tokens of texts: those that
transformers' tokenizers keep; of chats: the longest run of last turns that fits, by trying all.
"""

import random

import pytest
from edgewise.errors import InputError

from .forms import both, module

USER, SYSTEM, ANSWER = "user", "system", "assistant"


def ids_of(messages, opens=True):
    """A template: a token of the role, the content's tokens, and one that opens the answer."""
    ids = [1]
    for m in messages:
        ids += [{"system": 2, "user": 3, "assistant": 4}[m["role"]], *m["content"]]
    return [*ids, 5] if opens else ids


def fitting(window, messages, room, refuses=None):
    """What fitting_chat returns, and how often it asks for tokens."""
    steps, asked = window.fitting_chat(messages, ids_of(messages), room), 0
    try:
        request = next(steps)
        while True:
            asked += 1
            if refuses is not None and len(request.messages) == refuses:
                request = steps.throw(InputError("the template takes no such chat"))
            else:
                request = steps.send(ids_of(request.messages, request.opens))
    except StopIteration as over:
        return over.value, asked


@both
def test_options(form):
    window = module(form, "generation.window")
    config = module(form, "generation.config")

    def room(options, own, fields, most=100):
        found = window.truncation_of(options, config.Configuration(own), fields, most)
        return found and (found.room, found.side)

    for off in ({}, {"truncation": False}, {"truncation": "do_not_truncate"}):
        assert room(off, {"max_new_tokens": 20}, {}) is None
    on = {"truncation": True}
    assert room(on, {"max_new_tokens": 20}, {}) == (80, "left")
    assert room(on, {"max_new_tokens": 20}, {"max_new_tokens": 5}) == (95, "left")
    assert room(on, {"max_new_tokens": 256}, {}) == (50, "left")
    assert room(on, {}, {"max_length": 40}) == (39, "left")
    assert room(on, {}, {"max_length": 400}) == (99, "left")
    assert room(on, {"max_new_tokens": 4}, {}, 1) == (1, "left")
    other = {"truncation": "longest_first", "truncation_side": "right"}
    assert room(other, {"max_new_tokens": 20}, {}) == (80, "right")
    for bad in ({"truncation": 3}, {"truncation": "left"}, {**on, "truncation_side": "top"}):
        with pytest.raises(InputError, match="truncation"):
            room(bad, {}, {})


@both
def test_texts(form):
    window = module(form, "generation.window")
    ids = list(range(10, 20))
    how = window.Truncation(4, "left")
    assert window.cut(ids, how, 10) == [10, 17, 18, 19]
    assert window.cut(ids, how, 5) == window.cut(ids, how, None) == [16, 17, 18, 19]
    assert window.cut(ids, window.Truncation(4, "right"), 10) == [10, 11, 12, 13]
    assert window.cut(ids, window.Truncation(10, "left"), None) == ids
    assert window.cut(ids, window.Truncation(1, "left"), 10) == [19]


@both
@pytest.mark.parametrize("seed", range(20))
def test_chats(form, seed):
    window, r = module(form, "generation.window"), random.Random(seed)
    messages = []
    if r.random() < 0.6:
        content = [r.randrange(10, 99) for _ in range(r.randint(1, 9))]
        messages.append({"role": SYSTEM, "content": content})
    turns = r.randint(1, 12)
    for i in range(2 * turns - 1):
        content = [r.randrange(10, 99) for _ in range(r.randint(1, 20))]
        messages.append({"role": ANSWER if i % 2 else USER, "content": content})
    first = int(messages[0]["role"] == SYSTEM)
    for room in (5, 12, 30, 60, 120, 10_000):
        got, asked = fitting(window, messages, room)
        starts = [i for i in range(first, len(messages)) if messages[i]["role"] == USER]
        tried = [ids_of([*messages[:first], *messages[i:]]) for i in starts]
        expected = next((ids for ids in tried if len(ids) <= room), None)
        if expected is None:  # the end of the last turn, after as much of the beginning as fits
            head = min(len(ids_of(messages[:first], False)), room // 2) if first else 0
            expected = [*tried[-1][:head], *tried[-1][len(tried[-1]) - (room - head) :]]
        assert got == expected and len(got) <= room
        assert asked <= 5


@both
def test_templates_that_want_a_user(form):
    window = module(form, "generation.window")
    chat = [{"role": SYSTEM, "content": [7, 8]}, {"role": USER, "content": list(range(50))}]
    assert fitting(window, chat, 10, refuses=1)[0] == [*range(41, 50), 5]
