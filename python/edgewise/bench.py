"""How fast a model of one's own runs here, natively, and onnxruntime beside it where that is
installed.

    report = edgewise.bench.bench("model.onnx", dims={"batch": 1})
    print(report)  # what `edgewise bench model.onnx --dims batch=1` prints

Both take turns in one process, on the same weights and inputs; what they compute is compared first.
Every figure is the median over rounds, with its quartiles.
"""

from __future__ import annotations

import gc
import os
from math import inf
from random import Random
from statistics import median, quantiles
from time import perf_counter

from .arrays import Array
from .compile import CACHE_NAME, cache_axis, head_dim, pick_model_file
from .declare.dtypes import BOOL, FLOAT, NAME, bytes_for, pack
from .declare.symbolic import product
from .engine import open_engine
from .errors import InputError
from .onnx import FileSource, read_model
from .onnx.dimensions import check_names, input_shapes
from .session import InferenceSession
from .session.decoder import folder_files, open_package
from .training.adapters import CausalLM

ROUNDS, LEAST_ROUNDS, SLICE = (
    50,
    3,
    0.1,
)  # a round measures each contender for at least SLICE seconds
AGREE = 1e-3  # of the largest value: where results differ by more, the report says so
ORT_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16"}


class Report:
    """What `bench` found: `model`, `task`, `threads`, `flavour`, `rounds`; `figures`: [{name, unit,
    better, edgewise, onnxruntime}] with {median, q1, q3, n} or None, and `ratio` where both are
    there (above 1: Edgewise is better); `difference` of the results (of the largest value), or
    None; `notes`: what was measured and what was not, in words; `profile`, if it was asked for.
    """

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def as_dict(self):
        """Plain dicts, lists, numbers and strings, as JSON takes them, as `edgewise bench --json`
        prints it.
        """
        d = dict(self.__dict__)
        if self.profile is not None:
            d["profile"] = self.profile.as_dict()
        return d

    def __str__(self):
        peer = self.peer is not None
        rows = [["", f"Edgewise ({self.flavour})", *([self.peer, "ratio"] if peer else [])]]
        for f in self.figures:
            ratio = "" if f["ratio"] is None else f"{f['ratio']:.2f} x"
            rows.append(
                [
                    f"{f['name']}, {f['unit']}",
                    *(_spread(f[w]) for w in ("edgewise", *(["onnxruntime"] if peer else []))),
                    *([ratio] if peer else []),
                ]
            )
        width = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = [
            f"{self.model}: {self.task}; {self.threads} thread{'s' * (self.threads != 1)},"
            f" {self.rounds} rounds, median [quartiles]"
        ]
        lines += [
            "  ".join(
                c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, width))
            ).rstrip()
            for r in rows
        ]
        lines += self.notes
        return "\n".join(lines) + (f"\n\n{self.profile}" if self.profile is not None else "")


def bench(
    model,
    dims=None,
    shapes=None,
    values=None,
    *,
    dtype=None,
    prompt=None,
    tokens=16,
    threads=None,
    seconds=10.0,
    profile=False,
    against=True,
):
    """Measures a model.

    Args:
        model: path of an .onnx file, a model folder, or an .edge package of a language model.
        dims: {name: int} of the inputs' symbolic dimensions, or shapes: {input: [int]}; with them
        any model is measured as one run of these shapes. Without them a decoder-only language model
        is
            measured as it writes.
        values: {input: flat numbers} instead of made-up ones. dtype: which .onnx file of a folder.
        prompt, tokens: of a language model, the length of the prompt (default 256, or half of what
        the model can hold) and how many tokens are decoded behind it. threads: default as many as
        there are cores. seconds: for the rounds (at least three). profile: whether to time single
        steps as well. against: whether to measure onnxruntime if it is installed.
    Returns:
        Report
    Raises:
        InputError: a size is missing or wrong. ModelError, UnsupportedOp, PackageError: as
        InferenceSession and CausalLM.
    """
    for name, x, least in (("prompt", prompt, 1), ("tokens", tokens, 1), ("threads", threads, 1)):
        if x is not None and (type(x) is not int or x < least):
            raise InputError(f"{x!r} is no number from {least} on", name, "Give a whole number.")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < inf:
        raise InputError(
            f"{seconds!r} is no time", "seconds", "Give a number of seconds from 0 on."
        )
    path = os.fspath(model)
    engine = open_engine(threads)
    threads = engine.threads
    if path.endswith(".edge"):
        package = open_package(path)
        if "decoder" not in package.manifest:
            raise InputError(
                "it is a package for pages", path, "Give the .onnx file that it was built from."
            )
        contenders, fields = _writing(
            path, None, None, package, engine, prompt, tokens, threads, False
        )
        fields["notes"].append(
            "onnxruntime does not read packages: give the model's folder or .onnx file to compare"
            " with it."
        )
    else:
        if not os.path.exists(path):
            raise InputError(
                "there is no such file or folder",
                path,
                "Give an .onnx file, a model folder or an .edge package.",
            )
        files, root = folder_files(path)
        file = path if os.path.isfile(path) else os.path.join(root, pick_model_file(files, dtype))
        graph = read_model(FileSource(file))
        names = {i.name for i in graph.input_names()}
        if (
            not (dims or shapes or values)
            and "input_ids" in names
            and any(o.name == "logits" for o in graph.outputs)
            and any(CACHE_NAME.search(n) for n in names)
        ):
            contenders, fields = _writing(
                path, file, graph, None, engine, prompt, tokens, threads, against
            )
        else:
            contenders, fields = _runs(
                file, graph, engine, dims or {}, shapes or {}, values or {}, threads, against
            )
    return _measure(path, contenders, fields, engine, threads, seconds, profile)


def _measure(path, contenders, fields, engine, threads, seconds, profile):
    """Rounds of all contenders in turns."""
    ours, peer = contenders[0], contenders[1] if len(contenders) > 1 else None
    times, rounds, end = {c.name: [] for c in contenders}, 0, perf_counter() + seconds
    while rounds < LEAST_ROUNDS or rounds < ROUNDS and perf_counter() < end:
        for c in contenders if rounds % 2 else contenders[::-1]:
            times[c.name].append(c.measure())
        rounds += 1
    figures = []

    def add(name, unit, better, of):
        found = {c.name: of(c) for c in contenders}
        a, b = found["edgewise"], found.get("onnxruntime")
        both = (
            [(x / y if better == "higher" else y / x) for x, y in zip(a, b) if x and y]
            if a and b
            else []
        )
        figures.append(
            {
                "name": name,
                "unit": unit,
                "better": better,
                "edgewise": _summary(a),
                "onnxruntime": _summary(b),
                "ratio": median(both) if both else None,
            }
        )

    for i, (name, unit, better) in enumerate(fields.pop("measured")):
        add(name, unit, better, lambda c, i=i: [t[i] for t in times[c.name]])
    add("from the file to the first result", "ms", "lower", lambda c: [1000 * c.ready])
    add(
        "resident memory it added",
        "MB",
        "lower",
        lambda c: [c.grown / 1e6] if c.grown is not None else None,
    )
    p = ours.profile() if profile else None
    return Report(
        model=path,
        threads=threads,
        flavour=engine.flavour,
        rounds=rounds,
        figures=figures,
        peer=peer.title if peer else None,
        profile=p,
        **fields,
    )


class _Contender:
    """One of those who take turns. measure() -> figures of a round, in the order of the fields'
    `measured`.
    """

    def __init__(self, name, title, begin):
        """begin(): makes it ready and gives its first result; its time and memory count."""
        gc.collect()
        self.name, self.title = name, title
        before, at = _resident(), perf_counter()
        self.state, self.result = begin()
        self.ready, after = perf_counter() - at, _resident()
        self.grown = max(0, after - before) if before is not None else None


def _summary(values):
    if not values:
        return None
    q = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median(values), "q1": q[0], "q3": q[2], "n": len(values)}


def _spread(s):
    if s is None:
        return "-"
    number = lambda x: f"{x:,.0f}" if x >= 100 else f"{x:.3g}"  # noqa: E731
    return number(s["median"]) + (f" [{number(s['q1'])} - {number(s['q3'])}]" if s["n"] > 1 else "")


def _resident():
    """Bytes of this process in memory; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _against(contenders, notes, make):
    """Adds onnxruntime to the contenders if it can be had, compares results, and returns their
    difference. make(onnxruntime, its title) -> _Contender.
    """
    try:
        import onnxruntime  # and NumPy with it, before anything is timed
    except ImportError:
        notes.append(
            "onnxruntime is not installed, so there is nothing to compare with: pip install"
            " onnxruntime"
        )
        return None
    title = f"onnxruntime {onnxruntime.__version__}"
    try:
        c = make(onnxruntime, title)
    except Exception as e:  # of a library with its own kinds of exceptions
        notes.append(
            f"{title} could not be measured, so there is nothing to compare with:"
            f" {str(e).strip().splitlines()[0][:200]}"
        )
        return None
    difference = _difference(contenders[0].result, c.result)
    notes.append(
        f"Results were compared first: they differ by {difference:.1e} of the largest value."
        + (
            ""
            if difference <= AGREE
            else (
                " THAT IS NOT THE SAME WORK: compare speeds with care (quantized activations round"
                " otherwise)."
            )
        )
    )
    contenders.append(c)
    return difference


def _session(onnxruntime, file, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def _difference(ours, theirs):
    """The largest difference of numbers, relative to the largest value, over outputs that both
    have.
    """
    import numpy as np

    worst = 0.0
    for a, b in zip(ours, theirs):
        a, b = np.asarray(a).astype("f8", copy=False), np.asarray(b).astype("f8", copy=False)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        ok = np.isfinite(a)
        worst = max(
            worst,
            float(
                np.abs(a[ok] - b[ok]).max(initial=0.0) / max(np.abs(b[ok]).max(initial=0.0), 1e-30)
            ),
        )
    return worst


# ---- any model ----


class _Runs(_Contender):
    def measure(self):
        """[milliseconds of a run]: the median of those of SLICE seconds."""
        times, end = [], perf_counter() + SLICE
        while not times or perf_counter() < end:
            at = perf_counter()
            self.state[1]()
            times.append(1000 * (perf_counter() - at))
        return [median(times)]

    def profile(self):
        with self.state[0].profile() as p:
            self.state[1]()
        return p


def _runs(file, graph, engine, dims, shapes, values, threads, against):
    full, needs = input_shapes(graph, dims, shapes)
    check_names(graph, "values", values)
    if needs:
        raise InputError(
            f"it depends on {', '.join(needs)}",
            file,
            f"Give sizes: --dims {','.join(n + '=1' for n in needs if ' ' not in n) or 'NAME=1'};"
            " or --shape INPUT=2x3.",
        )
    feeds = {i.name: _made_up(i, full[i.name], values.get(i.name)) for i in graph.input_names()}

    def begin():
        session = InferenceSession(file, engine=engine)
        return (session, lambda: session.run(None, feeds)), session.run(None, feeds)

    contenders = [_Runs("edgewise", "Edgewise", begin)]
    notes = [
        f"One run with {', '.join(f'{n} {a.dtype}{list(a.shape)}' for n, a in feeds.items())};"
        f" inputs are made up{' but for ' + ', '.join(values) if values else ''}. Arrays go in and"
        " out within the time."
    ]

    def make(onnxruntime, title):
        import numpy as np

        fed = {n: np.asarray(a) for n, a in feeds.items()}

        def theirs():
            session = _session(onnxruntime, file, threads)
            return (None, lambda: session.run(None, fed)), session.run(None, fed)

        return _Runs("onnxruntime", title, theirs)

    difference = _against(contenders, notes, make) if against else None
    return contenders, {
        "task": f"{len(graph.nodes)} nodes",
        "measured": [("a run", "ms", "lower")],
        "notes": notes,
        "difference": difference,
    }


def _made_up(info, shape, values):
    """Numbers for an input, the same every time: floats around 0; of integers what their name lets
    one expect: ones for masks and booleans, zeros for types, places for positions, else small ids.
    """
    count = product(shape)
    if info.dtype not in NAME or info.kind != "tensor":
        raise InputError(
            "no numbers can be made up for it",
            f"input '{info.name}'",
            "Measure the model from Python with arrays of your own: time session.run.",
        )
    if values is not None:
        if len(values) not in (1, count):
            raise InputError(
                f"{len(values)} numbers for {count} elements",
                f"input '{info.name}'",
                "Give one, or all of them.",
            )
        numbers = list(values) * (count if len(values) == 1 else 1)
    elif info.dtype in (FLOAT, 10, 11, 16):
        random = Random(info.name)
        numbers = [random.gauss(0, 1) for _ in range(count)]
    elif info.dtype == BOOL or "mask" in info.name:
        numbers = [1] * count
    elif "position" in info.name:
        numbers = [i % max(shape[-1], 1) for i in range(count)] if shape else [0]
    else:
        numbers = [0 if "type" in info.name else 1 + i * 7919 % 97 for i in range(count)]
    data = pack(info.dtype, numbers)
    assert len(data) == bytes_for(info.dtype, count)
    return Array(shape, NAME[info.dtype], data)


# ---- language models ----


class _Writing(_Contender):
    """state: (prefill(), decode(id), the rest of the ids, the prompt's length, the model)."""

    def measure(self):
        """[tokens/s of the prompt, tokens/s behind it]"""
        prefill, decode, new, length, _ = self.state
        prompt, times, end = [], [], perf_counter() + SLICE
        while not prompt or perf_counter() < end:
            at = perf_counter()
            prefill()
            prompt.append(perf_counter() - at)
        for x in new:
            at = perf_counter()
            decode(x)
            times.append(perf_counter() - at)
        return [length / median(prompt), 1 / median(times)]

    def profile(self):
        prefill, decode, new, _, lm = self.state
        with lm.profile() as p:
            prefill()
            for x in new:
                decode(x)
        return p


def _writing(path, file, graph, package, engine, prompt, tokens, threads, against):
    sizes = {}

    def begin():
        lm = CausalLM(package if package is not None else open_package(file), engine=engine)
        length = prompt or max(1, min(256, lm.max_length // 2))
        if length + tokens > lm.max_length:
            raise InputError(
                f"{length} + {tokens} tokens do not fit in {lm.max_length}",
                "prompt",
                "Use a shorter one (--prompt, --tokens).",
            )
        ids = [(i * 7919 + 11) % min(lm.vocab_size, 40000) for i in range(length + tokens)]
        sizes.update(length=length, ids=ids, most=lm.max_length)
        sequence = lm.open()

        def prefill():
            lm.truncate(sequence, 0)
            return lm.forward(sequence, ids[:length])

        first = [lm.logits(prefill())]
        lm.truncate(sequence, length)
        first.append(lm.logits(lm.forward(sequence, [ids[length]])))
        return (prefill, lambda x: lm.forward(sequence, [x]), ids[length:], length, lm), first

    contenders = [_Writing("edgewise", "Edgewise", begin)]
    length = sizes["length"]
    notes = [
        f"A prompt of {length} tokens, then {tokens} more one by one, given ones, so that everybody"
        " does the same work; choosing tokens is not measured. Of the prompt Edgewise computes the"
        " last position's logits, which is all that writing needs."
    ]

    def make(onnxruntime, title):
        return _Writing(
            "onnxruntime",
            title,
            lambda: _ort_writer(
                onnxruntime, _session(onnxruntime, file, threads), graph, sizes["ids"], length
            ),
        )

    difference = _against(contenders, notes, make) if against else None
    if difference is not None:
        notes.append(
            "onnxruntime computes the logits that the graph asks for. Its cache stays in its own"
            " memory between runs (run_with_ort_values); it makes a new one for each token."
            " Edgewise writes its cache in place."
        )
    measured = [
        (f"prompt of {length}", "tokens/s", "higher"),
        (f"decoding at {length}", "tokens/s", "higher"),
    ]
    return contenders, {
        "task": f"language model of up to {sizes['most']} tokens",
        "measured": measured,
        "notes": notes,
        "difference": difference,
    }


def _handed_on(graph, caches):
    """{cache that goes in: the output that it comes out as, with this run's tokens behind it}:
    whatever they are called, the nearest output that it flows into. Where several caches are as
    near to several outputs (those of one fused attention, or of an If around all), they are so in
    the file's order.
    """
    readers, outputs = {}, [o.name for o in graph.outputs if o.name != "logits"]
    for n in graph.nodes:
        for name in {
            *n.inputs,
            *(i for g in n.subgraphs() for m in g.every_node() for i in m.inputs),
            *(o.name for g in n.subgraphs() for o in g.outputs),
        }:
            readers.setdefault(name, []).append(n)
    near = {}
    for cache in caches:
        seen, reached, found = set(), {cache}, ()
        while reached and not found:
            seen |= reached
            reached = {
                o for name in reached for n in readers.get(name, ()) for o in n.outputs
            } - seen
            found = tuple(o for o in outputs if o in reached)
        near.setdefault(found, []).append(cache)
    if any(len(found) != len(names) for found, names in near.items()) or len(
        {o for found in near for o in found}
    ) != len(caches):
        raise InputError(
            f"which outputs its {len(caches)} caches come out as is not clear", "the model", ""
        )
    return {cache: o for found, names in near.items() for cache, o in zip(names, found)}


def _ort_writer(onnxruntime, session, graph, ids, length):
    """State and first results, as _writing's, of an export whose caches go in and come out."""
    import numpy as np

    value = onnxruntime.OrtValue.ortvalue_from_numpy
    inputs = {i.name: i for i in session.get_inputs()}
    handed_on = _handed_on(graph, [n for n in inputs if CACHE_NAME.search(n)])
    pasts, presents = list(handed_on), list(handed_on.values())
    shape = next(i.shape for i in graph.input_names() if i.name == "input_ids") or []
    at_once = next(
        (d for d in shape[1:] if isinstance(d, int)), None
    )  # of an export for so many tokens at a time, mostly one
    if at_once not in (None, 1):
        raise InputError(f"it takes {at_once} tokens at a time", "the model", "")
    empty = {}
    for i in graph.input_names():
        if i.name in pasts:
            empty[i.name] = [d if isinstance(d, int) else 1 for d in i.shape[:3]] + [
                head_dim(graph, i.name, i)
            ]
            empty[i.name][cache_axis(i)] = 0
    state = {}

    def run(new, past):
        total = past + len(new)
        fed = {
            "input_ids": np.array([new], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            "use_cache_branch": np.array([past > 0]),
        }
        fed = {
            n: value(a.astype(np.int32) if inputs[n].type == "tensor(int32)" else a)
            for n, a in fed.items()
            if n in inputs
        }
        for n in pasts:
            if past == 0:
                state[n] = value(np.zeros(empty[n], ORT_TYPES[inputs[n].type]))
            fed[n] = state[n]
        out = dict(
            zip(["logits", *presents], session.run_with_ort_values(["logits", *presents], fed))
        )
        state.update((n, out[p]) for n, p in handed_on.items())
        state["length"] = total
        return out["logits"]

    def prefill():
        if at_once is None:
            return run(ids[:length], 0)
        for i in range(length):
            logits = run(ids[i : i + 1], i)
        return logits

    last = lambda logits: logits.numpy()[0, -1].astype("f4")  # noqa: E731
    first = [last(prefill()), last(run([ids[length]], length))]
    return (prefill, lambda x: run([x], state["length"]), ids[length:], length, None), first


__all__ = ["Report", "bench"]
