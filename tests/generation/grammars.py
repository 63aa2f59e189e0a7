"""Formats in the engine, token by token: what the tests of formats share."""

import json
import pathlib

import numpy as np
from edgewise.host.engine import default_engine
from edgewise.logic.grammar.constraint import Formats
from edgewise.logic.grammar.vocabulary import alphabet_of

ENGINE = default_engine()


class Walk:
    """A text that grows token by token."""

    def __init__(self, formats, form, end):
        self.count, self.end = formats.vocab_size, end
        self.constraint = formats.format(form).open([] if end is None else [end])
        self.place = self.constraint.first()
        self.scores = ENGINE.alloc(4 * self.count)

    def allowed(self):
        """(ids of the tokens that may follow, whether only the end may)"""
        ENGINE.write(self.scores, bytes(4 * self.count))
        over = self.constraint.apply(self.place, self.scores, self.count)
        scores = np.frombuffer(bytes(ENGINE.read(self.scores, 4 * self.count)), np.float32)
        return np.nonzero(scores == 0)[0].tolist(), over

    def take(self, token):
        """Adds a token."""
        self.place = self.constraint.after(self.place, token)

    def accepts(self, tokens):
        """Whether tokens can follow one after the other, and the text end there."""
        for token in tokens:
            self.take(token)
            if self.place.state == 1:
                return False
        return self.end in self.allowed()[0]

    def close(self):
        self.constraint.close()
        ENGINE.free(self.scores)


class Masks:
    """Masks of a tokenizer.json."""

    def __init__(self, path, count, end):
        content = json.loads(pathlib.Path(path).read_text("utf-8"))
        tokens = {i: token for token, i in content["model"]["vocab"].items()}
        self.formats = Formats(ENGINE, count, alphabet_of(content), tokens.get)
        self.end = end

    def after(self, form, prefix):
        """Ids of the tokens that are allowed after a prefix."""
        walk = Walk(self.formats, form, self.end)
        for token in prefix:
            walk.take(token)
        found, _ = walk.allowed()
        walk.close()
        return found


class Bytes:
    """A vocabulary whose token i is the byte i; the end is 256."""

    def __init__(self):
        letters = _alphabet()
        content = {"decoder": {"type": "ByteLevel"}}
        self.formats = Formats(ENGINE, 257, alphabet_of(content), dict(enumerate(letters)).get)

    def walk(self, form):
        """The beginning of a text."""
        return Walk(self.formats, form, 256)

    def accepts(self, form, text):
        """Whether a text has a format."""
        walk = self.walk(form)
        try:
            return walk.accepts(text.encode())
        finally:
            walk.close()

    def sample(self, form, draw, most=3000):
        """A text of a format by random choices, which close what is open the sooner the longer it
        is; None: it did not end.
        """
        walk, made = self.walk(form), []
        try:
            while len(made) < most:
                ids, _ = walk.allowed()
                assert ids
                closing = [i for i in ids if i in (34, 93, 125, 256)]
                if closing and draw.random() < 0.3 + len(made) / 200:
                    ids = closing[-1:]
                token = draw.choice(ids)
                if token == 256:
                    return bytes(made).decode()
                made.append(token)
                walk.take(token)
            return None
        finally:
            walk.close()


def _alphabet():
    """The characters of bytes in byte-level tokenizers."""
    from tokenizers.pre_tokenizers import ByteLevel

    pre = ByteLevel(add_prefix_space=False, use_regex=False)
    found = [""] * 256
    for c in range(0x110000):
        if not 0xD800 <= c <= 0xDFFF and (c < 0x800 or c % 4096 == 0):
            data = chr(c).encode()
            letters = pre.pre_tokenize_str(chr(c))[0][0]
            for byte, letter in zip(data, letters, strict=True):
                found[byte] = letter
    return found
