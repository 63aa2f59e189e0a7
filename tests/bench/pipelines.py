"""Case `pipelines`: tasks in a page, with Edgewise and with transformers.js, on the same weights.

Each model is opened in a page of a new browser profile (first visit) and in a second page of the
same profile (second visit), and run there repeatedly. Results are compared before figures count.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import pipeline_models, pipeline_speech
from .browser import WORK, Bench, say
from .contenders import TWO
from .real_models import FOLDER
from .stats import show
from .visits import FIRST, SECOND, STEADY, Visits, cells, row_name

CASES = ("pipelines",)
PEER = "transformers.js, 2 threads"
PAGES = {TWO: "edgewise", PEER: "transformers"}
TEXT = (
    "The harbour of the old town lies between two hills, and on clear mornings the fishing boats"
    " come back before the sun is over the lighthouse. Angela Merkel once stayed in Hamburg for a"
    " summer and wrote about it."
)
LONG_TEXT = f"{TEXT} {TEXT} {TEXT[:160]}"  # 128 tokens of MiniLM's
QUESTION = "Where did she stay?"
SOUND = {"$url": "/real/audio/jfk16k.wav"}
HALF_MINUTE = {"$url": "/made/speech30.wav"}
PICTURE = {"$url": "/real/images/astronaut.png"}
# A call of the second engine may round otherwise; scores of random models are compared loosely.
TOLERANCE = 0.02
ROW_SECONDS = 40  # no new round of a row after so long
CASE_SECONDS = 20 * 60  # later rows have one round
PATIENCE = 75  # seconds after which a visit, or its calls, fails


def numbers_of(result: Any) -> list[float]:
    """All numbers of a list of any depth."""
    if isinstance(result, (int, float)):
        return [float(result)]
    return [x for part in result for x in numbers_of(part)]


def same(ours: Any, theirs: Any) -> bool:
    """Whether two results have equal texts and close numbers in the fields that both have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        common = [name for name in ours if name in theirs]
        return bool(common) and all(same(ours[name], theirs[name]) for name in common)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(same(a, b) for a, b in zip(ours, theirs))
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= TOLERANCE
    return bool(ours == theirs)


def same_texts(ours: Any, theirs: Any) -> bool:
    """Whether the texts of two results are equal."""
    a, b = ([*r][0] if isinstance(r, list) else r for r in (ours, theirs))
    name = next(n for n in ("text", "generated_text", "translation_text") if n in a)
    return a[name].strip() == b[name].strip()


def alike(a: list[float], b: list[float]) -> bool:
    """Whether the cosine of two vectors is above 0.99: 8 bits of other arithmetic have 0.999."""
    lengths = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
    return len(a) == len(b) and sum(x * y for x, y in zip(a, b)) / lengths > 0.99


def same_vector(ours: Any, theirs: Any) -> bool:
    """Whether two embeddings, or the states of a picture's patches, are alike. Those of patches
    have a cosine of 0.997, because the browser resizes pictures for transformers.js (see
    shared_labels); Edgewise's differ by 5e-6 from onnxruntime's with the image processor's pixels.
    """
    a, b = (numbers_of(r["data"])[:384] for r in (ours, theirs))
    return ours["dims"] == theirs["dims"] and alike(a, b)


def same_sound(ours: Any, theirs: Any) -> bool:
    """Whether two sounds are alike, at samples of equal distances; so they have one length."""
    a, b = (numbers_of(r["audio"]) for r in (ours, theirs))
    return bool(ours["sampling_rate"] == theirs["sampling_rate"]) and alike(a, b)


def shared_labels(ours: Any, theirs: Any) -> bool:
    """Whether the five best labels have one in common: transformers.js lets the browser resize
    pictures, with other pixels than the image processor that the model was trained with.
    """
    return bool({a["label"] for a in ours} & {b["label"] for b in theirs})


def same_depth(ours: Any, theirs: Any) -> bool:
    """Whether two pictures of depth differ by 16 levels on average at most: see shared_labels."""
    a, b = (numbers_of(r["depth"]["data"]) for r in (ours, theirs))
    return len(a) == len(b) and sum(abs(x - y) for x, y in zip(a, b)) <= 16 * len(a)


@dataclass(frozen=True)
class Task:
    """One row.

    Args:
        title: name of the row.
        task: name of the task.
        model: folder of a pre-trained model, or the name of one in pipeline_models.py.
        call: arguments of a call.
        same: whether two results say the same.
        options: of pipeline().
        files: of the model that both engines read, for its size.
    """

    title: str
    task: str
    model: str
    call: list[Any]
    same: Callable[[Any, Any], bool] = same
    options: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ("onnx/model.onnx",)

    @property
    def made(self) -> bool:
        return self.model in (*pipeline_models.MODELS, *pipeline_models.QUANTIZED)

    @property
    def folder(self) -> Path:
        return (pipeline_models.MADE if self.made else FOLDER) / self.model

    @property
    def address(self) -> str:
        return f"/made/{self.model}" if self.made else f"/real/{self.model}"

    def url(self, bench: Bench, who: str) -> str:
        values = {
            "engine": PAGES[who],
            "task": self.task,
            "model": self.address,
            "call": json.dumps(self.call),
            "options": json.dumps(self.options),
            "threads": "2",
        }
        fields = "&".join(f"{name}={quote(value)}" for name, value in values.items())
        return f"{bench.url}/bench/page/pipelines.html?{fields}"


EMBEDDING = [TEXT, {"pooling": "mean", "normalize": True}]
GREEDY = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False}
SPEECH = ("onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx")
GENERATED = {"max_new_tokens": 32, "min_new_tokens": 32, "num_beams": 1, "do_sample": False}


def whisper(title: str, *call: Any, model: str = "whisper-tiny.en", **options: Any) -> Task:
    files = [n.replace(".", "_quantized.") if options else n for n in SPEECH]
    task = "automatic-speech-recognition"
    return Task(title, task, model, [*call], same_texts, options, tuple(files))


TASKS = (
    Task("embeddings, MiniLM", "feature-extraction", "all-MiniLM-L6-v2", EMBEDDING, same_vector),
    Task(
        "embeddings, MiniLM, weights of 8 bits",
        "feature-extraction",
        "all-MiniLM-L6-v2",
        EMBEDDING,
        same_vector,
        {"dtype": "q8"},
        ("onnx/model_quantized.onnx",),
    ),
    Task(
        "embeddings, MiniLM, dynamic int8, 128 tokens",
        "feature-extraction",
        pipeline_models.DYNAMIC,
        [LONG_TEXT, {"pooling": "mean", "normalize": True}],
        same_vector,
        {"dtype": "q8"},
        ("onnx/model_quantized.onnx",),
    ),
    Task("text-classification", "text-classification", "bert-classes", [TEXT]),
    Task("token-classification", "token-classification", "bert-entities", [TEXT]),
    Task(
        "zero-shot-classification, 3 labels",
        "zero-shot-classification",
        "bert-nli",
        [TEXT, ["sea", "town", "sports"]],
    ),
    Task("fill-mask", "fill-mask", "bert-mask", ["The boats [MASK] back before noon."]),
    Task("question-answering", "question-answering", "bert-answers", [QUESTION, TEXT]),
    Task(
        "text generation, SmolLM2-135M, 4 bits, 64 tokens",
        "text-generation",
        "SmolLM2-135M-Instruct",
        ["The harbour of the old town", GREEDY],
        same_texts,
        {"dtype": "q4"},
        ("onnx/model_q4.onnx",),
    ),
    Task(
        "image-classification, EfficientNet-Lite0",
        "image-classification",
        "efficientnet-lite0",
        [PICTURE],
        shared_labels,
    ),
    Task(
        "image-feature-extraction", "image-feature-extraction", "vit-small", [PICTURE], same_vector
    ),
    Task("object-detection", "object-detection", "yolos-tiny", [PICTURE, {"threshold": 0.0}]),
    Task("image-segmentation", "image-segmentation", "segformer-b0", [PICTURE]),
    Task("depth-estimation", "depth-estimation", "dpt-small", [PICTURE], same_depth),
    Task("audio-classification, spectrogram", "audio-classification", "ast-tiny", [SOUND]),
    Task("audio-classification, waveform", "audio-classification", "wav2vec2-small", [SOUND]),
    whisper("speech recognition, Whisper tiny.en, 11 s", SOUND),
    whisper(pipeline_speech.LONG, HALF_MINUTE),
    whisper(pipeline_speech.ONE_TOKEN, HALF_MINUTE, {"max_new_tokens": 1}),
    whisper(
        f"{pipeline_speech.LONG}, dynamic int8",
        HALF_MINUTE,
        model=pipeline_models.DYNAMIC_SPEECH,
        dtype="q8",
    ),
    Task(
        "translation, Marian, 32 tokens",
        "translation",
        "marian",
        [TEXT[:90], GENERATED],
        same_texts,
        files=SPEECH,
    ),
    Task("text-to-speech, VITS, 5.2 s of sound", "text-to-speech", "vits", [TEXT[:54]], same_sound),
)


@dataclass
class Row:
    """What was measured of a task, without contenders that failed or whose result differs.

    Args:
        times: {FIRST, SECOND or STEADY: {contender: milliseconds of each round}}.
        memory: {contender: MB}, peaks of the page's process.
        results: {contender: result of a call}.
    """

    times: dict[str, dict[str, list[float]]]
    memory: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    def drop(self, who: str) -> None:
        for by in (*self.times.values(), self.memory, self.results):
            by.pop(who, None)


def measure(bench: Bench, task: Task, rounds: int) -> Row:
    """Visits and runs a task in turns."""
    row = Row({FIRST: {}, SECOND: {}, STEADY: {}})
    failed: set[str] = set()
    end = time.monotonic() + ROW_SECONDS
    for number in range(rounds):
        if number and time.monotonic() > end:
            break
        for who in [w for w in PAGES if w not in failed]:
            if not bench.chromium.is_connected():
                bench.launch()
            try:
                turn(bench, task, who, row)
            except Exception as e:
                bench.failed(f"{who}, {task.title}", e)
                failed.add(who)
    if len(row.results) == len(PAGES) and not task.same(row.results[TWO], row.results[PEER]):
        texts = "; ".join(f"{who}: {json.dumps(r)[:120]}" for who, r in row.results.items())
        bench.trouble.append(f"{task.title}: other results: {texts}")
        failed |= set(PAGES)
    for who in failed:
        row.drop(who)
    return row


def turn(bench: Bench, task: Task, who: str, row: Row) -> None:
    """Two visits and calls of one contender. Raises if it fails or takes too long."""
    visits = Visits(bench, task.url(bench, who), PATIENCE)
    try:
        for what in (FIRST, SECOND):
            row.times[what].setdefault(who, []).append(visits.visit()["first"])
        row.times[STEADY].setdefault(who, []).append(visits.steady())
        row.memory[who] = max(row.memory.get(who, 0), visits.peak / 1024)
        row.results[who] = visits.page.evaluate("window.result()")
    finally:
        visits.close()


def cells_of(task: Task, row: Row) -> list[str]:
    """The row of the table."""
    size = sum((task.folder / name).stat().st_size for name in task.files) / 1e6
    parts = (cells(row.times[what], TWO, PEER) for what in (FIRST, SECOND, STEADY))
    peaks = (show(row.memory.get(who)) for who in PAGES)
    return [task.title, f"{size:.3g}", *(c for part in parts for c in part), *peaks]


def run(bench: Bench, cases: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Runs the case. `seconds` has no effect."""
    page = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'>"
    (WORK / "page/pipelines.html").write_text(
        page + "<script type=module src=pipelines.js></script>"
    )
    rows: dict[str, Row] = {}
    table = []
    start = time.monotonic()
    for task in [t for t in TASKS if bench.rows in t.title]:
        begin = time.monotonic()
        most = 1 if begin - start > CASE_SECONDS else min(rounds, 3)
        try:
            if task.model in pipeline_models.QUANTIZED:
                pipeline_models.quantized(task.model)
            elif task.made:
                pipeline_models.make(pipeline_models.MODELS[task.model])
            elif not task.folder.is_dir():
                raise FileNotFoundError(f"{task.model} is not in {FOLDER}")
            if HALF_MINUTE in task.call:
                pipeline_models.half_minute()
            rows[task.title] = measure(bench, task, most)
            table.append(cells_of(task, rows[task.title]))
        except Exception as e:
            bench.failed(task.title, e)
            continue
        say(f"  {' | '.join(table[-1])} ({time.monotonic() - begin:.0f} s)")
    steady = {title: row.times[STEADY] for title, row in rows.items()}
    results = {title: row.results for title, row in rows.items()}
    return {
        "pipelines": {
            "title": "Tasks, beside transformers.js",
            "unit": "ms",
            "values": {
                row_name(title, what): by
                for title, row in rows.items()
                for what, by in row.times.items()
            },
            "pipelines_memory": {title: row.memory for title, row in rows.items()},
            "columns": columns(),
            "table": table,
            "notes": NOTES,
        },
        **pipeline_speech.recognition(bench, steady, results, TWO, PEER),
        **pipeline_speech.synthesis(bench),
    }


def columns() -> list[str]:
    """Titles of the table's columns."""
    found = ["two threads", "MB"]
    for what in (FIRST, SECOND, "a call"):
        found += [f"{what}: Edgewise, ms", "transformers.js, ms", ""]
    return [*found, "peak of the page: Edgewise, MB", "transformers.js, MB"]


NOTES = [
    (
        "First visit: milliseconds from navigation to the first result, in a fresh browser profile,"
        " the model a folder on a plain local server; second visit: the same in a new page of that"
        " profile. A call: the median of later ones, from the address of a file or the text to the"
        " result. Both with two threads and the same files; Edgewise computes in a worker,"
        " transformers.js in the page's thread."
    ),
    (
        "Embeddings, text generation, image-classification and speech recognition have pre-trained"
        " models; the others random weights of the size of small models. Results were compared"
        " before anything counted. Peaks are those of the page's process, compilation included."
    ),
]
