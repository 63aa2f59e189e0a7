"""How the steps of a plan would run on a GPU, found without one."""

from types import SimpleNamespace

from edgewise.compiler.gpu.variants import shader_of
from edgewise.host.webgpu.loaded import WebGPUPlan
from edgewise.logic.gpu.link import declarations
from edgewise.logic.gpu.wgsl import program_of

MACHINE = declarations(32, 4, True)


def program(step, variant, roles, bindings, guarded=False, machine=MACHINE):
    """The program of a step that runs alone."""
    shader = shader_of(variant, step)
    return program_of(step.linked, shader, roles, bindings, guarded, None, machine)


class Printed(WebGPUPlan):
    """A plan on a GPU that compiles nothing.

    Args:
        loaded: the plan in the engine in C.
        serial: whether the GPU is one in software.
    """

    def __init__(self, loaded, serial=False):
        self.loaded = loaded
        gpu = SimpleNamespace(bindings=10, binding_bytes=1 << 27)
        prepared = SimpleNamespace(prepare=lambda program, where: None)
        self.engine = SimpleNamespace(
            gpu=gpu, pipelines=prepared, machine=MACHINE, serial=serial, refused={}
        )
        self.plan = loaded.plan
        self._read()
        self.reasons, self.launches, self.firsts, self.work = {}, [], [], []
        self._choose()

    @property
    def dispatches(self):
        """Of a run, init steps left out, if memory is bound as a plan expects."""
        first = self.plan.init_count
        return sum(x.dispatches for x in self.launches if x is not None and x.index >= first)
