"""`Profile`: what the plans of a session did while they were watched. web/src/page/profile.ts has
the same for pages.
"""

from __future__ import annotations

import json
from array import array
from os import PathLike, fspath
from time import perf_counter

from ..errors import InputError, StorageError
from ..plan.plan import HEADER, REGISTER
from .table import text

# bytes that come so many times as quickly as memory gives them came from a cache; below, the limit
# was measured a little low
CACHED = 1.1


class Watch:
    """What the plans of one session look at before they run: the Profile that watches them, or
    None.
    """

    def __init__(self):
        self.profile = None


class _Plan:
    """A plan that ran. runs: [(seconds since the profile began, array of seconds by step, place
    between the registers' lowest and highest values)].
    """

    def __init__(self, loaded):
        plan = loaded.plan
        self.name, self.arena_bytes = loaded.title, HEADER.unpack_from(plan.data)[7]
        self.kernels = plan.kernels[plan.init_count :]
        self.notes = plan.notes if len(plan.notes) == len(self.kernels) else None
        self.runs = []

    def row(self, i):
        """(node, operator, operations, bytes, bytes of the arena in use) of a step, as far as they
        are known: the last three pairs or numbers, or None.
        """
        n = self.notes
        return (
            (n.node[i], n.op[i] or self.kernels[i], n.operations[i], n.bytes[i], n.in_use[i])
            if n
            else ("", self.kernels[i], None, None, None)
        )

    def arithmetic(self, i):
        """The limit of a step's operations."""
        return "int8" if self.notes and self.notes.integer[i] else "float32"


class Profile:
    """Times of the steps of all plans of a session, taken while a `with` block runs.

    Each run of a step is kept: 8 bytes.

    A step's time is that of its kernel, threads included; what happens between steps costs two
    readings of the clock. Work is what the algorithm asks for: two operations for each product of a
    matrix product, convolution or attention, in floats or integers, and each operand's elements
    read or written once. What it is compared with is in `limits`. Attributes: engine; wall: seconds
    in `with` blocks.
    """

    def __init__(self, engine, watches):
        self.engine, self.watches = engine, watches
        self.plans, self.wall = {}, 0.0
        self._begun = self._first = None
        self._limits = None

    # ---- watching ----
    def __enter__(self):
        if any(w.profile is not None for w in self.watches):
            raise InputError(
                "another profile is watching already", "profile", "Let its `with` block end first."
            )
        for w in self.watches:
            w.profile = self
        self._begun = perf_counter()
        self._first = self._first or self._begun
        return self

    def __exit__(self, *_):
        for w in self.watches:
            w.profile = None
        self.wall += perf_counter() - self._begun

    def record(self, loaded):
        """Runs a plan, timed: what LoadedPlan.run does while it is watched."""
        key = (id(loaded.plan), loaded.title)
        at = perf_counter() - self._first
        seconds = array("d", loaded.run_timed())
        if key not in self.plans:
            self.plans[key] = _Plan(loaded), loaded.plan  # the second keeps its id its own
        self.plans[key][0].runs.append((at, seconds, _place(loaded)))

    # ---- what is known ----
    @property
    def runs(self):
        """Number of runs of plans."""
        return sum(len(p.runs) for p, _ in self.plans.values())

    @property
    def seconds(self):
        """Time in steps."""
        return sum(sum(s) for p, _ in self.plans.values() for _, s, _ in p.runs)

    @property
    def limits(self):
        """{"float32", "int8", "memory"}: what this engine reaches with its threads in a large
        product of float32 and of int8 (10^9 operations per second), and in summing 128 MB (10^9
        bytes per second); measured when first asked for, in some 0.15 s. None for what the engine
        has no kernel or memory for.
        """
        if self._limits is None:
            from .limits import measure

            self._limits = measure(self.engine)
        return self._limits

    def _steps(self):
        """(plan, step, calls, seconds, operations, bytes) of each step, over its runs."""
        for p, _ in self.plans.values():
            for i in range(len(p.kernels)):
                _, _, operations, moved, _ = p.row(i)
                yield (
                    p,
                    i,
                    len(p.runs),
                    sum(s[i] for _, s, _ in p.runs),
                    *(
                        sum(x[0] + (x[1] - x[0]) * place for _, _, place in p.runs) if x else 0
                        for x in (operations, moved)
                    ),
                )

    def _compared(self, p, i, seconds, operations, moved):
        """(limit, least seconds) of a step over its runs: what its operations, or its bytes, take
        at least. ("cache", None): only bytes are known, and they came quicker than memory gives
        them. (None, None): nothing is known.
        """
        kind, limits = p.arithmetic(i), self.limits
        computing = operations / 1e9 / limits[kind] if operations and limits[kind] else 0
        reading = moved / 1e9 / limits["memory"] if limits["memory"] else 0
        if not seconds or not (computing or reading):
            return None, None
        if reading > CACHED * seconds:
            return (kind, computing) if computing else ("cache", None)
        return (kind, computing) if computing >= reading else ("memory", min(reading, seconds))

    def _grouped(self, key):
        """Rows of steps with one key, the longest first."""
        groups, total = {}, self.seconds
        for p, i, calls, t, operations, moved in self._steps():
            names = key(p, i)
            g = groups.setdefault(
                tuple(names.values()),
                {**names, "calls": 0, "ms": 0.0, "operations": 0, "bytes": 0, "limits": {}},
            )
            for field, x in (
                ("calls", calls),
                ("ms", 1000 * t),
                ("operations", operations),
                ("bytes", moved),
            ):
                g[field] += x
            limit, least = self._compared(p, i, t, operations, moved)
            known = g["limits"].setdefault(limit, [0.0, 0.0])
            known[0] += t
            known[1] += least or 0
        for g in groups.values():
            s, limits = g["ms"] / 1000, g.pop("limits")
            g["share"] = s / total if total else 0.0
            g["gops"], g["gbs"] = (
                round(g[x] / s / 1e9, 3) if s and g[x] else None for x in ("operations", "bytes")
            )
            g["limit"] = max(limits, key=lambda name: limits[name][0])
            compared = [x for name, x in limits.items() if name in self.limits]
            known = sum(t for t, _ in compared)
            g["of_limit"] = (
                sum(least for _, least in compared) / known
                if known and g["limit"] in self.limits
                else None
            )
        return sorted(groups.values(), key=lambda g: -g["ms"])

    def by_op(self):
        """A list of dicts for each operator: op, calls, ms, share (of all steps' time), operations,
        bytes, gops, gbs (10^9 operations and bytes per second; None where nothing is known of the
        work), limit, of_limit.

        limit: which of `limits` binds it: its operations alone ("float32", or "int8" where they may
        be done in integers) or its bytes alone ("memory") would take longest; of_limit: that least
        time over the time it took. Where operands come quicker than memory gives them they lie in a
        cache, and only operations are compared; limit is "cache", of_limit None, where there are
        none. Of several steps, limit is that of most of the time. None, None: nothing is known.
        """
        return self._grouped(lambda p, i: {"op": p.row(i)[1]})

    def by_node(self):
        """The same for each node of each plan: plan, node, op, kernel as well.

        A node that became several kernels has several rows.
        """
        return self._grouped(
            lambda p, i: {
                "plan": p.name,
                "node": p.row(i)[0],
                "op": p.row(i)[1],
                "kernel": p.kernels[i],
            }
        )

    def by_plan(self):
        """Each plan: plan, runs, ms (in all), and of its arena in bytes: arena, most_in_use, and at
        (the step, the node there); None where a package has no notes.
        """
        out = []
        for p, _ in self.plans.values():
            most = (
                max(range(len(p.kernels)), key=lambda i: p.row(i)[4], default=None)
                if p.notes
                else None
            )
            out.append(
                {
                    "plan": p.name,
                    "runs": len(p.runs),
                    "steps": len(p.kernels),
                    "ms": 1000 * sum(sum(s) for _, s, _ in p.runs),
                    "arena": p.arena_bytes,
                    "most_in_use": None if most is None else p.row(most)[4],
                    "at": None if most is None else [most, p.row(most)[0] or p.row(most)[1]],
                }
            )
        return sorted(out, key=lambda r: -r["ms"])

    def memory(self):
        """Memory over time: a list of dicts, of each plan that has notes: plan, runs, ms (of a
        run), arena (bytes), steps: [(node, operator, ms, bytes of the arena in use)] of a run;
        times are means over the runs.
        """
        out = []
        for p, _ in self.plans.values():
            if p.notes:
                steps = [
                    (
                        *p.row(i)[:2],
                        1000 * sum(s[i] for _, s, _ in p.runs) / len(p.runs),
                        p.row(i)[4],
                    )
                    for i in range(len(p.kernels))
                ]
                out.append(
                    {
                        "plan": p.name,
                        "runs": len(p.runs),
                        "ms": sum(s[2] for s in steps),
                        "arena": p.arena_bytes,
                        "steps": steps,
                    }
                )
        return sorted(out, key=lambda r: -r["ms"] * r["runs"])

    def as_dict(self):
        """Everything but single runs, for JSON."""
        return {
            "flavour": self.engine.flavour,
            "threads": self.engine.threads,
            "runs": self.runs,
            "ms": 1000 * self.seconds,
            "wall_ms": 1000 * self.wall,
            "limits": self.limits,
            "plans": self.by_plan(),
            "ops": self.by_op(),
            "nodes": self.by_node(),
        }

    def __str__(self):
        return text(self.as_dict())

    # ---- a trace ----
    def trace(self):
        """Chrome's trace events, as a dict: every run, in it its steps, and the arena's bytes in
        use over time.
        """
        events = [
            {
                "ph": "M",
                "pid": 1,
                "tid": 1,
                "name": "process_name",
                "args": {
                    "name": f"Edgewise ({self.engine.flavour}, {self.engine.threads} threads)"
                },
            },
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "steps"}},
        ]
        for p, _ in self.plans.values():
            rows = [p.row(i) for i in range(len(p.kernels))]
            for at, seconds, place in p.runs:
                t = 1e6 * at
                events.append(
                    {
                        "ph": "X",
                        "pid": 1,
                        "tid": 1,
                        "name": p.name or "plan",
                        "cat": "run",
                        "ts": round(t, 3),
                        "dur": round(1e6 * sum(seconds), 3),
                    }
                )
                for (node, op, operations, moved, used), kernel, s in zip(rows, p.kernels, seconds):
                    args = {"node": node, "kernel": kernel}
                    for name, x in (("GOP/s", operations), ("GB/s", moved)):
                        if x and s and (count := x[0] + (x[1] - x[0]) * place):
                            args[name] = round(count / s / 1e9, 2)
                    if used is not None:
                        events.append(
                            {
                                "ph": "C",
                                "pid": 1,
                                "name": "arena",
                                "ts": round(t, 3),
                                "args": {"bytes in use": used},
                            }
                        )
                    events.append(
                        {
                            "ph": "X",
                            "pid": 1,
                            "tid": 1,
                            "name": op,
                            "cat": kernel,
                            "ts": round(t, 3),
                            "dur": round(1e6 * s, 3),
                            "args": args,
                        }
                    )
                    t += 1e6 * s
                if p.notes:
                    events.append(
                        {
                            "ph": "C",
                            "pid": 1,
                            "name": "arena",
                            "ts": round(t, 3),
                            "args": {"bytes in use": 0},
                        }
                    )
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path):
        """Writes the trace: Chrome trace JSON, as Perfetto (https://ui.perfetto.dev) and
        chrome://tracing read it. Raises StorageError where the file cannot be written, InputError
        for what is no path.
        """
        if not isinstance(path, (str, PathLike)):
            raise InputError(
                f"a {type(path).__name__} is no path", "save", "Name the file to write."
            )
        text = json.dumps(self.trace(), separators=(",", ":"))
        try:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        except OSError as e:
            raise StorageError(
                f"it cannot be written ({e.strerror or e})",
                fspath(path),
                "Check the path, its permissions and the space that is left.",
            ) from None


def _place(loaded):
    """Where the plan's first register stands between its lowest (0) and highest (1) value: in a
    decoder's plans, how full the cache is.
    """
    data = loaded.plan.data
    if not loaded.registers or not HEADER.unpack_from(data)[2]:
        return 0.0
    low, high = REGISTER.unpack_from(data, HEADER.unpack_from(data)[8])
    return (loaded.registers.get(0, low) - low) / (high - low) if high > low else 0.0
