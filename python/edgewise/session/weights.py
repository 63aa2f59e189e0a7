"""Persistent tensors in engine memory: weights once, whatever number of plans use them, and what init steps computed of them."""
from __future__ import annotations


class WeightStore:
    def __init__(self, engine):
        self.engine = engine
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
        """Binds weight and computed slots of a loaded plan and runs its init steps unless all that they compute is there."""
        fresh = []
        for i, slot in enumerate(loaded.plan.slots):
            if slot.kind == "weight":
                loaded.bind(i, self.weight(slot.tensor))
            elif slot.kind == "computed":
                if slot.name not in self.computed:
                    self.computed[slot.name] = self.engine.alloc(slot.nbytes)
                    fresh.append(slot.name)
                loaded.bind(i, self.computed[slot.name])
        return fresh

    def init(self, loaded, fresh):
        if fresh:
            try:
                loaded.init()
            except BaseException:
                for name in fresh:
                    self.engine.free(self.computed.pop(name))
                raise

    def free(self):
        for address in self.owned + list(self.computed.values()):
            self.engine.free(address)
        self.weights, self.computed, self.owned = {}, {}, []
