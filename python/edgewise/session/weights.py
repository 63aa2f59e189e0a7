"""Persistent tensors in engine memory: weights once, whatever number of plans use them, and what
init steps computed of them. A weight that only init steps read is let go of once they have run,
where it is a copy: who needs it later reads it from its source again.
"""

from __future__ import annotations

from ..engine import Place
from ..sums import check_sums


class WeightStore:
    """instead: {name of a weight: Place} of weights that live elsewhere. checks: {key_of(tensor):
    (sums, weight's name, file's name)} of weights that are checked when they are loaded (sums.py).
    """

    def __init__(self, engine, instead=None, checks=None):
        self.engine, self.instead, self.checks = engine, instead or {}, checks or {}
        self.weights, self.computed = (
            {},
            {},
        )  # key: (Place, tensor, whether it is a copy of ours); name: Place
        self.kept = set()  # keys of weights that runs read

    def weight(self, tensor, keep=True):
        """The Place of a weight, loaded on first use. keep: until `free`; else until `_release`.

        Raises PackageError: it is damaged.
        """
        key = key_of(tensor)
        if key not in self.weights:
            address, owned = self.engine.load_tensor(tensor)
            try:
                if key in self.checks:
                    check_sums(self.engine, address, tensor.nbytes, *self.checks[key])
            except BaseException:
                if owned:
                    self.engine.free(address)
                raise
            self.weights[key] = (Place(address, tensor.nbytes), tensor, owned)
        if keep:
            self.kept.add(key)
        return self.weights[key][0]

    def connect(self, loaded, skip=()):
        """Binds weight and computed slots of a loaded plan; returns the names of those that its
        init steps (`init`) have yet to compute.
        """
        fresh = []
        try:
            for i, slot in enumerate(loaded.plan.slots):
                if slot.kind == "computed":
                    if slot.name not in self.computed:
                        self.computed[slot.name] = Place(
                            self.engine.alloc(slot.nbytes), slot.nbytes
                        )
                        fresh.append(slot.name)
                    loaded.bind(i, *self.computed[slot.name])
            self._bind(loaded, bool(fresh))
        except BaseException:
            self.forget(fresh)
            raise
        return fresh

    def _bind(self, loaded, init):
        """Binds weights; those that only init steps read where these are going to run."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight":
                runs = loaded.in_runs(i)
                if runs or init:
                    loaded.bind(i, *(self.instead.get(slot.name) or self.weight(slot.tensor, runs)))

    def init(self, loaded, fresh):
        """Runs a plan's init steps where there is something to compute. fresh: what `connect`
        gave.
        """
        if fresh:
            loaded.init()
            self._release(loaded)

    def refresh(self, loaded, changed):
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

    def _release(self, loaded):
        """Init steps have run: frees the copies of weights that nothing else reads."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight" and not loaded.in_runs(i):
                loaded.unbind(i)
                key = key_of(slot.tensor)
                if key not in self.kept and key in self.weights and self.weights[key][2]:
                    self.engine.free(self.weights.pop(key)[0].address)

    def forget(self, names):
        """Drops what was going to be computed and, since something failed, was not: the next plan
        computes it.
        """
        for name in names:
            self.engine.free(self.computed.pop(name).address)

    def free(self):
        """Frees every weight that is a copy, and what was computed; plans that use them must be
        gone.
        """
        for place in [p for p, _, owned in self.weights.values() if owned] + list(
            self.computed.values()
        ):
            self.engine.free(place.address)
        self.weights, self.computed, self.kept = {}, {}, set()


def key_of(tensor):
    """What tells a weight's bytes from others'."""
    return (
        (id(tensor.source), tensor.offset, tensor.nbytes)
        if tensor.data is None
        else (tensor.name, tensor.data)
    )
