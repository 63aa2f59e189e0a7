"""Packages of several graphs: weights that they share are stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...logic.manifest.schema import DeclaredValue, Dim, Inference, InferencePlan, Weight
from ..ir import Graph
from ..onnx import BytesSource
from ..onnx.source import Source
from ..package import Package
from ..plan import Change
from ..plan.notes import NOTES, add_notes, read_notes
from ..targets import CPU, Target
from .inference import add_inference_plan, describe_values, inference_package
from .weights import CONSTANTS, WEIGHT_ALIGNMENT, new_package

PIECE = 1 << 22  # bytes of a weight that are read at once
SHARED = 1 << 12  # smaller weights are not compared with those of other files
Identity = bytes | tuple[str, int, int]
"""What is equal for weights with the same bytes: their digest, or their place."""


class Programs:
    """A package of a pipeline, to which programs are added one after the other.

    Args:
        task: name of the pipeline.
        files: {file name: Source} of the model's files.
        texts: {file name: bytes} of small files that the package gets.
        target: device that the plans are for.
        compare: whether weights of different files are compared, which reads them.
        package: a package that has plans already, which the programs are added to.

    Attributes:
        package: the package so far.
    """

    def __init__(
        self,
        task: str,
        files: Mapping[str, Source],
        texts: Mapping[str, bytes],
        target: Target = CPU,
        compare: bool = True,
        package: Package | None = None,
    ) -> None:
        self.package = package or new_package(task, {}, texts, files, target)
        self.package.manifest.setdefault("programs", {})
        self.files, self.target, self.compare = files, target, compare
        self._places: dict[Identity, list[str]] = {}  # a weight's names in the package
        # A package's own plans count as those of a first graph.
        self._graphs: list[Graph | None] = [] if package is None else [None]

    def add(
        self,
        name: str,
        graph: Graph,
        runs: Sequence[tuple[Mapping[str, Sequence[Any]], tuple[int, int] | None]],
        outputs: Sequence[str] | None = None,
        check: Callable[[InferencePlan], None] | None = None,
        fixed: Mapping[str, Sequence[Any]] | None = None,
        transform: Change | None = None,
        finish: Change | None = None,
    ) -> None:
        """Adds a program, or further plans of one that is there.

        Args:
            name: of the program.
            graph: its graph. Two programs may have the same one.
            runs: for each plan (shapes of the inputs, range of the register that Syms in them
                follow or None).
            outputs: names of the outputs to compute; default: all.
            check: called with the description of each plan; what it raises is passed on.
            fixed: {name of an input: numbers} that never change.
            transform, finish: as of add_inference_plan.

        Raises:
            As add_inference_plan. The package is then unchanged.
        """
        part = inference_package(graph, self.files, self.target)
        part.sources = self.package.sources  # files have one name in the whole package
        part.sources.pop(CONSTANTS, None)
        described = part.manifest["inference"]
        chosen = outputs or [o.name for o in graph.outputs]
        described["outputs"] = describe_values([o for o in graph.outputs if o.name in chosen])
        dtypes = {i.name: i.dtype for i in graph.input_names()}
        before = self.package.manifest["programs"].get(name, {"plans": []})["plans"]
        for i, (shapes, register) in enumerate(runs, len(before)):
            plan = add_inference_plan(
                part,
                graph,
                shapes,
                dtypes,
                chosen,
                fixed,
                file=f"{name}/plan/{i}",
                target=self.target,
                register=register,
                transform=transform,
                finish=finish,
            )
            if check is not None:
                check(plan)
        if transform is not None:
            _describe_changed(described)
        known = next((i for i, g in enumerate(self._graphs) if g is graph), None)
        if known is None:
            known = len(self._graphs)
            self._graphs.append(graph)
        self._merge(name, part, f"{known}:" if known else "")

    def _merge(self, name: str, part: Package, prefix: str) -> None:
        """Moves the plans and weights of `part` into the package. prefix: of the names of what is
        computed from the weights of its graph.
        """
        package = self.package
        names = self._add_weights(part, prefix)
        for plan in part.manifest["inference"]["plans"]:
            for slot in plan["slots"]:
                if slot["kind"] == "weight":
                    slot["name"] = names[slot["name"]]
                elif slot["kind"] == "computed":
                    slot["name"] = prefix + slot["name"]
        programs = {**package.manifest["programs"]}
        made = part.manifest["inference"]
        if name in programs:
            made["plans"] = [*programs[name]["plans"], *made["plans"]]
        programs[name] = made
        package.manifest["programs"] = programs
        package.manifest["kernels"] = sorted(
            {*package.manifest.get("kernels", ()), *part.manifest["kernels"]}
        )
        for file, data in part.blobs.items():
            if file == NOTES:
                package.blobs[NOTES] = add_notes(package.blobs.get(NOTES), read_notes(data))
            elif file != CONSTANTS:
                package.blobs[file] = data
        package.labels.update(part.labels)

    def _add_weights(self, part: Package, prefix: str) -> dict[str, str]:
        """Adds the weights of `part`; returns their names in the package."""
        package, names = self.package, {}
        weights = package.manifest["weights"]
        taken, used = {w["name"] for w in weights}, set[str]()
        small = bytearray(package.blobs.get(CONSTANTS, b""))
        for w in part.manifest["weights"]:
            data = None
            if w["file"] == CONSTANTS:
                data = part.blobs[CONSTANTS][w["offset"] : w["offset"] + w["bytes"]]
            key = self._identity(w, data)
            # A plan has one slot of a name: equal weights of one graph are stored apart.
            places = self._places.setdefault(key, [])
            found = next((place for place in places if place not in used), None)
            if found is None:
                found = w["name"] if w["name"] not in taken else prefix + w["name"]
                while found in taken:
                    found = f"{found}'"
                taken.add(found)
                places.append(found)
                entry: Weight = {**w, "name": found}
                if data is not None:
                    entry["offset"] = len(small)
                    small += data + bytes(-len(data) % WEIGHT_ALIGNMENT)
                weights.append(entry)
            used.add(found)
            names[w["name"]] = found
        if small:
            package.blobs[CONSTANTS] = bytes(small)
            package.sources[CONSTANTS] = BytesSource(small, CONSTANTS)
        return names

    def _identity(self, w: Weight, data: bytes | None) -> Identity:
        """What is equal for weights with the same bytes: their digest, or their place."""
        if data is not None:
            return hashlib.sha256(data).digest()
        place = (w["file"], w["offset"], w["bytes"])
        if not self.compare or w["bytes"] < SHARED:
            return place
        digest, source = hashlib.sha256(), self.package.sources[w["file"]]
        for at in range(0, w["bytes"], PIECE):
            digest.update(source.read(w["offset"] + at, min(PIECE, w["bytes"] - at)))
        return digest.digest()


def _describe_changed(described: Inference) -> None:
    """Describes the inputs and outputs of a program whose graph was changed as its plans do."""
    (plan, *_), known = described["plans"], {d["name"] for d in described["inputs"]}

    def entry(name: str, dtype: str, shape: Sequence[Dim]) -> DeclaredValue:
        dims: list[int | str | None] = [None if isinstance(d, list) else d for d in shape]
        return {"name": name, "type": "tensor", "dtype": dtype, "shape": dims}

    described["inputs"] += [
        entry(name, dtype, shape)
        for name, (dtype, shape) in plan["inputs"].items()
        if name not in known
    ]
    described["outputs"] = [
        entry(name, dtype, shape) for name, (_, dtype, shape, _) in plan["outputs"].items()
    ]
