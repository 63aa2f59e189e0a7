"""Fixtures of the generation tests: core/sampling as a library, and a decoder with logits from a
tiny random torch model.
"""

import ctypes
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python"))


class SamplingEngine:
    """alloc, free, write, read, call over a shared library that holds the functions of
    core/sampling/sampling.h, with guard bytes around each allocation.
    """

    GUARD = b"\xa5" * 64

    def __init__(self, library):
        self.library, self.blocks = ctypes.CDLL(str(library)), {}

    def alloc(self, n):
        block = ctypes.create_string_buffer(n + 192)
        address = (ctypes.addressof(block) + 64 + 63) // 64 * 64
        ctypes.memmove(address - 64, self.GUARD, 64)
        ctypes.memmove(address + n, self.GUARD, 64)
        self.blocks[address] = block, n
        return address

    def free(self, address):
        _, n = self.blocks[address]
        assert (
            ctypes.string_at(address - 64, 64) == self.GUARD
            and ctypes.string_at(address + n, 64) == self.GUARD
        ), "wrote outside"
        del self.blocks[address]

    def write(self, address, data):
        data = bytes(data)
        ctypes.memmove(address, data, len(data))

    def read(self, address, n):
        return ctypes.string_at(address, n)

    def copy(self, source, target, n):
        self.write(target, self.read(source, n))

    def call(self, name, *args):
        function = getattr(self.library, name)
        function.restype = ctypes.c_int64
        return function(*(ctypes.c_int64(a) for a in args))


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """The sampling code alone, compiled here with sanitizers where gcc offers them without
    preloading.
    """
    library = tmp_path_factory.mktemp("sampling") / "sampling.so"
    subprocess.run(
        [
            "gcc",
            "-std=c11",
            "-O2",
            "-g",
            "-fPIC",
            "-shared",
            "-fsanitize=undefined",
            "-fno-sanitize-recover=undefined",
            "-o",
            library,
            f"-I{ROOT / 'core'}",
            *sorted((ROOT / "core" / "sampling").glob("*.c")),
        ],
        check=True,
    )
    engine = SamplingEngine(library)
    yield engine
    assert not engine.blocks, "memory was not freed"


KNOWN = weakref.WeakKeyDictionary()  # {model: {ids: bytes of their logits}}


class TorchDecoder:
    """The Decoder protocol over a transformers model, without a cache: forward runs all ids of the
    sequence again, unless a test has run them before.
    """

    config = {}

    def __init__(self, model, engine, max_length=64):
        self.model, self.engine, self.max_length = model, engine, max_length
        self.vocab_size, self.generation_config = model.config.vocab_size, {}
        self.sequences, self.next, self.most_open, self.forwards = {}, 0, 0, 0
        self.known = KNOWN.setdefault(model, {})
        self.logits = engine.alloc(4 * self.vocab_size)

    def open(self):
        self.next += 1
        self.sequences[self.next] = []
        self.most_open = max(self.most_open, len(self.sequences))
        return self.next

    def close(self, sequence):
        del self.sequences[sequence]

    def copy(self, source, target):
        self.sequences[target] = list(self.sequences[source])

    def length(self, sequence):
        return len(self.sequences[sequence])

    def truncate(self, sequence, n):
        del self.sequences[sequence][n:]

    def forward(self, sequence, ids):
        self.forwards += 1
        self.sequences[sequence] += ids
        assert len(self.sequences[sequence]) <= self.max_length
        key = tuple(self.sequences[sequence])
        if key not in self.known:
            self.known[key] = self.compute(key)
        self.engine.write(self.logits, self.known[key])
        return self.logits

    def compute(self, ids):
        """The bytes of the logits after these ids."""
        import torch

        with torch.no_grad():
            logits = self.model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        return logits.numpy().tobytes()


@pytest.fixture(scope="session")
def model():
    """A random GPT-2 with logits so far apart that rounding does not matter."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(7)
    torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
    config = transformers.GPT2Config(
        vocab_size=97,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
        model.lm_head.weight.mul_(0.35)
    return model


@pytest.fixture
def decoder(model, engine):
    decoder = TorchDecoder(model, engine)
    yield decoder
    engine.free(decoder.logits)
    assert not decoder.sequences, "sequences were not closed"
