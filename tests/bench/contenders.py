"""Contenders of the benchmark: names that all cases share, native engines in this process, the
limits of the machine, and the rounds in which they are measured.
"""

from __future__ import annotations

import os
import time

import numpy as np

from .browser import say
from .stats import summary

SIMD, ONE, TWO = (
    "Edgewise simd128, 1 thread",
    "Edgewise relaxed, 1 thread",
    "Edgewise relaxed, 2 threads",
)
ORT_ONE, ORT_TWO = "onnxruntime-web, 1 thread", "onnxruntime-web, 2 threads"
ORT_TRAINING = "1.19.2"
TRAINING_ONE, TRAINING_TWO = (
    f"onnxruntime-web {ORT_TRAINING}, 1 thread",
    f"onnxruntime-web {ORT_TRAINING}, 2 threads",
)
TF, JAX, JAX_TWO = "TensorFlow.js, 1 thread", "jax-js, 1 thread", "jax-js, 2 threads"
WLLAMA_ONE, WLLAMA_TWO = "wllama, 1 thread", "wllama, 2 threads"
NATIVE, NATIVE_TWO, TORCH = (
    "native onnxruntime, 1 thread",
    "native onnxruntime, 2 threads",
    "native PyTorch, 1 thread",
)
EDGEWISE = {
    SIMD: ("simd128", 1),
    ONE: ("relaxed-threads", 1),
    TWO: ("relaxed-threads", 2),
}  # flavour, threads

SLOW = 4.0  # seconds: a contender with longer turns takes part in two rounds only


def turns(bench, contenders, rounds, seconds, turn, limits=None, title=""):
    """Runs the rounds; returns {contender: [result of turn(name, contender, number) in each
    round]}.

    Every contender has one turn per round, and the first one rotates. Round -1 warms up and checks
    the results; it is not recorded. Contenders that fail are reported and removed from
    `contenders`; slow ones take part in two rounds.
    """
    found = {who: [] for who in contenders}
    took = dict.fromkeys(contenders, 0.0)
    end = time.monotonic() + seconds
    for number in range(-1, rounds):
        if number >= 2 and time.monotonic() > end:
            break
        names = list(contenders)
        shift = max(number, 0) % max(1, len(names))
        for who in names[shift:] + names[:shift]:
            if number >= 2 and took[who] > SLOW:
                continue
            begin = time.monotonic()
            try:
                value = turn(who, contenders[who], number)
            except Exception as e:
                bench.failed(f"{who}{title and ', ' + title}", e)
                del contenders[who], found[who]
                continue
            took[who] = time.monotonic() - begin
            if number >= 0:
                found[who].append(value)
        if limits and number >= 0:
            limits.measure()
    return found


def leave_out(bench, title, differences, allowed, *measured):
    """Removes contenders with wrong results, so that no figures of them are reported.

    Contenders with a difference from the reference above the allowed one are reported and removed
    from every dictionary of `measured`, {contender: anything}.

    Args:
        differences, allowed: {contender: number}.

    Returns the removed contenders.
    """
    found = [who for who, difference in differences.items() if not difference <= allowed[who]]
    for who in found:
        bench.trouble.append(
            f"{who}{title and ', ' + title}: its results differ by {differences[who]:.3g}, where"
            f" {allowed[who]:g} is allowed: NOT COMPARABLE, left out"
        )
        say("  " + bench.trouble[-1])
        for of in measured:
            of.pop(who, None)
    return found


def measure(bench, title, pages, calls, native, rounds, seconds, differs, ms=200, limits=None):
    """Measures one model in all of `pages`; the pages are opened once for many models.

    Args:
        calls: {contender: arguments of its method `model`}.
        native: {contender: function that prepares run()}.
        differs: (result, onnxruntime-web's result) -> (difference, allowed difference).

    Returns {contender: [ms of each round]}, {contender: [processor ms of each round]}, {contender:
    version}, {contender: difference}.
    """
    taking, results, versions = {}, {}, {}
    for who, arguments in calls.items():
        if who not in pages:
            continue
        try:
            pages[who].renew()
            versions[who] = (pages[who].call("model", *arguments) or {}).get("version")
            taking[who] = pages[who]
        except Exception as e:
            bench.failed(f"{who}, {title}", e)
    taking |= natives(bench, native)

    def turn(who, one, number):
        here = isinstance(one, Native)
        times = (
            one.times(ms if number >= 0 else 0)
            if here
            else one.call_and_find("modelTimes", ms if number >= 0 else 0)
        )
        if number < 0:
            results[who] = one.result if here else one.floats("modelResult")
        return float(np.median(times[1:])), (
            None if here else one.worked / len(times)
        )  # the first contender ran with cold caches

    found = turns(bench, taking, rounds, seconds, turn, limits, title)
    compared = (
        {who: differs(np.ravel(y), results[ORT_ONE]) for who, y in results.items()}
        if ORT_ONE in results
        else {}
    )
    differences, allowed = ({who: both[i] for who, both in compared.items()} for i in (0, 1))
    leave_out(bench, title, differences, allowed, found)
    return (
        {w: [x[0] for x in v] for w, v in found.items() if v},
        {w: [x[1] for x in v] for w, v in found.items() if v and v[0][1]},
        versions,
        differences,
    )


class Limits:
    """The limits of one thread of this machine in Chromium, measured in the same rounds by
    page/limits.c.

    Multiply-adds in GFLOP/s, dot products of bytes in GOP/s (simd128: of 16-bit integers), and
    memory reads in GB/s.
    """

    UNITS = {
        "flops": "GFLOP/s multiply-add",
        "dots": "GOP/s in dot products",
        "bandwidth": "GB/s read of 64 MB",
    }

    def __init__(self, bench):
        self.pages = {f: one for f in ("simd128", "relaxed") if (one := bench.limit(f))}
        self.found = {f: {} for f in self.pages}

    def measure(self):
        for flavour, one in self.pages.items():
            for key, value in one.call("measure").items():
                self.found[flavour].setdefault(key, []).append(value)

    def median(self, key, flavour="relaxed"):
        values = self.found.get(flavour, {}).get(key)
        return float(np.median(values)) if values else None

    def note(self):
        """The limits as text for the note below a table."""
        return (
            "The machine in the same rounds, 1 thread in Chromium: "
            + "; ".join(
                f"{flavour}: "
                + ", ".join(f"{summary(v)['median']:.3g} {self.UNITS[k]}" for k, v in found.items())
                for flavour, found in self.found.items()
                if found
            )
            + "."
        )

    def share(self, ms, flops=0, bytes=0, dots=0, flavour="relaxed"):
        """Returns [fraction of the binding limit, its name] of work that took the given
        milliseconds, or None if the limits were not measured.
        """
        floors = [
            (1e-6 * work / peak, name)
            for work, key, name in (
                (flops, "flops", "multiply-adds"),
                (dots, "dots", "byte dot products"),
                (bytes, "bandwidth", "memory read"),
            )
            if work and (peak := self.median(key, flavour))
        ]
        return [float(max(floors)[0] / ms), max(floors)[1]] if floors else None

    def close(self):
        for one in self.pages.values():
            one.close()


def native_session(model, threads=1):
    """Creates an onnxruntime session in this process, of a path or the bytes of a model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    model = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Native:
    """A function of this process in place of a page: run() returns the result as an array."""

    def __init__(self, run):
        self.run, self.result = run, None

    def times(self, ms, least=2):
        """Returns the milliseconds of each run: at least `least` runs, and as many as take `ms` in
        all.
        """
        found, begin = [], time.perf_counter()
        while len(found) < least or time.perf_counter() - begin < ms / 1e3:
            start = time.perf_counter()
            self.result = self.run()
            found.append(1e3 * (time.perf_counter() - start))
        return found

    def close(self):
        self.run = self.result = None


def natives(bench, makers):
    """Returns {name: Native} from {name: function that prepares run()}; failures are reported."""
    found = {}
    for name, make in makers.items():
        try:
            found[name] = Native(make())
        except Exception as e:
            bench.failed(name, e)
    return found


def busy(seconds=1.0):
    """Returns a warning if other programs are running, or None on a quiet machine. Called while
    nothing is measured.
    """

    def worked():
        fields = [int(x) for x in open("/proc/stat").readline().split()[1:]]
        return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")

    before = worked()
    time.sleep(seconds)
    others = (worked() - before) / seconds
    return (
        f"the machine was busy: other programs took {others:.1f} of {os.cpu_count()} processors, so"
        " figures are lower and wider spread, those of two threads most"
        if others > 0.2
        else None
    )
