"""Persistent tensors in engine memory: weights, and what init steps compute from them.

Of a mixture of experts whose file is mapped, an expert's bytes are read, and compared with their
checksums, when a token first needs them: the file may be larger than the memory.

Plans share the weights that they use. A copy of a weight that only init steps read is freed after
they have run; it is read from its source again if another plan needs it. What was computed for a
plan is freed with the last plan that reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...compiler.ir import Tensor
from ...logic.manifest.limits import PIECE
from ...logic.manifest.package import damaged_weight
from ...logic.manifest.schema import Weight
from ..engine.base import Pages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...compiler.package import Package
    from ..engine import Buffer, Device, LoadedPlan


class Check(NamedTuple):
    """What a weight is compared with.

    Attributes:
        sums: the checksum of each piece.
        weight: its name.
        file: the name of its file.
        experts: the number of its parts, if products of experts alone read them.
    """

    sums: list[str]
    weight: str
    file: str
    experts: int = 1


class WeightStore:
    """The weights and computed tensors of a model.

    Args:
        device: where they are stored.
        instead: {name of a weight: Buffer} of weights with another owner.
        checks: {key_of(tensor): Check} of weights that are checked when they are loaded (sums.py).
    """

    def __init__(
        self,
        device: Device,
        instead: dict[str, Buffer] | None = None,
        checks: dict[tuple[Any, ...], Check] | None = None,
    ) -> None:
        self.device, self.instead, self.checks = device, instead or {}, checks or {}
        # {key_of(tensor): (buffer, tensor, whether `free` releases it)}. The tensor keeps the key
        # valid, since an id is unique only while its object exists.
        self.weights: dict[tuple[Any, ...], tuple[Buffer, Tensor, bool]] = {}
        self.computed: dict[str, Buffer] = {}  # by name of the slot
        self.readers: dict[str, set[LoadedPlan]] = {}  # of what is computed
        self.kept: set[tuple[Any, ...]] = set()  # keys of weights that runs read
        self.pages: dict[tuple[Any, ...], Pages] = {}  # of weights of which parts are checked

    def weight(self, tensor: Tensor, keep: bool = True, parts: bool = False) -> Buffer:
        """A weight, which is loaded on first use.

        Args:
            tensor: the weight.
            keep: whether it is kept until `free`; otherwise until init steps have run.
            parts: whether its parts are checked later, those of `pages`, where it is mapped.

        Raises:
            PackageError: its bytes differ from their checksum.
        """
        key = key_of(tensor)
        if key not in self.weights:
            buffer, owned = self.device.load_tensor(tensor)
            try:
                check = self.checks.get(key)
                if check is not None and check.experts > 1 and not owned:
                    self.pages[key] = self._pages(buffer, check)
                elif check is not None:
                    check_sums(self.device, buffer, check)
            except BaseException:
                if owned:
                    self.device.release(buffer)
                raise
            self.weights[key] = (buffer, tensor, owned)
        if keep:
            self.kept.add(key)
        if key in self.pages and not parts:
            pages = self.pages[key]
            pages.prepare(0, pages.memory.nbytes)
        return self.weights[key][0]

    def _pages(self, buffer: Buffer, check: Check) -> Pages:
        """The parts of a mapped weight; each is checked when it is first brought."""
        done: set[int] = set()

        def verify(begin: int, end: int) -> None:
            pieces = set(range(begin // PIECE, -(-end // PIECE))) - done
            check_sums(self.device, buffer, check, sorted(pieces))
            done.update(pieces)

        return Pages(self.device, buffer, check.experts, verify)

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
                    other = self.instead.get(slot.name)
                    if other or not self._bind_parts(loaded, i, slot.tensor, runs):
                        loaded.bind(i, other or self.weight(slot.tensor, runs))

    def _bind_parts(self, loaded: LoadedPlan, slot: int, tensor: Tensor, keep: bool) -> bool:
        """Binds a weight whose parts are checked when steps need them, where there is one."""
        self.weight(tensor, keep, parts=True)
        pages = self.pages.get(key_of(tensor))
        return pages is not None and loaded.bind_pages(slot, pages)

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
        tables = [pages.table for pages in self.pages.values()]
        for buffer in [*owned, *self.computed.values(), *tables]:
            self.device.release(buffer)
        self.pages = {}
        self.weights, self.computed, self.readers, self.kept = {}, {}, {}, set()


def weight_of(package: Package, entry: Weight) -> Tensor:
    """A weight that a package's manifest describes, as a tensor of uint8."""
    source, offset = package.weight(entry)
    # The file that a part of a package is in can be mapped.
    while hasattr(source, "source") and hasattr(source, "offset"):
        offset += source.offset
        source = source.source
    return Tensor(entry["name"], 2, (entry["bytes"],), source, offset, entry["bytes"])


def checks_of(package: Package) -> dict[tuple[Any, ...], Check]:
    """The checksums of a package's weights, for WeightStore."""
    checks = {}
    for entry in package.manifest["weights"]:
        if "sums" in entry:
            tensor = weight_of(package, entry)
            file = getattr(tensor.source, "name", "")
            experts = entry.get("experts", 1)
            checks[key_of(tensor)] = Check(entry["sums"], entry["name"], file, experts)
    return checks


def key_of(tensor: Tensor) -> tuple[Any, ...]:
    """A key for a weight's bytes: their place in a source, or the name and the bytes."""
    return (
        (id(tensor.source), tensor.offset, tensor.nbytes, tensor.power)
        if tensor.data is None
        else (tensor.name, tensor.data)
    )


def check_sums(
    device: Device, buffer: Buffer, check: Check, pieces: Iterable[int] | None = None
) -> None:
    """Checks a weight in a device's memory.

    Args:
        device: that owns the memory.
        buffer: the weight's bytes.
        check: what they must be.
        pieces: numbers of those that are checked; by default all.

    Raises:
        PackageError: a checksum does not match.
    """
    nbytes = buffer.nbytes
    for i in range(len(check.sums)) if pieces is None else pieces:
        at = i * PIECE
        if device.checksum(buffer, at, min(PIECE, nbytes - at)) != check.sums[i]:
            raise damaged_weight(check.weight, i, nbytes, check.file)
