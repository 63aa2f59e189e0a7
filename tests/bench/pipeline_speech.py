"""Parts of the case `pipelines`: what a second of sound and a token cost Whisper in a page, and
speech from texts in Python, beside onnxruntime on the same graph and inputs.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from statistics import median
from typing import Any

import numpy as np

from .browser import Bench, say
from .contenders import Limits
from .real_models import FOLDER
from .stats import show

LONG = "speech recognition, Whisper tiny.en, 30 s"
ONE_TOKEN = "speech recognition, Whisper tiny.en, 30 s, its first token"
VOICE = "en_US-joe-medium.onnx"
# What espeak-ng makes of "The old bridge was closed for repairs last summer."
PHONEMES = "ðɪʲ ˈoʊld bɹˈɪdʒ wʌz klˈoʊzd fɔːɹ ɹᵻpˈɛɹz lˈæst sˈʌmɚ."
RUNS = 7
# Of tiny.en: products of the encoder and of the keys and values of cross attention for 30 s, and
# bytes that a token reads: weights, of which the vocabulary's are 80 MB, and those keys and values.
SECOND_FLOPS = 40e9 / 30
TOKEN_BYTES = 131e6


def recognition(
    bench: Bench,
    steady: dict[str, dict[str, list[float]]],
    results: dict[str, dict[str, Any]],
    ours: str,
    theirs: str,
) -> dict[str, dict[str, Any]]:
    """Milliseconds for a second of sound, and for a token: the rows LONG and ONE_TOKEN.

    Args:
        bench: in which the limits of the machine are measured.
        steady: {row: {contender: milliseconds of a call in each round}}.
        results: {row: {contender: result}}.
        ours, theirs: contenders.
    """
    if not (steady.get(LONG) and steady.get(ONE_TOKEN)):
        return {}
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDER / "whisper-tiny.en")
    second: dict[str, list[float]] = {}
    token: dict[str, list[float]] = {}
    for who in (ours, theirs):
        whole, first = steady[LONG].get(who), steady[ONE_TOKEN].get(who)
        if whole and first:
            text = results[LONG][who]["text"]
            count = len(tokenizer.encode(text, add_special_tokens=False))  # the last one is eos
            second[who] = [ms / 30 for ms in whole]
            token[who] = [(a - b) / count for a, b in zip(whole, first)]
    values = {"a second of sound": second, "a token": token}
    works = ({"flops": SECOND_FLOPS}, {"bytes": TOKEN_BYTES})
    limits = Limits(bench)
    for _round in range(3):
        limits.measure()
    table = []
    for (title, by), work in zip(values.items(), works):
        a, b = (median(by[who]) if who in by else None for who in (ours, theirs))
        times = f"**{b / a:.2f}\u00d7**" if a and b else "\u2013"
        share = limits.share(a, **work) if a else None
        found = f"{share[0]:.0%} of {share[1]}" if share else "\u2013"
        table.append([title, show(a), show(b), times, found])
        say(f"  Whisper, {' | '.join(table[-1])}")
    note = limits.note()
    limits.close()
    return {
        "pipelines_recognition": {
            "title": "Whisper tiny.en, 30 s of speech, beside transformers.js",
            "unit": "ms",
            "values": values,
            "columns": [
                *("two threads", "Edgewise, ms", "transformers.js, ms", ""),
                "share of one thread's limit",
            ],
            "table": table,
            "notes": [
                "A second of sound: a call, divided by 30. A token: the difference to a call that"
                " ends after the first token, divided by the number of tokens. transformers.js runs"
                " the merged decoder with onnxruntime-web.",
                note,
            ],
        }
    }


def synthesis(bench: Bench) -> dict[str, dict[str, Any]]:
    """Piper in Python, beside onnxruntime: both with two threads, in turns."""
    title, folder = "text-to-speech, Piper, in Python", FOLDER / "piper-en-joe"
    if bench.rows not in title:
        return {}
    try:
        row, seconds = _piper(folder)
    except Exception as e:
        bench.failed(title, e)
        return {}
    a, b = (median(times) for times in row.values())
    table = [[title, f"{seconds:.2f}", show(a), show(b), f"**{b / a:.2f}\u00d7**"]]
    table[0].append(f"{a / 1000 / seconds:.3f}")
    say(f"  {' | '.join(table[0])}")
    return {
        "pipelines_synthesis": {
            "title": "Speech from a text, in Python",
            "unit": "ms",
            "values": {title: row},
            "columns": [
                *("two threads", "seconds of sound", "Edgewise, ms", "onnxruntime, ms", ""),
                "time / duration of the sound",
            ],
            "table": table,
            "notes": [
                "A call with phonemes, in the engine for CPython, beside a run of the same graph in"
                " onnxruntime."
            ],
        }
    }


def _piper(folder: Any) -> tuple[dict[str, list[float]], float]:
    """Milliseconds of calls of both, and the seconds of sound. Raises if their sounds differ."""
    import edgewise
    import onnxruntime
    from edgewise.engine.native import NativeEngine

    with closing(NativeEngine(threads=2)) as engine:
        speak = edgewise.pipeline("text-to-speech", folder, phonemizer=str, engine=engine)
        config = json.loads((folder / f"{VOICE}.json").read_text())
        ids = [config["phoneme_id_map"][p][0] for p in PHONEMES]
        ids = [1, *(i for p in ids for i in (0, p)), 0, 2]
        feeds = {
            "input": np.array([ids]),
            "input_lengths": np.array([len(ids)]),
            "scales": np.array([0, 1, 0], np.float32),
        }
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 2
        theirs = onnxruntime.InferenceSession(folder / VOICE, settings)
        calls = {
            "Edgewise, Python, 2 threads": lambda: speak(PHONEMES, noise_scale=0, noise_w=0),
            "native onnxruntime, 2 threads": lambda: theirs.run(None, feeds),
        }
        made, (expected,) = (call() for call in calls.values())
        sound, expected = np.asarray(made["audio"]).ravel(), expected.ravel()
        if sound.shape != expected.shape or np.abs(sound - expected).max() > 1e-3:
            raise ValueError(f"other sounds: {sound.shape}, {expected.shape}")
        times: dict[str, list[float]] = {who: [] for who in calls}
        for _round in range(RUNS):
            for who, call in calls.items():
                begin = time.perf_counter()
                call()
                times[who].append(1000 * (time.perf_counter() - begin))
        return times, len(sound) / made["sampling_rate"]
