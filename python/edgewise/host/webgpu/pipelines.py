"""Compiled programs, shared by all plans of an engine."""

from __future__ import annotations

from threading import RLock
from typing import Any, NamedTuple

from ...compiler.gpu.subgroups import in_subgroups
from ...errors import EngineError
from ...logic.gpu.link import RECORD_BYTES
from ...logic.gpu.wgsl import FIRST_BINDING, Program
from .gpu import Gpu


class Pipeline(NamedTuple):
    """A compiled program, and the layout of what it binds."""

    pipeline: Any
    layout: Any


class Pipelines:
    """{text of a program: its pipeline}. Several threads may use it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._lock = RLock()
        self._made: dict[str, Pipeline] = {}
        self._promised: dict[str, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._made) + len(self._promised)

    @property
    def texts(self) -> list[str]:
        """The texts of all programs, in the form for GPUs without subgroups."""
        return [*self._made, *self._promised]

    def prepare(self, program: Program, where: str) -> None:
        """Begins to compile a program, unless that was done before.

        Raises:
            EngineError: the text is not valid. where: of the step, for errors.
        """
        with self._lock:
            if program.text in self._made or program.text in self._promised:
                return
            layout = self._layout(program)
            text = in_subgroups(program.text) if self.gpu.subgroups else program.text
            try:
                promise = self.gpu.device.create_compute_pipeline_async(
                    layout=self.gpu.device.create_pipeline_layout(bind_group_layouts=[layout]),
                    compute={
                        "module": self.gpu.device.create_shader_module(code=text),
                        "entry_point": "main",
                    },
                )
            except Exception as e:
                raise EngineError(f"a shader is refused: {e}", where, "Report this.") from e
            self._promised[program.text] = (promise, layout)

    def get(self, program: Program, where: str) -> Pipeline:
        """The pipeline of a program that was prepared. Waits for it. Raises EngineError."""
        with self._lock:
            if program.text not in self._made:
                promise, layout = self._promised[program.text]
                try:
                    made = Pipeline(promise.sync_wait(), layout)
                except Exception as e:
                    raise EngineError(f"a shader is refused: {e}", where, "Report this.") from e
                # Ctrl-C may have ended the wait: the promise is kept until there is a pipeline.
                self._made[program.text] = made
                del self._promised[program.text]
            return self._made[program.text]

    def _layout(self, program: Program) -> Any:
        visibility = self.gpu.wgpu.ShaderStage.COMPUTE

        def entry(binding: int, type_: str, least: int = 0) -> dict[str, Any]:
            buffer = {"type": type_, "has_dynamic_offset": False, "min_binding_size": least}
            return {"binding": binding, "visibility": visibility, "buffer": buffer}

        entries = [entry(0, "uniform", RECORD_BYTES * program.records)]
        if program.registers:
            entries.append(entry(1, "uniform"))
        if program.fails or program.guarded:
            entries.append(entry(2, "storage" if program.fails else "read-only-storage"))
        for i, b in enumerate(program.bindings):
            entries.append(
                entry(FIRST_BINDING + i, "storage" if b.written else "read-only-storage")
            )
        return self.gpu.device.create_bind_group_layout(entries=entries)
