"""Who spoke when: segmentation of windows, one voice for each speaker of a window, and clusters of
voices, as pyannote.audio's pipeline has them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, ModelError
from ..native import listed, option
from ..options import read_count, read_within
from .graphs import FLOATS, Answers, Part, Port, Run, Signature

TASK = "speaker-diarization"
THRESHOLD = 0.7045654963945799  # of distances of unit vectors, as pyannote's 3.1 pipeline has it
MIN_CLUSTER = 12  # voices of a cluster that counts
MAX_VOICES = 6000
MAX_OF_WINDOW = 8  # speakers
GRAPH = "model"
SAMPLES = "samples"
OPTIONS: dict[str, Any] = {
    "num_speakers": None,
    "min_speakers": None,
    "max_speakers": None,
    "threshold": THRESHOLD,
    "step": None,
    "chunks": None,
}


@dataclass(frozen=True)
class Windows:
    """What segmentation is made of.

    Attributes:
        sampling_rate: Hz.
        size: samples of a window.
        step: samples between the begins of windows.
        frame: samples between frames.
    """

    sampling_rate: int
    size: int
    step: int
    frame: float


@dataclass(frozen=True)
class Voice:
    """A speaker of a window; spans: (start, count) of the samples to know the voice by."""

    window: int
    speaker: int
    spans: list[tuple[int, int]]


@dataclass(frozen=True)
class Turn:
    """Somebody speaks; start and end in seconds."""

    start: float
    end: float
    speaker: str


def windows_of(
    processor: Mapping[str, Any], size: int, frames: int, options: Mapping[str, Any]
) -> Windows:
    """The windows of a recording.

    Args:
        processor: of preprocessor_config.json.
        size: samples that the graph takes; 0: any number.
        frames: of a window of this size; 0: not known.
        options: "step": seconds between the begins of windows; default: half of a window.

    Raises:
        InputError: the step is not valid.
    """
    rate = rate_of(processor)
    length = size if size > 0 else 10 * rate
    step = read_within(options, "step", length / rate / 2, 0.1, length / rate)
    frame_given: object = processor.get("step")
    known = isinstance(frame_given, int) and frame_given > 0
    frame = length / frames if frames > 0 else 270.0
    if known and isinstance(frame_given, int):
        frame = frame_given
    return Windows(rate, length, max(1, round(step * rate)), frame)


def rate_of(processor: Mapping[str, Any]) -> int:
    """Hz that a model takes, of preprocessor_config.json."""
    given: object = processor.get("sampling_rate")
    return given if isinstance(given, int) and given > 0 else 16000


def starts_of(windows: Windows, count: int) -> list[int]:
    """The first sample of each window of a recording; the last window reaches its end."""
    starts = [0]
    while starts[-1] + windows.size < count:
        starts.append(starts[-1] + windows.step)
    return starts


def powerset(classes: int) -> list[list[int]]:
    """The speakers of each class: none, one, two of them, ... as far as there are classes."""
    for speakers in range(1, MAX_OF_WINDOW + 1):
        made: list[list[int]] = [[]]
        at = 0
        while at < len(made) and len(made) < 512:
            for s in range(made[at][-1] + 1 if made[at] else 0, speakers):
                made.append([*made[at], s])
            at += 1
        made = sorted(made, key=lambda of: len(of))
        sizes = [len([1 for of in made if len(of) <= most]) for most in range(1, speakers + 1)]
        if classes in sizes:
            return made[:classes]
    raise ModelError(
        f"it has {classes} classes, which are no sets of speakers",
        TASK,
        "Give a segmentation model of pyannote's, such as segmentation-3.0.",
    )


class Diarization:
    """A recording whose windows arrive.

    Args:
        windows: how it is divided.
        count: samples.
    """

    def __init__(self, windows: Windows, count: int) -> None:
        self.windows, self.count = windows, count
        self.active: list[list[list[bool]]] = []  # of each window: frames of each speaker
        self._voices: list[Voice] = []

    def feed(self, start: int, logits: Sequence[float], frames: int, classes: int) -> None:
        """Takes the scores of a window, [frames, classes].

        Args:
            start: its first sample.
            logits: of classes that are sets of speakers.
            frames, classes: how many.

        Raises:
            ModelError: they are no sets of speakers.
        """
        sets = powerset(classes)
        speakers = 1 + max([s for of in sets for s in of])
        active = [[False for f in range(frames)] for s in range(speakers)]
        for f in range(frames):
            best = 0
            for c in range(1, classes):
                if logits[f * classes + c] > logits[f * classes + best]:
                    best = c
            sample = start + f * self.windows.frame
            if sample < self.count:
                for s in sets[best]:
                    active[s][f] = True
        self.active.append(active)

    def voices(self) -> list[Voice]:
        """The voices that are to be known. A voice is known by the frames in which nobody else
        speaks, if there are half a second of them; else by all of its frames.
        """
        found: list[Voice] = []
        least = self.windows.sampling_rate / 2 / self.windows.frame
        for w, active in enumerate(self.active):
            for s, frames in enumerate(active):
                if not any(frames):
                    continue
                alone = [
                    on and not any(active[o][f] for o in range(len(active)) if o != s)
                    for f, on in enumerate(frames)
                ]
                chosen = alone if len([1 for on in alone if on]) >= least else frames
                found.append(Voice(w, s, self._spans(w, chosen)))
        self._voices = found
        return found

    def apart(self) -> list[list[float]]:
        """Vectors of the voices of one window, where each speaker is another voice."""
        return [
            [1.0 if s == voice.speaker else 0.0 for s in range(MAX_OF_WINDOW)]
            for voice in self._voices
        ]

    def _spans(self, window: int, frames: Sequence[bool]) -> list[tuple[int, int]]:
        start, frame = window * self.windows.step, self.windows.frame
        spans: list[tuple[int, int]] = []
        for first, last in runs_of(frames):
            begin = start + round(first * frame)
            end = min(self.count, start + round(last * frame))
            if end > begin:
                spans.append((begin, end - begin))
        return spans

    def turns(
        self, vectors: Sequence[Sequence[float] | None], options: Mapping[str, Any]
    ) -> list[Turn]:
        """Who spoke when.

        Args:
            vectors: of each of `voices`; None: it is too short to be known.
            options: "num_speakers", "min_speakers", "max_speakers", "threshold".

        Raises:
            InputError: an option is not valid.
        """
        least, most = speakers_of(options)
        threshold = read_within(options, "threshold", THRESHOLD, 0, 2)
        known = [i for i, v in enumerate(vectors) if v is not None]
        if len(known) > MAX_VOICES:
            raise InputError(
                f"there are {len(known)} voices", option("step"), "Give a longer step, or parts."
            )
        units = [unit(vectors[i]) for i in known]
        clusters = clustered(units, threshold, least, most)
        labels = _assigned(vectors, units, clusters)
        return self._turns(labels, most)

    def _turns(self, labels: Sequence[int], most: int) -> list[Turn]:
        """From the clusters of voices to turns: at each time as many speak as the windows say."""
        frame, rate = self.windows.frame, self.windows.sampling_rate
        total = max(1, math.ceil(self.count / frame))
        speakers = max([0, *labels]) + 1
        scores = [[0.0 for t in range(total)] for k in range(speakers)]
        counts = [0.0 for t in range(total)]
        seen = [0 for t in range(total)]
        by_window: list[list[tuple[int, int]]] = [[] for w in self.active]
        for voice, label in zip(self._voices, labels):
            by_window[voice.window].append((voice.speaker, label))
        for w, active in enumerate(self.active):
            first = round(w * self.windows.step / frame)
            for f in range(min(len(active[0]), total - first)):
                seen[first + f] += 1
                counts[first + f] += len([1 for of in active if of[f]])
                for k in {label for s, label in by_window[w] if active[s][f]}:
                    scores[k][first + f] += 1
        on = [[False for t in range(total)] for k in range(speakers)]
        for t in range(total):
            many = min(most, _rounded(counts[t] / seen[t])) if seen[t] > 0 else 0
            order = sorted(range(speakers), key=lambda k: -scores[k][t])
            for k in order[:many]:
                on[k][t] = scores[k][t] > 0
        found: list[Turn] = []
        for k, frames in enumerate(on):
            for first, last in runs_of(frames):
                end = min(self.count, last * frame) / rate
                found.append(Turn(first * frame / rate, end, str(k)))
        ordered = sorted(found, key=lambda turn: (turn.start, turn.end))
        names: dict[str, str] = {}
        for turn in ordered:
            if turn.speaker not in names:
                names[turn.speaker] = f"SPEAKER_{len(names):02d}"
        return [Turn(turn.start, turn.end, names[turn.speaker]) for turn in ordered]


def segmented(
    signature: Signature,
    processor: Mapping[str, Any],
    count: int,
    options: Mapping[str, Any],
    embeds: bool,
) -> Generator[Run, Answers, Diarization]:
    """Runs the graph on the windows of the samples in the slot "samples", [count].

    Args:
        signature: of the graph.
        processor: of preprocessor_config.json.
        count: samples.
        options: "step", as of `windows_of`.
        embeds: whether there is a model of voices.

    Raises:
        InputError: an option is not valid, or there are several windows and no model of voices.
        ModelError: it is no segmentation model.
    """
    port, output = _ports(signature)
    size = max(0, port.shape[-1]) if port.shape else 0
    windows = windows_of(processor, size, 0, options)
    starts = starts_of(windows, count)
    if len(starts) > 1 and not embeds:
        seconds = windows.size / windows.sampling_rate
        raise InputError(
            f"the recording is longer than a window ({seconds:g} s)",
            TASK,
            "Give embedding= with a model of voices.",
        )
    dims = [*[1 for d in port.shape[1:]], windows.size] if port.shape else [1, 1, windows.size]
    found: Diarization | None = None
    for start in starts:
        feeds = {port.name: Part(SAMPLES, start, windows.size, dims)}
        made = yield Run(GRAPH, {**feeds}, {}, [output.name])
        logits = made[output.name]
        if len(logits.dims) != 3:
            raise ModelError(
                f"its output is of shape {logits.dims}", TASK, "Give a segmentation model."
            )
        frames, classes = logits.dims[1], logits.dims[2]
        if found is None:
            found = Diarization(windows_of(processor, size, frames, options), count)
        found.feed(start, logits.data, frames, classes)
    return Diarization(windows, count) if found is None else found


def _ports(signature: Signature) -> tuple[Port, Port]:
    """The samples and the scores. Raises ModelError."""
    inputs = [p for p in signature.inputs if p.dtype in FLOATS]
    outputs = [p for p in signature.outputs if p.dtype in FLOATS]
    if not inputs or not outputs:
        raise ModelError("it takes no samples", TASK, "Give a segmentation model.")
    return inputs[0], outputs[0]


def is_short(count: int, rate: int) -> bool:
    """Whether samples may be too few for a model of voices: less than a second."""
    return count < rate


def result_of(turns: Sequence[Turn], options: Mapping[str, Any]) -> Any:
    """The result of a call: the turns; with the option "chunks" these, too, with their speakers.

    Raises:
        InputError: the chunks are no transcript.
    """
    segments: list[dict[str, Any]] = []
    for turn in turns:
        segments.append({"start": turn.start, "end": turn.end, "speaker": turn.speaker})
    chunks: object = options.get("chunks")
    if chunks is None:
        return segments
    found: dict[str, Any] = {"segments": segments, "chunks": with_speakers(chunks, turns)}
    return found


def _rounded(x: float) -> int:
    """To the nearest integer, of two the even one."""
    low = math.floor(x)
    if x - low == 0.5:
        return low if low % 2 == 0 else low + 1
    return math.floor(x + 0.5)


def runs_of(frames: Sequence[bool]) -> list[tuple[int, int]]:
    """(first, end) of each run of frames that are on."""
    found: list[tuple[int, int]] = []
    first = -1
    for f, on in enumerate(frames):
        if on and first < 0:
            first = f
        if not on and first >= 0:
            found.append((first, f))
            first = -1
    if first >= 0:
        found.append((first, len(frames)))
    return found


def check_options(options: Mapping[str, Any]) -> None:
    """Raises InputError: the number of speakers or the threshold is not valid."""
    speakers_of(options)
    read_within(options, "threshold", THRESHOLD, 0, 2)


def speakers_of(options: Mapping[str, Any]) -> tuple[int, int]:
    """(least, most) speakers. Raises InputError."""
    exact = read_count(options, "num_speakers")
    least, most = read_count(options, "min_speakers"), read_count(options, "max_speakers")
    if exact is not None:
        if least is not None or most is not None:
            raise InputError(
                "the number of speakers is given twice",
                option("num_speakers"),
                "Give it alone, or min_speakers and max_speakers.",
            )
        return exact, exact
    low, high = 1 if least is None else least, 1 << 20 if most is None else most
    if low > high:
        raise InputError(
            f"it is {high}, below min_speakers", option("max_speakers"), "Give a larger number."
        )
    return low, high


# ---- clusters


def unit(vector: Sequence[float] | None) -> list[float]:
    """A vector of length 1."""
    values = [] if vector is None else [float(x) for x in vector]
    size = math.sqrt(math.fsum([x * x for x in values]))
    return values if size == 0 else [x / size for x in values]


@dataclass(frozen=True)
class Merge:
    """Two clusters become one. Vectors are 0 to n - 1, the cluster of merge i is n + i.

    Attributes:
        left, right: the two; the lower number first.
        distance: of their centroids.
        size: vectors of both.
    """

    left: int
    right: int
    distance: float
    size: int


def linkage(vectors: Sequence[Sequence[float]]) -> list[Merge]:
    """Agglomerative clustering by the Euclidean distance of centroids, as
    scipy.cluster.hierarchy.linkage(vectors, "centroid").
    """
    n = len(vectors)
    squares = [math.fsum([x * x for x in v]) for v in vectors]
    table: list[list[float]] = []
    for i in range(n):
        row = [0.0 for j in range(n)]
        for j in range(i):
            product = 0.0
            for a, b in zip(vectors[i], vectors[j]):
                product += a * b
            row[j] = max(0.0, squares[i] + squares[j] - 2 * product)
        table.append(row)
    for i in range(n):
        for j in range(i):
            table[j][i] = table[i][j]
    ids = list(range(n))
    sizes = [1 for i in range(n)]
    alive = list(range(n))
    nearest = [_nearest(table[i], alive, i) for i in range(n)]
    made: list[Merge] = []
    while len(alive) > 1:
        i = alive[0]
        for k in alive:
            if table[k][nearest[k]] < table[i][nearest[i]]:
                i = k
        j = nearest[i]
        between, a, b = table[i][j], sizes[i], sizes[j]
        low, high = min(ids[i], ids[j]), max(ids[i], ids[j])
        made.append(Merge(low, high, math.sqrt(max(0.0, between)), a + b))
        alive = [k for k in alive if k != j]
        for k in alive:
            if k != i:
                mean = (a * table[i][k] + b * table[j][k]) / (a + b)
                table[i][k] = mean - a * b * between / ((a + b) * (a + b))
                table[k][i] = table[i][k]
        ids[i] = n + len(made) - 1
        sizes[i] = a + b
        for k in alive:
            if len(alive) > 1 and (k == i or nearest[k] == i or nearest[k] == j):
                nearest[k] = _nearest(table[k], alive, k)
            elif k != i and table[k][i] < table[k][nearest[k]]:
                nearest[k] = i
    return made


def _nearest(row: Sequence[float], alive: Sequence[int], own: int) -> int:
    best = -1
    for k in alive:
        if k != own and (best < 0 or row[k] < row[best]):
            best = k
    return max(0, best)


def flat(merges: Sequence[Merge], heights: Sequence[float], threshold: float) -> list[int]:
    """The cluster of each vector, where clusters are not merged above a height, as
    scipy.cluster.hierarchy.fcluster(..., criterion="distance").
    """
    n = len(merges) + 1
    highest: list[float] = []
    for i, merge in enumerate(merges):
        inner = [highest[c - n] for c in (merge.left, merge.right) if c >= n]
        highest.append(max([heights[i], *inner]))
    labels = [0 for i in range(n)]
    made = 0
    waiting: list[tuple[int, int]] = [(2 * n - 2, -1)]  # (cluster, its label; -1: none yet)
    while waiting:
        cluster, label = waiting.pop()
        if label < 0 and (cluster < n or highest[cluster - n] <= threshold):
            label = made
            made += 1
        if cluster < n:
            labels[cluster] = label
        else:
            merge = merges[cluster - n]
            waiting.append((merge.right, label))
            waiting.append((merge.left, label))
    return labels


def clustered(
    vectors: Sequence[Sequence[float]], threshold: float, least: int, most: int
) -> list[int]:
    """The speaker of each unit vector, from 0 on, as pyannote.audio's AgglomerativeClustering.

    Args:
        vectors: the voices.
        threshold: of distances.
        least, most: speakers.
    """
    n = len(vectors)
    if n < 2:
        return [0 for v in vectors]
    size = min(MIN_CLUSTER, max(1, _rounded(0.1 * n)))
    merges = linkage(vectors)
    labels = flat(merges, [m.distance for m in merges], threshold)
    large = _large(labels, size)
    wanted = min(max(len(large), least), most)
    if len(large) != wanted:
        labels = _of_number(merges, threshold, size, wanted)
        large = _large(labels, size)
    if not large:
        return [0 for v in vectors]
    centers = [_center([v for v, k in zip(vectors, labels) if k == c]) for c in large]
    return [large.index(k) if k in large else _closest(v, centers) for v, k in zip(vectors, labels)]


def _of_number(merges: Sequence[Merge], threshold: float, size: int, wanted: int) -> list[int]:
    """The clusters whose number of large ones is as near as possible to the one that is wanted."""
    steps = [float(i) for i in range(len(merges))]
    order = sorted(range(len(merges)), key=lambda i: abs(merges[i].distance - threshold))
    best, best_large = len(merges), 1
    for i in order:
        if merges[i].size < size:
            continue
        large = len(_large(flat(merges, steps, i), size))
        if abs(large - wanted) < abs(best_large - wanted):
            best, best_large = i, large
        if large == wanted:
            break
    return flat(merges, steps, best)


def _large(labels: Sequence[int], size: int) -> list[int]:
    """The clusters of at least so many vectors."""
    counts: dict[int, int] = {}
    for k in labels:
        counts[k] = counts.get(k, 0) + 1
    return sorted([k for k in counts if counts[k] >= size])


def _center(vectors: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum([v[i] for v in vectors]) / len(vectors) for i in range(len(vectors[0]))]


def _closest(vector: Sequence[float], centers: Sequence[Sequence[float]]) -> int:
    """The center with the largest cosine."""
    best, most = 0, -math.inf
    for i, center in enumerate(centers):
        towards = unit(center)
        cosine = 0.0
        for a, b in zip(vector, towards):
            cosine += a * b
        if cosine > most:
            best, most = i, cosine
    return best


def _assigned(
    vectors: Sequence[Sequence[float] | None],
    units: Sequence[Sequence[float]],
    clusters: Sequence[int],
) -> list[int]:
    """The speaker of each voice: that of the nearest center; of unknown voices none, -1."""
    speakers = 1 + max([-1, *clusters])
    if speakers == 0:
        return [0 for v in vectors]
    centers = [_center([v for v, k in zip(units, clusters) if k == c]) for c in range(speakers)]
    return [-1 if v is None else _closest(unit(v), centers) for v in vectors]


# ---- words


def with_speakers(chunks: object, turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Chunks of a transcript with the speaker who speaks most of the time of each.

    Args:
        chunks: [{"text", "timestamp": [start, end]}], as of automatic-speech-recognition.
        turns: who spoke when.

    Raises:
        InputError: they are none.
    """
    items: list[Any] | None = listed(chunks)
    if items is None:
        raise InputError("they are no list", option("chunks"), "Give those of a transcript.")
    made: list[dict[str, Any]] = []
    for item in items:
        fields: dict[str, Any] = item if isinstance(item, dict) else {}
        times_given: object = fields.get("timestamp")
        times: list[Any] | None = listed(times_given)
        if times is None or len(times) != 2 or not isinstance(times[0], (int, float)):
            raise InputError(
                "one has no timestamp", option("chunks"), "Transcribe with return_timestamps."
            )
        start = float(times[0])
        last: object = times[1]
        end = float(last) if isinstance(last, (int, float)) else start
        chunk: dict[str, Any] = {}
        for name in fields:
            chunk[name] = fields[name]
        chunk["speaker"] = _speaker_at(start, max(start, end), turns)
        made.append(chunk)
    return made


def _speaker_at(start: float, end: float, turns: Sequence[Turn]) -> str | None:
    """Who speaks most of a time; else who speaks next to it."""
    spoken: dict[str, float] = {}
    nearest: str | None = None
    gap = math.inf
    for turn in turns:
        shared = min(end, turn.end) - max(start, turn.start)
        if shared > 0:
            spoken[turn.speaker] = spoken.get(turn.speaker, 0.0) + shared
        if -shared < gap:
            gap, nearest = -shared, turn.speaker
    best: str | None = None
    for name in spoken:
        if best is None or spoken[name] > spoken[best]:
            best = name
    return nearest if best is None else best
