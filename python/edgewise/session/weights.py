"""Persistent tensors in engine memory: weights once, whatever number of plans use them, and what
init steps computed of them. A weight that only init steps read is let go of once they have run,
where it is a copy: who needs it later reads it from its source again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sums import check_sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..engine import Buffer, Device, LoadedPlan
    from ..ir import Tensor


class WeightStore:
    """instead: {name of a weight: Buffer} of weights that live elsewhere. checks: {key_of(tensor):
    (sums, weight's name, file's name)} of weights that are checked when they are loaded (sums.py).
    """

    def __init__(
        self,
        device: Device,
        instead: dict[str, Buffer] | None = None,
        checks: dict[tuple, tuple[list[str], str, str]] | None = None,
    ) -> None:
        self.device, self.instead, self.checks = device, instead or {}, checks or {}
        # by key_of(tensor); owned: a copy that `free` releases. The tensor keeps the key valid.
        self.weights: dict[tuple, tuple[Buffer, Tensor, bool]] = {}
        self.computed: dict[str, Buffer] = {}  # by name of the slot
        self.kept: set[tuple] = set()  # keys of weights that runs read

    def weight(self, tensor: Tensor, keep: bool = True) -> Buffer:
        """A weight, loaded on first use. keep: until `free`; else until `_release`.

        Raises PackageError: it is damaged.
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
        """Binds weight and computed slots of a loaded plan; returns the names of those that its
        init steps (`init`) have yet to compute.
        """
        fresh = []
        try:
            for i, slot in enumerate(loaded.plan.slots):
                if slot.kind == "computed":
                    if slot.name not in self.computed:
                        self.computed[slot.name] = self.device.allocate(slot.nbytes)
                        fresh.append(slot.name)
                    loaded.bind(i, self.computed[slot.name])
            self._bind(loaded, bool(fresh))
        except BaseException:
            self.forget(fresh)
            raise
        return fresh

    def _bind(self, loaded: LoadedPlan, init: bool) -> None:
        """Binds weights; those that only init steps read where these are going to run."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight":
                runs = loaded.in_runs(i)
                if runs or init:
                    assert slot.tensor is not None, slot.name  # all weights have one
                    loaded.bind(i, self.instead.get(slot.name) or self.weight(slot.tensor, runs))

    def init(self, loaded: LoadedPlan, fresh: list[str]) -> None:
        """Runs a plan's init steps where there is something to compute. fresh: what `connect`
        gave.
        """
        if fresh:
            loaded.init()
            self._release(loaded)

    def refresh(self, loaded: LoadedPlan, changed: Iterable[str]) -> None:
        """Binds the weights of a plan where they lie now, and computes again what follows from
        those of these names and from states.
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
        """Init steps have run: frees the copies of weights that nothing else reads."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight" and not loaded.in_runs(i):
                loaded.unbind(i)
                assert slot.tensor is not None, slot.name
                key = key_of(slot.tensor)
                if key not in self.kept and key in self.weights and self.weights[key][2]:
                    self.device.release(self.weights.pop(key)[0])

    def forget(self, names: Iterable[str]) -> None:
        """Drops what was going to be computed and, since something failed, was not: the next plan
        computes it.
        """
        for name in names:
            self.device.release(self.computed.pop(name))

    def free(self) -> None:
        """Frees every weight that is a copy, and what was computed; plans that use them must be
        gone.
        """
        owned = [buffer for buffer, _, owned in self.weights.values() if owned]
        for buffer in [*owned, *self.computed.values()]:
            self.device.release(buffer)
        self.weights, self.computed, self.kept = {}, {}, set()


def key_of(tensor: Tensor) -> tuple:
    """What tells a weight's bytes from others'."""
    return (
        (id(tensor.source), tensor.offset, tensor.nbytes)
        if tensor.data is None
        else (tensor.name, tensor.data)
    )
