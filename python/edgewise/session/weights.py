"""Persistent tensors in engine memory: weights once, whatever number of plans use them, and what init steps computed of them."""
from __future__ import annotations


class WeightStore:
    """instead: {name of a weight: address} of weights that live elsewhere."""

    def __init__(self, engine, instead=None):
        self.engine, self.instead = engine, instead or {}
        self.weights, self.computed = {}, {}
        self.owned = []

    def weight(self, tensor):
        """Address of a weight, loaded on first use."""
        key = (id(tensor.source), tensor.offset, tensor.nbytes) if tensor.data is None else (tensor.name, tensor.data)
        if key not in self.weights:
            address, owned = self.engine.load_tensor(tensor)
            self.weights[key] = (address, tensor)
            if owned:
                self.owned.append(address)
        return self.weights[key][0]

    def connect(self, loaded, skip=()):
        """Binds weight and computed slots of a loaded plan; returns the names of those that its init steps (`init`) have yet to compute."""
        fresh = []
        try:
            for i, slot in enumerate(loaded.plan.slots):
                if slot.kind == "weight":
                    loaded.bind(i, self.instead.get(slot.name) or self.weight(slot.tensor))
                elif slot.kind == "computed":
                    if slot.name not in self.computed:
                        self.computed[slot.name] = self.engine.alloc(slot.nbytes)
                        fresh.append(slot.name)
                    loaded.bind(i, self.computed[slot.name])
        except BaseException:
            self.forget(fresh)
            raise
        return fresh

    def init(self, loaded, fresh):
        if fresh:
            loaded.init()

    def forget(self, names):
        """Drops what was going to be computed and, since something failed, was not: the next plan computes it."""
        for name in names:
            self.engine.free(self.computed.pop(name))

    def free(self):
        for address in self.owned + list(self.computed.values()):
            self.engine.free(address)
        self.weights, self.computed, self.owned = {}, {}, []
