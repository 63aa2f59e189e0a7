"""Case `start`, beside other libraries: five real models in a page that a visitor opens for the
first time. Bytes of the libraries, and times until each is there, ready, and has a result.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import numpy as np

from .browser import WORK, Bench, say
from .pipelines import (
    EMBEDDING,
    FOLDER,
    PICTURE,
    SOUND,
    SPEECH,
    Task,
    same_texts,
    same_vector,
    shared_labels,
)
from .real import write_feeds
from .real_models import Feeds
from .stats import show, summary
from .visits import Visits

FIRST_VISIT = "first_visit"  # name of the result
PACKAGE, COMPILED = "Edgewise, package", "Edgewise, .onnx"
TRANSFORMERS, ORT = "transformers.js", "onnxruntime-web"
ENGINES = {PACKAGE: "edgewise", COMPILED: "edgewise", TRANSFORMERS: "transformers", ORT: "ort"}
TIMES = ("imported", "ready", "first")
PATIENCE = 150  # seconds after which a visit fails
# Compresses a file as servers do in advance. Files of several MB take seconds at quality 11.
BROTLI = """
    const { brotliCompressSync, constants } = require("zlib");
    const bytes = require("fs").readFileSync(process.argv[1]);
    const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
    console.log(brotliCompressSync(bytes, { params }).length);
"""
FRAMES = 343  # of SOUND


@dataclass(frozen=True)
class Session:
    """A model that a page of onnxruntime-web runs.

    Args:
        file: below FOLDER.
        feeds: returns its inputs, but for those in `passed`.
        passed: {output of the session before: input}.
    """

    file: str
    feeds: Callable[[], Feeds]
    passed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A task, and what a page of onnxruntime-web alone runs of it. `frames`: the sound's address,
    of which models of voice activity hear a frame after the other.
    """

    task: Task
    sessions: tuple[Session, ...]
    frames: str = ""
    dtype: str = ""


def _minilm() -> Feeds:
    ids = np.random.default_rng(1).integers(1000, 30000, (1, 48))
    ones = np.ones_like(ids)
    return {"input_ids": ids, "attention_mask": ones, "token_type_ids": np.zeros_like(ids)}


def _smollm2() -> Feeds:
    """A prompt of six tokens."""
    ids = np.random.default_rng(1).integers(1000, 30000, (1, 6))
    empty = np.zeros((1, 3, 0, 64), np.float32)
    kinds = [f"{layer}.{kind}" for layer in range(30) for kind in ("key", "value")]
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(6)[None],
        **{f"past_key_values.{kind}": empty for kind in kinds},
    }


def _whisper_decoder() -> Feeds:
    """The two tokens with which a transcript begins."""
    empty = np.zeros((1, 6, 0, 64), np.float32)
    names = [f"{layer}.{part}.{kind}" for layer in range(4) for part in ("decoder", "encoder")
             for kind in ("key", "value")]  # fmt: skip
    return {
        "input_ids": np.array([[50257, 50362]]),
        "use_cache_branch": np.array([False]),
        **{f"past_key_values.{name}": empty for name in names},
    }


def _numbers(name: str, *shape: int) -> Callable[[], Feeds]:
    return lambda: {name: np.random.default_rng(1).standard_normal(shape, np.float32)}


def _some_speech(ours: Any, theirs: Any) -> bool:
    """Two thirds of the sound are speech: parts of it, or 233 of 343 frames (shared/real)."""
    for found in (ours, theirs):
        if isinstance(found, dict):
            seconds = found["frames"] * 512 / 16000
        else:
            seconds = sum(part["end"] - part["start"] for part in found) / 16000
        if not 6 < seconds < 10.5:
            return False
    return True


SILERO = "silero-vad/silero_vad.onnx"
ROWS = (
    Row(
        Task(
            "voice activity in 11 s, Silero 6",
            "voice-activity-detection",
            SILERO,
            [SOUND],
            _some_speech,
            files=("",),
        ),
        (Session(SILERO, dict),),
        frames="/real/audio/jfk16k.wav",
    ),
    Row(
        Task(
            "class of a picture, EfficientNet-Lite0",
            "image-classification",
            "efficientnet-lite0",
            [PICTURE],
            shared_labels,
        ),
        (Session("efficientnet-lite0/onnx/model.onnx", _numbers("pixel_values", 1, 3, 224, 224)),),
    ),
    Row(
        Task(
            "embedding of a text, MiniLM",
            "feature-extraction",
            "all-MiniLM-L6-v2",
            EMBEDDING,
            same_vector,
        ),
        (Session("all-MiniLM-L6-v2/onnx/model.onnx", _minilm),),
    ),
    Row(
        Task(
            "first token of a transcript of 11 s, Whisper tiny.en",
            "automatic-speech-recognition",
            "whisper-tiny.en",
            [SOUND, {"max_new_tokens": 1}],
            same_texts,
            files=SPEECH,
        ),
        (
            Session(
                "whisper-tiny.en/onnx/encoder_model.onnx", _numbers("input_features", 1, 80, 3000)
            ),
            Session(
                "whisper-tiny.en/onnx/decoder_model_merged.onnx",
                _whisper_decoder,
                {"last_hidden_state": "encoder_hidden_states"},
            ),
        ),
    ),
    Row(
        Task(
            "first token of a text, SmolLM2-135M, 4 bits",
            "text-generation",
            "SmolLM2-135M-Instruct",
            ["The harbour of the old town", {"max_new_tokens": 1, "do_sample": False}],
            same_texts,
            {"dtype": "q4"},
            ("onnx/model_q4.onnx",),
        ),
        (Session("SmolLM2-135M-Instruct/onnx/model_q4.onnx", _smollm2),),
    ),
)


def package(task: Task, folder: Path) -> Path:
    """Builds the .edge file of a task, unless it is newer than the compiler's build."""
    from edgewise.cli import main

    dtype = task.options.get("dtype", "")
    path = folder / f"{Path(task.model).stem}{dtype and '-'}{dtype}.edge"
    if not path.exists() or path.stat().st_mtime < (WORK / "dist/edgewise.js").stat().st_mtime:
        more = ["--dtype", dtype] if dtype else []
        more += [] if task.task == "text-generation" else ["--task", task.task]
        if main(["build", str(task.folder), *more, "-o", str(path)]):
            raise RuntimeError(f"{task.model} could not be built")
    return path


def address(bench: Bench, row: Row, who: str, name: str) -> str:
    """The page in which a library runs a task."""
    task = row.task
    values = {
        "engine": ENGINES[who],
        "task": task.task,
        "model": f"/bench/first_visit/{name}" if who == PACKAGE else task.address,
        "call": json.dumps(task.call),
        "options": json.dumps(task.options),
    }
    if row.frames:
        values["frames"] = row.frames
    if who == ORT:
        values["sessions"] = json.dumps(
            [
                {
                    "model": f"/real/{session.file}",
                    "feeds": f"/bench/first_visit/{Path(session.file).stem}",
                    "from": session.passed,
                }
                for session in row.sessions
            ]
        )
    fields = "&".join(f"{name}={quote(value)}" for name, value in values.items())
    return f"{bench.url}/bench/page/first-visit.html?{fields}"


class Compressed:
    """Sizes of served files as brotli, kept by the digest of the file: some take half a minute."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.kept, self.paths = bench, WORK / "brotli.json", {}
        self.known = json.loads(self.kept.read_text()) if self.kept.exists() else {}

    def of(self, path: str) -> int:
        """Bytes of the file at a path of the server."""
        if path not in self.paths:
            file = WORK / "compressed"
            with urlopen(self.bench.url + path) as answer:
                data = answer.read()
            digest = hashlib.sha256(data).hexdigest()
            if digest not in self.known:
                file.write_bytes(data)
                command = ["node", "-e", BROTLI, str(file)]
                done = subprocess.run(command, capture_output=True, check=True)
                self.known[digest] = int(done.stdout)
                self.kept.write_text(json.dumps(self.known))
            self.paths[path] = self.known[digest]
        return self.paths[path]


def install(paths: set[str], compressed: Compressed) -> int:
    """Bytes of a library as brotli: what a page has asked for, without models, inputs and pages."""
    own = [p for p in paths if not p.startswith(("/real/", "/bench/"))]
    return sum(compressed.of(path) for path in own)


def visit(bench: Bench, url: str) -> tuple[dict[str, float], Any, set[str]]:
    """A visit in a new profile: times, the result, and the paths that were asked for."""
    visits = Visits(bench, url, PATIENCE)
    asked: set[str] = set()
    visits.context.on("response", lambda r: r.ok and asked.add(urlsplit(r.url).path))
    try:
        times = visits.visit()
        return times, visits.page.evaluate("window.result()"), asked
    finally:
        visits.close()


def measure(
    bench: Bench, row: Row, rounds: int, compressed: Compressed, folder: Path
) -> tuple[dict[str, dict[str, list[float]]], dict[str, int]]:
    """Visits in turns. Returns {contender: {one of TIMES: milliseconds}} and {contender: bytes}."""
    name = package(row.task, folder).name
    for session in row.sessions:
        write_feeds(session.feeds(), folder / Path(session.file).stem)
    times: dict[str, dict[str, list[float]]] = {}
    sizes: dict[str, int] = {}
    results: dict[str, Any] = {}
    failed: set[str] = set()
    for _round in range(rounds):
        for who in [w for w in ENGINES if w not in failed]:
            try:
                found, results[who], asked = visit(bench, address(bench, row, who, name))
                for what in TIMES:
                    times.setdefault(who, {}).setdefault(what, []).append(found[what])
                sizes[who] = install(asked, compressed)
            except Exception as e:
                bench.failed(f"{who}, {row.task.title}", e)
                failed.add(who)
                times.pop(who, None)
    for who in (PACKAGE, TRANSFORMERS):
        if who in results and COMPILED in results:
            if not row.task.same(results[COMPILED], results[who]):
                texts = "; ".join(json.dumps(results[w])[:120] for w in (COMPILED, who))
                bench.trouble.append(f"{row.task.title}, {who}: other results: {texts}")
                times.pop(who, None)
    return times, sizes


def cells(
    row: Row, times: dict[str, dict[str, list[float]]], sizes: dict[str, int]
) -> list[list[str]]:
    """A line of the table for each library."""
    size = sum((row.task.folder / name).stat().st_size for name in row.task.files) / 1e6
    lines = []
    for number, (who, by) in enumerate(times.items()):
        middle = [show(summary(by[what])["median"]) for what in TIMES]
        head = [row.task.title, f"{size:.3g}"] if not number else ["", ""]
        lines.append([*head, who, f"{sizes[who] / 1e6:.2f}", *middle])
    return lines


def first_visits(bench: Bench, rounds: int) -> dict[str, dict[str, Any]]:
    """The result FIRST_VISIT, or nothing if no model is installed."""
    there = [row for row in ROWS if row.task.folder.exists()]
    if not there:
        say(f"  no first visits: no model is in {FOLDER}")
        return {}
    for row in ROWS:
        if row not in there:
            bench.trouble.append(f"{row.task.title}: {row.task.model} is not in {FOLDER}")
    folder = WORK / "first_visit"
    folder.mkdir(parents=True, exist_ok=True)
    page = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'>"
    script = "<script type=module src=first-visit.js></script>"
    (WORK / "page/first-visit.html").write_text(page + script)
    compressed, table, values, sizes = Compressed(bench), [], {}, {}
    for row in there:
        before = os.getloadavg()[0]
        times, size = measure(bench, row, rounds, compressed, folder)
        table += cells(row, times, size)
        sizes[row.task.title] = {who: n / 1e6 for who, n in size.items()}
        for what in TIMES:
            values[f"{row.task.title}: {what}"] = {who: by[what] for who, by in times.items()}
        for line in table[-len(times) :]:
            say(f"  {' | '.join(line)} (load {before:.1f})")
    return {
        FIRST_VISIT: {
            "title": "First visit of a page, five real models",
            "unit": "ms",
            "values": values,
            "installs": sizes,
            "columns": COLUMNS,
            "table": table,
            "notes": NOTES,
            **({"page": "docs/benchmarks.md"} if len(there) == len(ROWS) else {}),
        }
    }


COLUMNS = [
    *("two threads", "model, MB", "", "library, MB as brotli", "library imported, ms"),
    *("model ready, ms", "first result, ms"),
]
NOTES = [
    (
        "Milliseconds from navigation, in a fresh browser profile each time, files on a plain local"
        " server: no network is in them. The libraries take turns. Library: all that the page asked"
        " for but the model, its tokenizer and configuration and the input, each file compressed by"
        " brotli (quality 11); from an .onnx file Edgewise also loads Python, once."
    ),
    (
        "Edgewise and transformers.js are called with the text, the sound or the picture."
        " onnxruntime-web has no tokenizers, features, pictures or search: it gets inputs that are"
        " ready, and for Silero frames. A package has the same weights, compiled by `edgewise"
        " build`. The model's size is that of the .onnx files."
    ),
]
