"""Persistent tensors in engine memory: weights, and what init steps compute from them.

Plans share the weights that they use. A copy of a weight that only init steps read is freed after
they have run; it is read from its source again if another plan needs it. What was computed for a
plan is freed with the last plan that reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...compiler.ir import Tensor
from ...logic.manifest.limits import PIECE
from ...logic.manifest.package import damaged_weight
from ...logic.manifest.schema import Weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...compiler.package import Package
    from ..engine import Buffer, Device, LoadedPlan


class WeightStore:
    """The weights and computed tensors of a model.

    Args:
        device: where they are stored.
        instead: {name of a weight: Buffer} of weights with another owner.
        checks: {key_of(tensor): (checksums, name of the weight, name of the file)} of weights that
            are checked when they are loaded (sums.py).
    """

    def __init__(
        self,
        device: Device,
        instead: dict[str, Buffer] | None = None,
        checks: dict[tuple[Any, ...], tuple[list[str], str, str]] | None = None,
    ) -> None:
        self.device, self.instead, self.checks = device, instead or {}, checks or {}
        # {key_of(tensor): (buffer, tensor, whether `free` releases it)}. The tensor keeps the key
        # valid, since an id is unique only while its object exists.
        self.weights: dict[tuple[Any, ...], tuple[Buffer, Tensor, bool]] = {}
        self.computed: dict[str, Buffer] = {}  # by name of the slot
        self.readers: dict[str, set[LoadedPlan]] = {}  # of what is computed
        self.kept: set[tuple[Any, ...]] = set()  # keys of weights that runs read

    def weight(self, tensor: Tensor, keep: bool = True) -> Buffer:
        """A weight, which is loaded on first use.

        Args:
            tensor: the weight.
            keep: whether it is kept until `free`; otherwise until init steps have run.

        Raises:
            PackageError: its bytes differ from their checksum.
        """
        key = key_of(tensor)
        if key not in self.weights:
            buffer, owned = self.device.load_tensor(tensor)
            try:
                if key in self.checks:
                    check_sums(self.device, buffer, *self.checks[key])
            except BaseException:
                if owned:
                    self.device.release(buffer)
                raise
            self.weights[key] = (buffer, tensor, owned)
        if keep:
            self.kept.add(key)
        return self.weights[key][0]

    def connect(self, loaded: LoadedPlan) -> list[str]:
        """Binds the weight and computed slots of a loaded plan.

        Returns:
            names of the slots that its init steps must still compute; see `init`
        """
        fresh = []
        try:
            for i, slot in enumerate(loaded.plan.slots):
                if slot.kind == "computed":
                    if slot.name not in self.computed:
                        self.computed[slot.name] = self.device.allocate(slot.nbytes)
                        fresh.append(slot.name)
                    loaded.bind(i, self.computed[slot.name])
                    self.readers.setdefault(slot.name, set()).add(loaded)
            self._bind(loaded, bool(fresh))
        except BaseException:
            self.forget(fresh)
            raise
        return fresh

    def disconnect(self, loaded: LoadedPlan) -> None:
        """Frees what was computed for a plan, which has been freed, and is read by no other."""
        for slot in loaded.plan.slots:
            readers = self.readers.get(slot.name, set()) if slot.kind == "computed" else set()
            if loaded in readers:
                readers.remove(loaded)
                if not readers:
                    self.forget([slot.name])

    def _bind(self, loaded: LoadedPlan, init: bool) -> None:
        """Binds weights. Those that only init steps read are bound if `init` steps will run."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight":
                runs = loaded.in_runs(i)
                if runs or init:
                    assert slot.tensor is not None, slot.name  # all weights have one
                    loaded.bind(i, self.instead.get(slot.name) or self.weight(slot.tensor, runs))

    def init(self, loaded: LoadedPlan, fresh: list[str]) -> None:
        """Runs a plan's init steps if they have something to compute.

        Args:
            loaded: the plan.
            fresh: what `connect` returned.
        """
        if fresh:
            loaded.init()
            self._release(loaded)

    def refresh(self, loaded: LoadedPlan, changed: Iterable[str]) -> None:
        """Binds the weights of a plan again after they have moved or changed, and recomputes what
        depends on them.

        Args:
            loaded: the plan.
            changed: names of the weights that have changed. All states count as changed.
        """
        slots = loaded.plan.slots
        init = any(
            loaded.in_init(i) and (s.kind == "state" or s.kind == "weight" and s.name in changed)
            for i, s in enumerate(slots)
        )
        self._bind(loaded, init)
        if init:
            loaded.init()
            self._release(loaded)

    def _release(self, loaded: LoadedPlan) -> None:
        """Frees the copies of weights that only init steps read, after these have run."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight" and not loaded.in_runs(i):
                loaded.unbind(i)
                assert slot.tensor is not None, slot.name
                key = key_of(slot.tensor)
                if key not in self.kept and key in self.weights and self.weights[key][2]:
                    self.device.release(self.weights.pop(key)[0])

    def forget(self, names: Iterable[str]) -> None:
        """Frees computed slots after an error, so that the next plan computes them again."""
        for name in names:
            self.readers.pop(name, None)
            self.device.release(self.computed.pop(name))

    def free(self) -> None:
        """Frees all copies of weights and all computed tensors. The plans that use them must have
        been freed.
        """
        owned = [buffer for buffer, _, owned in self.weights.values() if owned]
        for buffer in [*owned, *self.computed.values()]:
            self.device.release(buffer)
        self.weights, self.computed, self.readers, self.kept = {}, {}, {}, set()


def weight_of(package: Package, entry: Weight) -> Tensor:
    """A weight that a package's manifest describes, as a tensor of uint8."""
    source, offset = package.weight(entry)
    # The file that a part of a package is in can be mapped.
    while hasattr(source, "source") and hasattr(source, "offset"):
        offset += source.offset
        source = source.source
    return Tensor(entry["name"], 2, (entry["bytes"],), source, offset, entry["bytes"])


def checks_of(package: Package) -> dict[tuple[Any, ...], tuple[list[str], str, str]]:
    """The checksums of a package's weights, for WeightStore."""
    checks = {}
    for entry in package.manifest["weights"]:
        if "sums" in entry:
            tensor = weight_of(package, entry)
            file = getattr(tensor.source, "name", "")
            checks[key_of(tensor)] = entry["sums"], entry["name"], file
    return checks


def key_of(tensor: Tensor) -> tuple[Any, ...]:
    """A key for a weight's bytes: their place in a source, or the name and the bytes."""
    return (
        (id(tensor.source), tensor.offset, tensor.nbytes, tensor.power)
        if tensor.data is None
        else (tensor.name, tensor.data)
    )


def check_sums(device: Device, buffer: Buffer, sums: list[str], weight: str, file: str) -> None:
    """Checks a weight in a device's memory.

    Args:
        device: that owns the memory.
        buffer: the weight's bytes.
        sums: expected checksum of each piece.
        weight: its name, for errors.
        file: its file, for errors.

    Raises:
        PackageError: a checksum does not match.
    """
    nbytes = buffer.nbytes
    for i, expected in enumerate(sums):
        at = i * PIECE
        if device.checksum(buffer, at, min(PIECE, nbytes - at)) != expected:
            raise damaged_weight(weight, i, nbytes, file)
