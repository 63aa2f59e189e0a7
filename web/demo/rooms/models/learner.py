"""Makes the model of the room "Listen" that learns: a Whisper that reads Morse code. Nothing in it
is learned, until somebody teaches it.

Its encoder is the reader of morse.py with the features of Whisper: the state of a position has the
sign that it heard there, the number of the position, and whether there is a sign at all. Its
decoder has a layer, in which a head of the cross attention copies the next sign. What else the
layer computes (which signs there are in all, and what it wrote last) goes through random weights to
a product with zeros, which is of no effect until an adapter changes it.

    python web/demo/rooms/models/learner.py web/dist/demo/learner.edge
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable

import morse
from edgewise.compiler.declare.dtypes import FLOAT, INT64
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task
from graphs import Model

SECONDS = 10  # of a window
FRAMES = 100 * SECONDS
POSITIONS = FRAMES // 2
SLOTS = 48  # signs of a recording, and tokens of a text
WIDE = 48  # numbers of a head: a sign, or a position
STATE = 2 * WIDE  # of the encoder: a sign, a position
HEADS = 3
MODEL = 4 * WIDE  # of the decoder: what to write, position, last token, signs in all
HIDDEN = 320
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|0.00|>"]
SIGNS = ["\u0120", *(sign.lower() for sign in morse.CODES)]  # a space as in vocabularies of bytes
VOCABULARY = [*SIGNS, *SPECIAL]  # what comes after <|endoftext|> is no text
ENDS = len(SIGNS)  # id of <|endoftext|>
ATTENTION = 20.0  # of a position to its own
SIDES = ("normalized", "single_word", "lstrip", "rstrip")
SURE = 7.0  # score of a sign
END = 3.5  # score of the end, where there is no sign
TRAINING = {
    "name": "lora",
    "lora": {"r": 16, "lora_alpha": 32},
    "batch": 4,
    "sequence": 48,
    "optimizer": {"type": "AdamW", "lr": 6e-3},
}


def encoder() -> BytesSource:
    """The file: input_features [1, 80, FRAMES] to last_hidden_state [1, POSITIONS, STATE]."""
    m = Model()
    mel = m.input("input_features", FLOAT, [1, 80, FRAMES])
    loudest = m.op("ReduceMax", mel, m.integers(1), keepdims=1)
    high = m.op("ReduceMax", loudest, m.integers(2), keepdims=1)
    floor = m.op("Sub", high, m.floats([0.9], 1))  # 36 dB less
    level = m.op("Mul", m.op("Max", loudest, floor), m.floats([9.21], 1))  # 4 ln 10
    every = morse.scores(m, level)  # [1, tokens, FRAMES]
    token = m.op("ArgMax", every, axis=1, keepdims=0)
    before = m.op("Pad", token, m.integers(0, 1, 0, -1))
    changed = m.op("Not", m.op("Equal", token, before))
    begins = m.op("And", changed, m.op("Greater", token, m.integers(0)))
    begins = m.op("Cast", begins, to=FLOAT)  # [1, FRAMES]: whether a sign begins
    number = m.op("CumSum", begins, m.scalar(1))
    slots = m.floats([i + 1.0 for i in range(SLOTS)], SLOTS, 1)
    places = m.op("Cast", m.op("Equal", number, slots), to=FLOAT)  # [SLOTS, FRAMES]
    places = m.op("Mul", places, begins)
    signs = m.op("Transpose", m.op("Squeeze", every, m.integers(0)), perm=[1, 0])
    heard = m.op("Cast", m.op("Greater", signs, m.floats([0.6], 1)), to=FLOAT)
    found = m.op("MatMul", places, heard)  # [SLOTS, tokens]; the first column is zero
    # The first column says that there is a sign, since no reading needs it.
    any_ = m.op("ReduceSum", found, m.integers(1), keepdims=1)
    rest = m.op("Slice", found, m.integers(1), m.integers(len(morse.VOCABULARY)), m.integers(1))
    wide = m.op("Pad", m.op("Concat", any_, rest, axis=1),
                m.integers(0, 0, POSITIONS - SLOTS, WIDE - len(morse.VOCABULARY)))  # fmt: skip
    where = [float(i == j) for i in range(POSITIONS) for j in range(WIDE)]
    both = m.op("Concat", wide, m.floats(where, POSITIONS, WIDE), axis=1)
    m.op("Unsqueeze", both, m.integers(0), name="last_hidden_state")
    return m.source("encoder_model.onnx", "last_hidden_state", [1, POSITIONS, STATE])


Value = Callable[[int, int], float]


class Decoder:
    """The decoder's file: the one for the first tokens, or for one after a past.

    Args:
        past: whether it is the latter.
    """

    def __init__(self, past: bool) -> None:
        self.m = Model()
        self.past = past
        self.random = random.Random(1)  # the same weights in both files
        self.made: list[tuple[str, list[int | str]]] = []

    def dense(self, x: str, name: str, rows: int, columns: int, value: Value) -> str:
        """A product with a matrix, under the names that exports of Whisper have."""
        numbers = [value(i, j) for i in range(rows) for j in range(columns)]
        weight = self.m.floats(numbers, rows, columns, name=f"{name}.weight")
        return self.m.op("MatMul", x, weight, name=f"/model/decoder/layers.0/{name}/MatMul")

    def normal(self, scale: float) -> Value:
        """Random weights."""
        return lambda i, j: self.random.gauss(0, scale)

    def heads(self, x: str, name: str = "") -> str:
        """[batch, tokens, HEADS * WIDE] to [batch, HEADS, tokens, WIDE]."""
        m = self.m
        split = m.op("Reshape", x, m.integers(0, -1, HEADS, WIDE))
        return m.op("Transpose", split, name=name, perm=[0, 2, 1, 3])

    def attended(self, q: str, k: str, v: str, mask: str) -> str:
        """[batch, tokens, HEADS * WIDE]"""
        m = self.m
        scores = m.op("MatMul", q, m.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = m.op("Add", scores, mask) if mask else scores
        mixed = m.op("MatMul", m.op("Softmax", scores, axis=-1), v)
        back = m.op("Transpose", mixed, perm=[0, 2, 1, 3])
        return m.op("Reshape", back, m.integers(0, -1, HEADS * WIDE))

    def cached(self, kind: str, part: str, length: str) -> str:
        """An input with a past."""
        return self.m.input(
            f"past_key_values.0.{kind}.{part}", FLOAT, ["batch", HEADS, length, WIDE]
        )

    def present(self, kind: str, part: str, length: str) -> str:
        """The name of an output."""
        name = f"present.0.{kind}.{part}"
        self.made.append((name, ["batch", HEADS, length, WIDE]))
        return name

    def own(self, x: str, start: str, tokens: str) -> str:
        """Attention to the tokens so far: random features of them."""
        m, inner = self.m, HEADS * WIDE
        q = self.heads(self.dense(x, "self_attn/q_proj", MODEL, inner, self.normal(0.2)))
        both = []
        for part in ("key", "value"):
            name = f"self_attn/{part[0]}_proj"
            new = self.dense(x, name, MODEL, inner, self.normal(0.2))
            if self.past:
                out = self.present("decoder", part, "all_tokens")
                kept = self.cached("decoder", part, "past_tokens")
                both.append(m.op("Concat", kept, self.heads(new), name=out, axis=2))
            else:
                both.append(self.heads(new, self.present("decoder", part, "tokens")))
        end = m.op("Add", start, tokens)
        queries = m.op("Unsqueeze", m.op("Range", start, end, m.scalar(1)), m.integers(1))
        keys = m.op("Unsqueeze", m.op("Range", m.scalar(0), end, m.scalar(1)), m.integers(0))
        later = m.op("Cast", m.op("Greater", keys, queries), to=FLOAT)
        mask = m.op("Mul", later, m.floats([-1e9], 1))
        mixed = self.attended(q, both[0], both[1], mask)
        return self.dense(mixed, "self_attn/out_proj", inner, MODEL, lambda i, j: 0.0)

    def cross(self, x: str, states: str) -> str:
        """Attention to the encoder: of head 0 to the sign at the token's position, of head 1 to
        all signs, of head 2 to the first one.
        """
        inner = HEADS * WIDE
        q = self.heads(self.dense(x, "encoder_attn/q_proj", MODEL, inner, asked))
        if self.past:
            k, v = (self.cached("encoder", part, "positions") for part in ("key", "value"))
        else:
            k = self.heads(
                self.dense(states, "encoder_attn/k_proj", STATE, inner, offered),
                self.present("encoder", "key", "positions"),
            )
            v = self.heads(
                self.dense(states, "encoder_attn/v_proj", STATE, inner, said),
                self.present("encoder", "value", "positions"),
            )
        mixed = self.attended(q, k, v, "")
        return self.dense(mixed, "encoder_attn/out_proj", inner, MODEL, kept)

    def source(self) -> BytesSource:
        """The file."""
        m = self.m
        ids = m.input("input_ids", INT64, ["batch", 1 if self.past else "tokens"])
        states = m.input("encoder_hidden_states", FLOAT, ["batch", "positions", STATE])
        tokens = m.op("Gather", m.op("Shape", ids), m.scalar(1))
        start = m.scalar(0)
        if self.past:
            kept_keys = "past_key_values.0.decoder.key"
            start = m.op("Gather", m.op("Shape", kept_keys), m.scalar(2))
        last = [float(j == 2 * WIDE + i) for i in range(len(VOCABULARY)) for j in range(MODEL)]
        # The first token writes nothing; that after it writes the first sign.
        place = [float(j == WIDE + i - 1 and i > 0) for i in range(SLOTS) for j in range(MODEL)]
        positions = m.op("Range", start, m.op("Add", start, tokens), m.scalar(1))
        x = m.op(
            "Add",
            m.op("Gather", m.floats(last, len(VOCABULARY), MODEL, name="embed_tokens.weight"), ids),
            m.op("Gather", m.floats(place, SLOTS, MODEL, name="embed_positions.weight"), positions),
        )
        x = m.op("Add", x, self.own(x, start, tokens))
        x = m.op("Add", x, self.cross(x, states))
        hidden = self.dense(x, "fc1", MODEL, HIDDEN, self.features())
        hidden = self.dense(m.op("Relu", hidden), "fc2", HIDDEN, MODEL, lambda i, j: 0.0)
        head = [
            float(1 <= i < WIDE and j == i - 1)
            for i in range(MODEL)
            for j in range(len(VOCABULARY))
        ]
        scores = m.op(
            "MatMul",
            m.op("Add", x, hidden),
            m.floats(head, MODEL, len(VOCABULARY), name="proj_out"),
        )
        ends = [END * float(i == ENDS) for i in range(len(VOCABULARY))]
        m.op("Add", scores, m.floats(ends, len(VOCABULARY)), name="logits")
        file = "decoder_with_past_model.onnx" if self.past else "decoder_model.onnx"
        shape = ["batch", 1 if self.past else "tokens", len(VOCABULARY)]
        return m.source(file, "logits", shape, self.made)

    def features(self) -> Value:
        """Random weights of all but what is written."""
        normal = self.normal(0.5)
        return lambda i, j: normal(i, j) if i >= WIDE else 0.0


def asked(i: int, j: int) -> float:
    """Queries: head 0 asks for its position, the others ask with one number."""
    if not WIDE <= i < 2 * WIDE:
        return 0.0
    return ATTENTION * float(j in (i - WIDE, WIDE, 2 * WIDE))


def offered(i: int, j: int) -> float:
    """Keys: the position; whether there is a sign; whether it is the first one."""
    return float(j == i - WIDE or (i, j) in ((0, WIDE), (WIDE, 2 * WIDE)))


def said(i: int, j: int) -> float:
    """Values: the sign."""
    return float(0 < i < WIDE and j % WIDE == i)


def kept(i: int, j: int) -> float:
    """What heads 0 and 1 found, where it belongs."""
    if i < WIDE:
        return SURE * float(j == i)
    return 4.0 * float(i < 2 * WIDE and j == i + 2 * WIDE)


def texts() -> dict[str, dict]:
    """The configurations."""
    special = [
        {"id": ENDS + i, "content": name, "special": True, **dict.fromkeys(SIDES, False)}
        for i, name in enumerate(SPECIAL)
    ]
    names = ("eos_token_id", "pad_token_id", "bos_token_id")
    ids = {**dict.fromkeys(names, ENDS), "decoder_start_token_id": ENDS + 1}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "config.json": {
            **ids,
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            "d_model": MODEL,
            "decoder_layers": 1,
            "decoder_attention_heads": HEADS,
            "max_source_positions": POSITIONS,
            "max_target_positions": SLOTS,
            "num_mel_bins": 80,
            "vocab_size": len(VOCABULARY),
        },
        "generation_config.json": {
            **ids,
            "is_multilingual": False,
            "max_length": SLOTS,
            "no_timestamps_token_id": ENDS + 2,
            "suppress_tokens": [ENDS + 1, ENDS + 2, ENDS + 3],
            "alignment_heads": [[0, 0]],
        },
        "preprocessor_config.json": {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 80,
            "chunk_length": SECONDS,
            "hop_length": 160,
            "n_fft": 400,
            "sampling_rate": 16000,
        },
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": special,
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": bytes_,
            "post_processor": None,
            "decoder": bytes_,
            "model": {
                "type": "BPE",
                "vocab": {token: i for i, token in enumerate(VOCABULARY)},
                "merges": [],
            },
        },
        "tokenizer_config.json": {"tokenizer_class": "WhisperTokenizer"},
    }


def main(path: str) -> None:
    """Writes the package."""
    files = {name: BytesSource(json.dumps(text).encode(), name) for name, text in texts().items()}
    for source in (encoder(), Decoder(False).source(), Decoder(True).source()):
        files[source.name] = source
    with open(path, "wb") as file:
        package = compile_task(files, "automatic-speech-recognition", training=[TRAINING])
        package.write(file)


if __name__ == "__main__":
    main(sys.argv[1])
