"""Runs one program of a package of a task: a graph with plans for several shapes or a range of
lengths, compiled ahead of time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import as_output
from ...compiler.declare.dtypes import CODE, bytes_for
from ...compiler.declare.registers import Rule
from ...compiler.ir import Info
from ...compiler.plan.notes import NOTES, read_notes
from ...compiler.plan.plan import Plan, Slot, step_kernels
from ...errors import InputError, PackageError
from ...logic.manifest.schema import DeclaredValue, Dim, InferencePlan
from ...logic.tasks.lengths import PlanSize, fitting_size
from ...seeds import RunSeeds, check_seed
from ..engine import Buffer, Ends, Owner, default_engine
from ..profile import Profile, Watch
from .feeds import from_caller
from .open import check_device
from .weights import WeightStore, checks_of, weight_of

if TYPE_CHECKING:
    from ...compiler.package import Package
    from ..engine import Engine

__all__ = ["ProgramSession"]

FIRST_TRIPS = 1000  # iterations of a plan's loops before signals are handled


class ProgramSession(Owner):
    """A program of a package, with the part of InferenceSession's interface that pipelines use.

    Args:
        package: a package with `programs`.
        name: of the program.
        engine: the Engine to use; by default that of the process.

    Attributes:
        inputs: {name: Info}.
        outputs: {name: Info} of those that its plans compute.
        plans: one for each set of shapes.

    Raises:
        PackageError: the package has no such program, or is for another version of the engine or
            another device.
    """

    MAX_PLANS = 0  # all are loaded; pipelines set it

    def __init__(self, package: Package, name: str, engine: Engine | None = None) -> None:
        self.start_lock()
        self.engine = engine or default_engine()
        self.device, self.package, self.name = self.engine.device, package, name
        check_device(package.manifest, self.device)
        described = package.manifest.get("programs", {}).get(name)
        if described is None:
            raise PackageError(f"it has no program '{name}'", "package", "Build it again.")
        self.inputs = _infos(described["inputs"])
        plans = described["plans"]
        computed = {n for p in plans for n in (*p["outputs"], *p.get("passed", {}))}
        self.outputs = {n: i for n, i in _infos(described["outputs"]).items() if n in computed}
        self.watch, self.ends = Watch(), Ends()
        self.store = WeightStore(self.device, None, checks_of(package))
        self.plans: list[_ProgramPlan] = []
        try:
            notes = read_notes(package.file(NOTES))
            for p in plans:
                self.plans.append(_ProgramPlan(self, p, notes))
        except BaseException:
            self.free()
            raise

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        seeds: RunSeeds | None = None,
    ) -> list[Any]:
        """Runs the program. Mirrors InferenceSession.run.

        Args:
            output_names, input_feed, run_options: as there; of the options `seed`.
            seeds: of a run of several programs, instead of the options' seed.

        Raises:
            InputError: an input is missing, or no plan has its shape.
        """
        if seeds is None:
            seeds = RunSeeds(check_seed(getattr(run_options, "seed", None), "run_options.seed"))
        names = list(self.outputs) if output_names is None else list(output_names)
        given = {n: from_caller(x, self.inputs[n]) for n, x in input_feed.items()}
        shapes = {n: list(getattr(x, "shape", ())) for n, x in given.items()}
        with self.lock:
            for plan in self.plans:
                values = plan.values_for(shapes)
                if values is not None:
                    return plan.run(names, given, values, seeds)
        raise InputError(
            "no plan of the package has these shapes: "
            + ", ".join(f"{n} {s}" for n, s in shapes.items()),
            self.name,
            "Give a shorter or smaller input, or the model's folder instead of the package.",
        )

    def size_for(self, name: str, axis: int, least: int) -> int:
        """The smallest size from `least` on of an input's dimension that a plan takes; `least`, if
        none does.
        """
        sizes = []
        for plan in self.plans:
            dim = plan.described["inputs"][name][1][axis]
            sizes.append(PlanSize(dim if isinstance(dim, list) else [dim], plan.registers))
        return fitting_size(sizes, least)

    @property
    def most(self) -> dict[str, int]:
        """{input: the largest size of its last dimension that a plan takes}"""
        found: dict[str, int] = {}
        for plan in self.plans:
            values: list[int] = []
            for entry in plan.registers:
                values.append(entry[1] if len(entry) == 2 else Rule(*entry).at(values))
            for name, (_, dims) in plan.described["inputs"].items():
                size = _shape_at(dims[-1:], values)
                found[name] = max(found.get(name, 0), *size) if size else 0
        return found

    def varies(self, name: str, axis: int) -> bool:
        """Whether a dimension of an output depends on the size of the inputs."""
        dims = [plan.described["outputs"][name][2] for plan in self.plans]
        found = [shape[axis] if axis < len(shape) else None for shape in dims]
        return any(isinstance(d, list) or d != found[0] for d in found)

    def profile(self) -> Profile:
        """As InferenceSession.profile."""
        return Profile(self.engine, [self.watch])

    def free(self) -> None:
        """Frees the memory of the plans and weights."""
        with self.lock:
            for plan in self.plans:
                plan.free()
            self.plans = []
            self.store.free()


class _ProgramPlan:
    """A plan with its inputs and outputs in memory of its own.

    Args:
        session: the session.
        described: its description in the manifest (compile.inference.describe_plan).
        notes: of the package.
    """

    def __init__(
        self, session: ProgramSession, described: InferencePlan, notes: Mapping[str, Any]
    ) -> None:
        self.session, self.described = session, described
        self.device = session.device
        self.buffers: dict[str, Buffer] = {}
        weights = {w["name"]: w for w in session.package.manifest["weights"]}
        slots = [
            Slot(s["name"], s["kind"], 2, [s["bytes"]], s["bytes"]) for s in described["slots"]
        ]
        for slot in slots:
            if slot.kind == "weight":
                slot.tensor = weight_of(session.package, weights[slot.name])
        file = described["file"]
        data = session.package.file(file) or b""
        kernels, init = step_kernels(data)
        # the ranges of lengths, and rules of what follows from them
        self.registers: list[Sequence[int]] = [
            *([described["register"]] if "register" in described else []),
            *described.get("registers", ()),
        ]
        registers = [f"length{i}" for i, entry in enumerate(self.registers) if len(entry) == 2]
        labels = session.package.labels.get(file, [])
        plan = Plan(data, slots, registers, labels, kernels, 0, init, notes=notes.get(file))
        plan.name = file
        self.loaded = self.device.load_plan(plan)
        self.loaded.trips = FIRST_TRIPS if plan.loops else 0
        try:
            self.loaded.watch, self.loaded.ends, self.loaded.title = (
                session.watch,
                session.ends,
                file,
            )
            fresh = session.store.connect(self.loaded)
            for i, slot in enumerate(slots):
                if slot.kind in ("input", "output"):
                    self.buffers[slot.name] = self.device.allocate(slot.nbytes)
                    self.loaded.bind(i, self.buffers[slot.name])
            session.store.init(self.loaded, fresh)
        except BaseException:
            self.free()
            raise

    def values_for(self, shapes: Mapping[str, Sequence[int]]) -> list[int] | None:
        """The values of the registers for inputs of these shapes; None: they do not fit."""
        found: dict[int, int] = {}
        for name, (_, dims) in self.described["inputs"].items():
            shape = shapes.get(name)
            if shape is None or len(shape) != len(dims):
                return None
            for size, dim in zip(shape, dims):
                if isinstance(dim, list):
                    register = dim[2] if len(dim) > 2 else 0
                    found.setdefault(register, (size - dim[1]) // dim[0])
        values: list[int] = []
        for i, entry in enumerate(self.registers):
            value = found.get(i) if len(entry) == 2 else Rule(*entry).at(values)
            if value is None or (len(entry) == 2 and not entry[0] <= value <= entry[1]):
                return None
            values.append(value)
        fits = all(
            list(shapes[name]) == _shape_at(dims, values)
            for name, (_, dims) in self.described["inputs"].items()
        )
        return values if fits else None

    def run(
        self, names: Sequence[str], feeds: Mapping[str, Any], values: Sequence[int], seeds: RunSeeds
    ) -> list[Any]:
        """Runs the plan on inputs that fit it. values: of the registers. Returns the outputs."""
        for i, entry in enumerate(self.registers):
            if len(entry) == 2:
                self.loaded.register(i, values[i])
        for name in self.described["inputs"]:
            if name in self.buffers:
                self.device.write(self.buffers[name], feeds[name].bytes())
        if "seed" in self.described:
            seed = struct.pack("<q", seeds.next())
            self.device.write(self.buffers[self.described["seed"]], seed)
        self.loaded.run()
        found = []
        for name in names:
            source = self.described.get("passed", {}).get(name)
            if source is not None:
                value = feeds[source]
                found.append(as_output(value.dtype, value.shape, bytes(value.bytes())))
                continue
            slot, dtype, dims, _ = self.described["outputs"][name]
            shape = _shape_at(dims, values)
            count = 1
            for d in shape:
                count *= d
            data = self.device.read(self.buffers[slot], 0, bytes_for(CODE[dtype], count))
            found.append(as_output(CODE[dtype], shape, data))
        return found

    def free(self) -> None:
        """Frees the plan and its memory."""
        self.loaded.free()
        for buffer in self.buffers.values():
            self.device.release(buffer)
        self.buffers = {}


def _infos(described: Sequence[DeclaredValue]) -> dict[str, Info]:
    return {d["name"]: Info(d["name"], CODE.get(d["dtype"], 0), d["shape"]) for d in described}


def _shape_at(dims: Sequence[Dim], values: Sequence[int]) -> list[int]:
    """A described shape at values of the registers."""
    return [
        d[0] * values[d[2] if len(d) > 2 else 0] + d[1] if isinstance(d, list) else d for d in dims
    ]
