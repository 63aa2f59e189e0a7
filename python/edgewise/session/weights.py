"""Persistent tensors in engine memory: weights once, whatever number of plans use them, and what init steps computed of them. A weight that
only init steps read is let go of once they have run, where it is a copy: who needs it later reads it from its source again."""
from __future__ import annotations


class WeightStore:
    """instead: {name of a weight: address} of weights that live elsewhere."""

    def __init__(self, engine, instead=None):
        self.engine, self.instead = engine, instead or {}
        self.weights, self.computed = {}, {}   # key: (address, tensor, whether it is a copy of ours); name: address
        self.kept = set()   # keys of weights that runs read

    def weight(self, tensor, keep=True):
        """Address of a weight, loaded on first use. keep: until `free`; else until `_release`."""
        key = _key(tensor)
        if key not in self.weights:
            address, owned = self.engine.load_tensor(tensor)
            self.weights[key] = (address, tensor, owned)
        if keep:
            self.kept.add(key)
        return self.weights[key][0]

    def connect(self, loaded, skip=()):
        """Binds weight and computed slots of a loaded plan; returns the names of those that its init steps (`init`) have yet to compute."""
        fresh = []
        try:
            for i, slot in enumerate(loaded.plan.slots):
                if slot.kind == "computed":
                    if slot.name not in self.computed:
                        self.computed[slot.name] = self.engine.alloc(slot.nbytes)
                        fresh.append(slot.name)
                    loaded.bind(i, self.computed[slot.name])
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
                    loaded.bind(i, self.instead.get(slot.name) or self.weight(slot.tensor, runs))

    def init(self, loaded, fresh):
        """Runs a plan's init steps where there is something to compute. fresh: what `connect` gave."""
        if fresh:
            loaded.init()
            self._release(loaded)

    def refresh(self, loaded, changed):
        """Binds the weights of a plan where they lie now, and computes again what follows from those of these names and from states."""
        slots = loaded.plan.slots
        init = any(loaded.in_init(i) and (s.kind == "state" or s.kind == "weight" and s.name in changed) for i, s in enumerate(slots))
        self._bind(loaded, init)
        if init:
            loaded.init()
            self._release(loaded)

    def _release(self, loaded):
        """Init steps have run: frees the copies of weights that nothing else reads."""
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight" and not loaded.in_runs(i):
                loaded.unbind(i)
                key = _key(slot.tensor)
                if key not in self.kept and key in self.weights and self.weights[key][2]:
                    self.engine.free(self.weights.pop(key)[0])

    def forget(self, names):
        """Drops what was going to be computed and, since something failed, was not: the next plan computes it."""
        for name in names:
            self.engine.free(self.computed.pop(name))

    def free(self):
        """Frees every weight that is a copy, and what was computed; plans that use them must be gone."""
        for address in [a for a, _, owned in self.weights.values() if owned] + list(self.computed.values()):
            self.engine.free(address)
        self.weights, self.computed, self.kept = {}, {}, set()


def _key(tensor):
    return (id(tensor.source), tensor.offset, tensor.nbytes) if tensor.data is None else (tensor.name, tensor.data)
