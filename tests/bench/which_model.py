"""Case `models`: real models in a page and in Python on this machine, for the table of
docs/guide/which-model.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any
from urllib.parse import quote

import edgewise
import numpy as np

from .browser import WORK, Bench, say
from .first_visit import package
from .pipelines import EMBEDDING, FOLDER, GREEDY, PATIENCE, PICTURE, SOUND, SPEECH, Task
from .real import write_feeds, write_page
from .real_models import MODELS, RealModel
from .stats import show
from .visits import STEADY_MS, Visits

CASES = ("models",)
SECONDS = 11  # of SOUND
SMOLLM2, WHISPER, MINILM = "SmolLM2-135M-Instruct", "whisper-tiny.en", "all-MiniLM-L6-v2"
Q4, Q8 = {"dtype": "q4"}, {"dtype": "q8"}


def each(ms: float) -> str:
    return f"{show(ms)} ms"


def tokens(ms: float) -> str:
    return f"{show(1000 * GREEDY['max_new_tokens'] / ms)} tokens/s"


def times_real(ms: float) -> str:
    return f"{show(1000 * SECONDS / ms)} × real time"


@dataclass(frozen=True)
class Choice:
    """A row.

    Args:
        what: what the model is for, for people.
        name: the model's, with what its weights are.
        of: a task, or a model that a session runs.
        speed: makes text of the milliseconds of a call.
    """

    what: str
    name: str
    of: Task | RealModel
    speed: Callable[[float], str] = each


def real(title: str) -> RealModel:
    return next(model for model in MODELS if model.title == title)


CHOICES = (
    Choice(
        "chat, write: 64 tokens",
        "SmolLM2-135M-Instruct, 4 bits",
        Task(
            "chat",
            "text-generation",
            SMOLLM2,
            ["The harbour of the old town", GREEDY],
            options=Q4,
            files=("onnx/model_q4.onnx",),
        ),
        tokens,
    ),
    Choice(
        "write down speech",
        "Whisper tiny.en, float32",
        Task("speech", "automatic-speech-recognition", WHISPER, [SOUND], files=SPEECH),
        times_real,
    ),
    Choice(
        "hear whether somebody speaks",
        "Silero VAD 6, float32",
        Task("vad", "voice-activity-detection", "silero-vad/silero_vad.onnx", [SOUND], files=("",)),
        times_real,
    ),
    Choice(
        "search, compare texts: 48 tokens",
        "MiniLM-L6-v2, float32",
        Task("embedding", "feature-extraction", MINILM, EMBEDDING),
    ),
    Choice(
        "the same",
        "MiniLM-L6-v2, 8 bits",
        Task(
            "embedding q8",
            "feature-extraction",
            MINILM,
            EMBEDDING,
            options=Q8,
            files=("onnx/model_quantized.onnx",),
        ),
    ),
    Choice(
        "name a picture, learn things",
        "EfficientNet-Lite0, float32",
        Task("picture", "image-classification", "efficientnet-lite0", [PICTURE]),
    ),
    Choice("know a voice: 1.6 s", "Resemblyzer, float32", real("voice encoder (LSTM)")),
    Choice(
        "read aloud: 109 phonemes, 2.8 s", "Piper en_US-joe, float32", real("Piper, 109 phonemes")
    ),
    Choice("the same: 49 phonemes, 3.6 s", "Kokoro 82M, 8 bits", real("Kokoro int8, 49 phonemes")),
)


def url(bench: Bench, of: Task | RealModel) -> str:
    """The page of a row: a package of a task, or a session of an .onnx file."""
    folder = WORK / "first_visit"
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(of, RealModel):
        write_feeds(of.feeds(np.random.default_rng(0)), folder / "session")
        feeds = "/bench/first_visit/session"
        query = f"engine=edgewise&threads=2&model=/real/{of.file}&feeds={feeds}"
        return f"{bench.url}/bench/page/real.html?{query}"
    values = {
        "engine": "edgewise",
        "task": of.task,
        "model": f"/bench/first_visit/{package(of, folder).name}",
        "call": json.dumps(of.call),
        "options": "{}",
        "threads": "2",
    }
    fields = "&".join(f"{name}={quote(value)}" for name, value in values.items())
    return f"{bench.url}/bench/page/pipelines.html?{fields}"


def in_page(bench: Bench, choice: Choice, rounds: int) -> tuple[list[float], list[float], float]:
    """Milliseconds of first results and of calls, and the peak of the page's memory in MB."""
    where, first, calls, peak = url(bench, choice.of), [], [], 0.0
    for _round in range(rounds):
        visits = Visits(bench, where, PATIENCE)
        try:
            first.append(visits.visit()["first"])
            calls.append(visits.steady())
            peak = max(peak, visits.peak * 1024 / 1e6)
        finally:
            visits.close()
    return first, calls, peak


def in_python(of: Task | RealModel, rounds: int) -> list[float]:
    """Milliseconds of calls in this process, with the default number of threads."""
    if isinstance(of, RealModel):
        session = edgewise.InferenceSession(str(of.path))
        feeds = of.feeds(np.random.default_rng(0))
        return timed(lambda: session.run(None, feeds), rounds)
    given: list[Any] = [
        str(FOLDER / x["$url"].removeprefix("/real/")) if isinstance(x, dict) and "$url" in x else x
        for x in of.call
    ]
    options = given.pop() if isinstance(given[-1], dict) else {}
    pipe = edgewise.pipeline(of.task, str(of.folder), **of.options)
    return timed(lambda: pipe(*given, **options), rounds)


def timed(call: Callable[[], Any], rounds: int) -> list[float]:
    """Milliseconds of calls after the first one: two at least in each round."""
    call()
    times: list[float] = []
    for _round in range(rounds):
        begin = time.perf_counter()
        count = 0
        while count < 2 or time.perf_counter() - begin < STEADY_MS / 1000:
            call()
            count += 1
        times.append(1000 * (time.perf_counter() - begin) / count)
    return times


def run(bench: Bench, cases: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Runs the case. `seconds` has no effect."""
    page = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'>"
    script = "<script type=module src=pipelines.js></script>"
    (WORK / "page/pipelines.html").write_text(page + script)
    write_page()
    rounds, table, values, memory = min(rounds, 3), [], {}, {}
    for choice in CHOICES:
        of = choice.of
        files = [of.path] if isinstance(of, RealModel) else [of.folder / f for f in of.files]
        if not all(file.exists() for file in files):
            bench.trouble.append(f"{choice.name}: it is not in {FOLDER}")
            continue
        try:
            first, calls, peak = in_page(bench, choice, rounds)
            native = in_python(of, rounds)
        except Exception as e:
            bench.failed(choice.name, e)
            continue
        values[choice.name] = {IN_PAGE: calls, IN_PYTHON: native}
        memory[choice.name] = peak
        table.append(
            [
                choice.what,
                choice.name,
                show(sum(file.stat().st_size for file in files) / 1e6),
                f"{show(median(first) / 1000, 2)} s",
                choice.speed(median(calls)),
                show(peak, 2),
                choice.speed(median(native)),
            ]
        )
        say(f"  {' | '.join(table[-1])}")
    return {
        "models": {
            "title": "Real models, for docs/guide/which-model.md",
            "unit": "ms",
            "values": values,
            "models_memory": memory,
            "columns": COLUMNS,
            "table": table,
            "notes": NOTES,
            **({"page": "docs/guide/which-model.md"} if len(table) == len(CHOICES) else {}),
        }
    }


IN_PAGE, IN_PYTHON = "Edgewise in a page, 2 threads", "Edgewise in Python"
COLUMNS = [
    *("to", "model", "file, MB", "first result of a first visit", "then, in a page"),
    *("memory of the page, MB", "in Python"),
]
NOTES = [
    (
        "First result: from navigation, in a fresh browser profile, from a package on a local"
        " server; add the time of the download. Resemblyzer, Piper and Kokoro are .onnx files that"
        " the page compiles first, run by a session."
    ),
    ("Memory: the peak of the page's process. Figures are medians of rounds, two or three."),
]
