"""How the steps of a plan would run on a GPU, found without one."""

from copy import copy
from dataclasses import replace
from types import SimpleNamespace

from edgewise.compiler.gpu.steps import constants_of, register_ranges, steps_of
from edgewise.compiler.gpu.wgsl import MACHINE
from edgewise.host.webgpu.loaded import WebGPUPlan


class Printed(WebGPUPlan):
    """A plan on a GPU that compiles nothing.

    Args:
        loaded: the plan in the engine in C.
        kinds: kinds of slots, and those that take their place.
        serial: whether the GPU is one in software.
    """

    def __init__(self, loaded, kinds=(), serial=False):
        self.loaded = loaded
        data = loaded.plan.data
        gpu = SimpleNamespace(bindings=10, binding_bytes=1 << 27)
        prepared = SimpleNamespace(prepare=lambda program, where: None)
        self.engine = SimpleNamespace(gpu=gpu, pipelines=prepared, machine=MACHINE)
        self.plan, self.steps, self.ranges = (
            copy(loaded.plan),
            steps_of(data, serial),
            register_ranges(data),
        )
        names = dict(kinds)
        self.plan.slots = [replace(s, kind=names.get(s.kind, s.kind)) for s in self.plan.slots]
        self.constants = SimpleNamespace(size=len(constants_of(data)))
        self.reasons, self.launches, self.firsts = {}, [], []
        self._choose()

    def resolve(self, *which):
        return self.loaded.resolve(*which)

    @property
    def dispatches(self):
        """Of a run, init steps left out, if memory is bound as a plan expects."""
        first = self.plan.init_count
        return sum(x.dispatches for x in self.launches if x is not None and x.index >= first)
