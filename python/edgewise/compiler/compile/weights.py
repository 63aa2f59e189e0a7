"""Plans of a model in a package, and where their weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...errors import ModelError
from ...logic.manifest.limits import FORMAT
from ...logic.manifest.schema import Manifest, Weight
from ..ir import Tensor, content_of
from ..onnx import BytesSource
from ..onnx.source import Source
from ..package import Package
from ..plan import Plan
from ..plan.notes import NOTES, add_notes
from ..targets import CPU, Target

CONSTANTS = "//constants"  # part of a package; no file of a model has this name
WEIGHT_ALIGNMENT = 64  # bytes


def new_package(
    task: str,
    fields: Mapping[str, object],
    blobs: Mapping[str, bytes],
    files: Mapping[str, Source],
    target: Target = CPU,
) -> Package:
    """A package without plans and weights.

    Args:
        task: "text-generation" or "inference".
        fields: of the manifest, besides those of every package.
        blobs: {file name: bytes} of parts.
        files: {file name: Source} of the model's files.
        target: device that its plans are for.
    """
    manifest: dict[str, object] = {
        "format": FORMAT,
        "table_hash": target.kernel_table().hash,
        "task": task,
        **({} if target.name == "cpu" else {"target": target.name}),
        "files": {},
        "weights": [],
        **fields,
    }
    return Package(cast("Manifest", manifest), dict(blobs), dict(files))


def add_plans(package: Package, plans: Sequence[tuple[str, Plan]]) -> None:
    """Puts plans into a package, and into its manifest where their weights are.

    Args:
        package: the package.
        plans: (name of the part, plan).
    """
    package.blobs[NOTES] = add_notes(
        package.blobs.get(NOTES), {file: plan.notes for file, plan in plans}
    )
    weights = {w["name"]: w for w in package.manifest["weights"]}
    known: dict[str, Any] = {}
    small = bytearray(package.blobs.get(CONSTANTS, b""))
    for file, plan in plans:
        package.blobs[file] = plan.data
        package.labels[file] = plan.labels
        # By these names a page decides whether its engine can run the package.
        package.manifest["kernels"] = sorted({*package.manifest.get("kernels", ()), *plan.kernels})
        for slot in plan.slots:
            t = slot.tensor
            if t is None:
                continue
            key = content_of(t), getattr(t.source, "name", "")
            if known.setdefault(slot.name, key) != key:
                raise ModelError(
                    f"two of its constants are named '{slot.name}'", file, "Export the model again."
                )
            experts = plan.experts.get(slot.name)
            if slot.name in weights:
                if weights[slot.name].get("experts") != experts:
                    weights[slot.name].pop("experts", None)
                continue
            if t.source is not None:
                entry = _weight_entry(package, slot.name, t, t.source, slot.nbytes)
                weights[slot.name] = {**entry, "experts": experts} if experts else entry
                continue
            assert t.data is not None  # a constant that the graph itself spells out
            weights[slot.name] = {
                "name": slot.name,
                "file": CONSTANTS,
                "offset": len(small),
                "bytes": slot.nbytes,
            }
            small += t.data + bytes(-len(t.data) % WEIGHT_ALIGNMENT)
    if small:
        package.blobs[CONSTANTS] = bytes(small)
        package.sources[CONSTANTS] = BytesSource(small, CONSTANTS)
    package.manifest["weights"] = list(weights.values())


def add_weight(package: Package, tensor: Tensor) -> None:
    """Puts a tensor of one of the model's files into the manifest, under its own name."""
    weights = package.manifest["weights"]
    if all(w["name"] != tensor.name for w in weights):
        source: Any = tensor.source
        weights.append(_weight_entry(package, tensor.name, tensor, source, tensor.nbytes))


def _weight_entry(
    package: Package, name: str, tensor: Tensor, source: Source, nbytes: int
) -> Weight:
    paths = [path for path, s in package.sources.items() if s is source]
    path = paths[-1] if paths else source.name
    known = package.sources.setdefault(path, source)
    if known is not source and getattr(known, "path", known) != getattr(source, "path", source):
        raise ModelError("two files have this name", path, "Rename one of them.")
    entry: Weight = {"name": name, "file": path, "offset": tensor.offset, "bytes": nbytes}
    if tensor.power is not None:
        entry["power"] = tensor.power
    return entry
