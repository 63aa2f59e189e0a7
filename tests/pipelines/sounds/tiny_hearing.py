"""Tiny random models in the forms of NeMo's exports (as onnx-asr's repositories have them, and
sherpa-onnx'), k2's transducers without a state, and GigaAM's, with their vocabularies.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

WIDTH, HIDDEN, LAYERS = 24, 16, 2
WORDS = ["▁the", "▁a", "s", "ing", "▁be", "e", "r", "▁in", "t", "o", ".", "▁w", "n", "<0xC3>"]
WORDS += ["<0xA9>", "▁", "d", "?", "<|en|>", "<unk>"]


class Encoder(nn.Module):
    """Frames of features, some at a time, each with what is around it; frames after the sound do
    not count.
    """

    def __init__(self, mels: int, by: int, turned: bool, out_turned: bool) -> None:
        super().__init__()
        self.by, self.turned, self.out_turned = by, turned, out_turned
        self.conv = nn.Conv1d(mels, WIDTH, by + 1, stride=by, padding=by // 2)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        x = x if self.turned else x.transpose(1, 2)
        inside = torch.arange(x.shape[2])[None] < length[:, None]
        found = self.conv(x * inside[:, None].float()).transpose(1, 2)
        count = (length - 1) // self.by + 1
        found = 3 * self.mix(found)[0]
        return (found.transpose(1, 2) if self.out_turned else found), count


class Joint(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, size)

    def forward(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """[1, t, width], [1, u, hidden] to [1, t, u, size]."""
        mixed = self.first(frames)[:, :, None] + 4 * self.second(predicted)[:, None]
        return 4 * self.last(torch.tanh(2 * mixed))


class Predictor(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, LAYERS, batch_first=True)

    def forward(self, ids: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found, (h, c) = self.lstm(3 * self.embed(ids), (h, c))
        return found, h, c


class DecoderJoint(nn.Module):
    """As NeMo's `decoder_joint`."""

    def __init__(self, size: int, more: int) -> None:
        super().__init__()
        self.predictor, self.joint = Predictor(size), Joint(size + more)

    def forward(self, frames: Any, ids: Any, length: Any, h: Any, c: Any) -> Any:
        found, h, c = self.predictor(ids.long(), h, c)
        return self.joint(frames.transpose(1, 2), found), length, h, c


class Ctc(nn.Module):
    def __init__(self, encoder: Encoder, size: int) -> None:
        super().__init__()
        self.encoder, self.last = encoder, nn.Linear(WIDTH, size)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        return torch.log_softmax(3 * self.last(self.encoder(x, length)[0]), -1)


class Stateless(nn.Module):
    """As k2's decoder: the last two tokens."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(size, HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, y: Tensor) -> Tensor:
        some = self.embed(y.clamp(min=0)) * (y >= 0)[..., None]
        return self.mix(2 * some.flatten(1))


class Joiner(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.joint = Joint(size)

    def forward(self, frame: Tensor, predicted: Tensor) -> Tensor:
        return self.joint(frame[:, None], predicted[:, None])[:, 0, 0]


def write(
    model: nn.Module,
    path: Path,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
) -> None:
    """Writes an .onnx file, as torch's older exporter does, which NeMo and k2 use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )


def _vocabulary(path: Path, blank_first: bool = False) -> int:
    words = ["<blk>", *WORDS] if blank_first else [*WORDS, "<blk>"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{word} {i}\n" for i, word in enumerate(words)), encoding="utf-8")
    return len(words)


def nemo(folder: Path, durations: int = 5, seed: int = 0, mels: int = 80) -> Path:
    """RNN-T (durations 0) or TDT: encoder-model.onnx, decoder_joint-model.onnx, vocab.txt."""
    torch.manual_seed(seed)
    size = _vocabulary(folder / "vocab.txt")
    kind = "nemo-conformer-tdt" if durations else "nemo-conformer-rnnt"
    config = {"model_type": kind, "features_size": mels, "subsampling_factor": 8}
    (folder / "config.json").write_text(json.dumps(config))
    x = {"audio_signal": torch.randn(1, mels, 50), "length": torch.tensor([50])}
    write(
        Encoder(mels, 8, True, True),
        folder / "encoder-model.onnx",
        x,
        ["outputs", "encoded_lengths"],
        {
            "audio_signal": {0: "b", 2: "t"},
            "length": {0: "b"},
            "outputs": {0: "b", 2: "t"},
            "encoded_lengths": {0: "b"},
        },
    )
    states = {f"input_states_{i}": torch.zeros(LAYERS, 1, HIDDEN) for i in (1, 2)}
    step = {
        "encoder_outputs": torch.randn(1, WIDTH, 3),
        "targets": torch.zeros(1, 2, dtype=torch.int32),
        "target_length": torch.tensor([2], dtype=torch.int32),
        **states,
    }
    write(
        DecoderJoint(size, durations),
        folder / "decoder_joint-model.onnx",
        step,
        ["outputs", "prednet_lengths", "output_states_1", "output_states_2"],
        {
            "encoder_outputs": {0: "b", 2: "t"},
            "targets": {0: "b", 1: "u"},
            "target_length": {0: "b"},
            **{name: {1: "b"} for name in states},
            "outputs": {0: "b", 1: "t", 2: "u"},
            "prednet_lengths": {0: "b"},
            "output_states_1": {1: "b"},
            "output_states_2": {1: "b"},
        },
    )
    return folder


def nemo_ctc(folder: Path, seed: int = 0) -> Path:
    """NeMo's CTC as onnx-asr has it: model.onnx, vocab.txt."""
    torch.manual_seed(seed)
    size = _vocabulary(folder / "vocab.txt")
    (folder / "config.json").write_text(json.dumps({"model_type": "nemo-conformer-ctc"}))
    x = {"audio_signal": torch.randn(1, 80, 50), "length": torch.tensor([50])}
    axes = {"audio_signal": {0: "b", 2: "t"}, "length": {0: "b"}, "logprobs": {0: "b", 1: "t"}}
    write(Ctc(Encoder(80, 8, True, False), size), folder / "model.onnx", x, ["logprobs"], axes)
    return folder


def k2(folder: Path, seed: int = 0) -> Path:
    """A transducer of k2 as sherpa-onnx has it, with names of its releases, and tokens.txt."""
    torch.manual_seed(seed)
    size = _vocabulary(folder / "tokens.txt", blank_first=True)
    x = {"x": torch.randn(1, 50, 80), "x_lens": torch.tensor([50])}
    axes = {"x": {0: "N", 1: "T"}, "x_lens": {0: "N"}}
    axes |= {"encoder_out": {0: "N", 1: "T"}, "encoder_out_lens": {0: "N"}}
    end = "-epoch-99-avg-1.onnx"
    outputs = ["encoder_out", "encoder_out_lens"]
    write(Encoder(80, 4, False, False), folder / f"encoder{end}", x, outputs, axes)
    y = {"y": torch.zeros(1, 2, dtype=torch.int64)}
    axes = {"y": {0: "N"}, "decoder_out": {0: "N"}}
    write(Stateless(size), folder / f"decoder{end}", y, ["decoder_out"], axes)
    two = {"encoder_out": torch.randn(1, WIDTH), "decoder_out": torch.randn(1, HIDDEN)}
    axes = {name: {0: "N"} for name in (*two, "logit")}
    write(Joiner(size), folder / f"joiner{end}", two, ["logit"], axes)
    return folder


class Chunk(nn.Module):
    """An encoder for streams as k2's: a chunk, and states of several types and shapes."""

    CHUNK, STEP = 13, 8  # frames

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(80, WIDTH, 6, stride=4)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.before, self.place = nn.Linear(WIDTH, WIDTH), nn.Linear(2, WIDTH)

    def forward(self, x: Tensor, key: Tensor, states: Tensor, lens: Tensor) -> tuple[Tensor, ...]:
        found = self.conv(x.transpose(1, 2)).transpose(1, 2)
        count = found.shape[1]
        known = torch.cat([key.transpose(0, 1), found], 1)  # of the chunk before
        mixed, states = self.mix(found + self.before(known[:, :count]), states)
        angle = lens[:, None, None].float() * torch.tensor([0.1, 0.03])
        mixed = 3 * mixed + self.place(torch.sin(angle))
        return mixed, found[:, -count:].transpose(0, 1), states, lens + count


def k2_stream(folder: Path, seed: int = 0) -> Path:
    """As `k2`, for streams."""
    k2(folder, seed)
    end = "-epoch-99-avg-1.onnx"
    given = {
        "x": torch.randn(1, Chunk.CHUNK, 80),
        "cached_key_0": torch.zeros(2, 1, WIDTH),
        "embed_states": torch.zeros(1, 1, WIDTH),
        "processed_lens": torch.zeros(1, dtype=torch.int64),
    }
    outputs = ["encoder_out", *(f"new_{name}" for name in list(given)[1:])]
    axes = {name: {1 if name == "cached_key_0" else 0: "N"} for name in given}
    axes["embed_states"] = {1: "N"}
    path = folder / f"encoder{end}"
    write(Chunk(), path, given, outputs, axes)
    model = onnx.load(path)
    facts = {"T": str(Chunk.CHUNK), "decode_chunk_len": str(Chunk.STEP)}
    onnx.helper.set_model_props(model, {"model_type": "zipformer2", **facts})
    onnx.save(model, path)
    return folder


class CacheAware(nn.Module):
    """An encoder for streams as NeMo's cache-aware ones: a chunk [1, 80, frames], the number of its
    frames, and caches of attention, of convolutions and of how much of the first is filled.
    """

    CHUNK, STEP, KEPT = 25, 16, 4

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(80, WIDTH, 9, stride=8)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 3)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(
        self, audio_signal: Tensor, length: Tensor, channel: Tensor, time: Tensor, filled: Tensor
    ) -> tuple[Tensor, ...]:
        found = self.conv(audio_signal).transpose(1, 2)
        count = found.shape[1]
        known = torch.cat([channel[:, 0], found], 1)
        weights = self.query(found) @ self.key(known).transpose(1, 2)
        empty = torch.arange(known.shape[1]) < self.KEPT - filled[:, None]
        weights = weights.masked_fill(empty[:, None], -1e9).softmax(-1)
        heard = found + weights @ self.value(known)
        wide = torch.cat([time[:, 0], heard.transpose(1, 2)], 2)
        out = 3 * (self.mix(wide) + heard.transpose(1, 2))
        lengths = torch.div(length - 9, 8, rounding_mode="floor") + 1
        kept = torch.clamp(filled + count, max=self.KEPT)
        return out, lengths, known[:, None, -self.KEPT :], wide[:, None, :, -2:], kept


CACHES = ["cache_last_channel", "cache_last_time", "cache_last_channel_len"]


def cache_aware(folder: Path, seed: int = 0, ctc: bool = False) -> Path:
    """A streaming FastConformer's RNN-T as sherpa-onnx has it: encoder.onnx with caches,
    decoder.onnx, joiner.onnx, tokens.txt; or its CTC, model.onnx.
    """
    k2(folder, seed)
    torch.manual_seed(seed)
    (folder / "encoder-epoch-99-avg-1.onnx").unlink()
    given = {
        "audio_signal": torch.randn(1, 80, CacheAware.CHUNK),
        "length": torch.tensor([CacheAware.CHUNK]),
        CACHES[0]: torch.zeros(1, 1, CacheAware.KEPT, WIDTH),
        CACHES[1]: torch.zeros(1, 1, WIDTH, 2),
        CACHES[2]: torch.zeros(1, dtype=torch.int64),
    }
    outputs = ["outputs", "encoded_lengths", f"{CACHES[0]}_next", f"{CACHES[1]}_next"]
    outputs.append(f"{CACHES[0]}_next_len")
    axes = {name: {0: "b"} for name in (*given, *outputs)}
    axes["audio_signal"] = {0: "b", 2: "t"}
    axes["outputs"] = {0: "b", 2: "t_out"}
    path = folder / "encoder-epoch-99-avg-1.onnx"
    write(CacheAware(), path, given, outputs, axes)
    model = onnx.load(path)
    facts = {"window_size": str(CacheAware.CHUNK), "chunk_shift": str(CacheAware.STEP)}
    facts |= {"subsampling_factor": "8", "normalize_type": ""}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
    return folder


class GigaPredictor(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, ids: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found, (h, c) = self.lstm(3 * self.embed(ids), (h, c))
        return found, h, c


class GigaJoint(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.joint = Joint(size)

    def forward(self, enc: Tensor, dec: Tensor) -> Tensor:
        return self.joint(enc.transpose(1, 2), dec.transpose(1, 2))


def gigaam(folder: Path, seed: int = 0) -> Path:
    """GigaAM's RNN-T: v2_rnnt_encoder.onnx, v2_rnnt_decoder.onnx, v2_rnnt_joint.onnx."""
    torch.manual_seed(seed)
    size = _vocabulary(folder / "v2_vocab.txt")
    x = {"audio_signal": torch.randn(1, 64, 50), "length": torch.tensor([50])}
    axes = {"audio_signal": {0: "b", 2: "t"}, "length": {0: "b"}, "encoded": {0: "b", 2: "t"}}
    outputs = ["encoded", "encoded_len"]
    write(Encoder(64, 4, True, True), folder / "v2_rnnt_encoder.onnx", x, outputs, axes)
    states = {f"{n}.1": torch.zeros(1, 1, HIDDEN) for n in "hc"}
    step = {"x": torch.zeros(1, 1, dtype=torch.int64), **states}
    write(GigaPredictor(size), folder / "v2_rnnt_decoder.onnx", step, ["dec", "h", "c"], {})
    two = {"enc": torch.randn(1, WIDTH, 1), "dec": torch.randn(1, HIDDEN, 1)}
    write(GigaJoint(size), folder / "v2_rnnt_joint.onnx", two, ["joint"], {})
    return folder


class AttentionLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])
        self.second = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.inner, self.outer = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)

    def attend(self, parts: Any, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v, o = parts
        scores = q(query) @ k(memory).transpose(1, 2) / WIDTH**0.5
        return o(torch.softmax(scores + mask, -1) @ v(memory))

    def forward(self, x: Tensor, before: Tensor, hidden: Tensor, cross: Tensor) -> Tensor:
        memory = torch.cat([before, x], 1)
        n, m = x.shape[1], memory.shape[1]
        later = torch.arange(m)[None] > torch.arange(n)[:, None] + (m - n)
        own = later.float() * -1e4
        x = x + self.attend(self.first, self.norms[0](x), self.norms[0](memory), own)
        x = x + self.attend(self.second, self.norms[1](x), hidden, cross)
        return x + self.outer(torch.relu(self.inner(self.norms[2](x))))


class AedDecoder(nn.Module):
    """As NeMo's decoder of Canary: it keeps what goes into each layer, and what comes out."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(size, WIDTH), nn.Embedding(1024, WIDTH)
        self.layers = nn.ModuleList([AttentionLayer() for _ in range(LAYERS)])
        self.last = nn.Linear(WIDTH, size)

    def forward(self, ids: Tensor, hidden: Tensor, mask: Tensor, mems: Tensor) -> Any:
        start = mems.shape[2]
        at = torch.arange(ids.shape[1]) + start
        x = 3 * self.embed(ids) + self.places(at)[None]
        cross = (1 - mask.float())[:, None] * -1e4
        kept = [torch.cat([mems[0], x], 1)]
        for i, layer in enumerate(self.layers):
            x = layer(x, mems[i], 3 * hidden, cross)
            kept.append(torch.cat([mems[i + 1], x], 1))
        return torch.log_softmax(4 * self.last(x), -1), torch.stack(kept)


class AedEncoder(Encoder):
    def forward(self, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        found, count = super().forward(x, length)
        return found, (torch.arange(found.shape[1])[None] < count[:, None]).long()


CANARY = ["▁", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>", "<|en|>"]
CANARY += ["<|de|>", "<|pnc|>", "<|nopnc|>", "<|noitn|>", "<|notimestamp|>", "<|timestamp|>"]
CANARY += ["<|nodiarize|>", "<|endoftext|>", *(f"<|{i}|>" for i in range(12))]
CANARY += ["▁the", "▁a", "s", "ing", "▁be", "e", "r", "▁in", "t", "o", ".", "▁w", "n"]


def canary(folder: Path, seed: int = 0) -> Path:
    """NeMo's AED: encoder-model.onnx, decoder-model.onnx, vocab.txt."""
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{word} {i}\n" for i, word in enumerate(CANARY))
    (folder / "vocab.txt").write_text(lines, encoding="utf-8")
    config = {"model_type": "nemo-conformer-aed", "max_sequence_length": 60, "features_size": 128}
    (folder / "config.json").write_text(json.dumps(config))
    x = {"audio_signal": torch.randn(1, 128, 50), "length": torch.tensor([50])}
    names = ["encoder_embeddings", "encoder_mask"]
    axes = {"audio_signal": {0: "b", 2: "t"}, "length": {0: "b"}}
    axes |= {name: {0: "b", 1: "f"} for name in names}
    write(AedEncoder(128, 8, True, False), folder / "encoder-model.onnx", x, names, axes)
    step = {
        "input_ids": torch.zeros(1, 3, dtype=torch.int64),
        "encoder_embeddings": torch.randn(1, 7, WIDTH),
        "encoder_mask": torch.ones(1, 7, dtype=torch.int64),
        "decoder_mems": torch.randn(LAYERS + 1, 1, 4, WIDTH),
    }
    decoder = AedDecoder(len(CANARY))
    with torch.no_grad():
        for p in decoder.parameters():
            p.add_(0.2 * torch.randn_like(p))
        decoder.last.bias[: CANARY.index("▁the")] -= 2
    write(
        decoder,
        folder / "decoder-model.onnx",
        step,
        ["logits", "decoder_hidden_states"],
        {
            "input_ids": {0: "b", 1: "n"},
            "encoder_embeddings": {0: "b", 1: "f"},
            "encoder_mask": {0: "b", 1: "f"},
            "decoder_mems": {1: "b", 2: "m"},
            "logits": {0: "b", 1: "n"},
            "decoder_hidden_states": {1: "b", 2: "k"},
        },
    )
    return folder


def sound(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Noise whose loudness changes: float32 [count] at 16 kHz."""
    generator = np.random.default_rng(seed)
    steps = np.repeat(generator.uniform(0, 0.5, count // 800 + 1), 800)[:count]
    return (generator.standard_normal(count) * steps).astype(np.float32)
