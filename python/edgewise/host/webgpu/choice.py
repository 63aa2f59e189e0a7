"""The highest logits, found on the GPU, so that a token reads back 4 bytes or 2 kB."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...compiler.gpu.gen.shaders import CHOICE
from ...logic.generation.shortlist import HIGHEST
from ...logic.gpu.choice import NONE, Level, levels_of_argmax, levels_of_top
from ..engine import Buffer

if TYPE_CHECKING:
    from .engine import WebGPUEngine


class Choice:
    """Finds the highest of float32 logits in a GPU's memory.

    The caller holds the engine's lock.
    """

    def __init__(self, engine: WebGPUEngine) -> None:
        self.engine, self.gpu, self.memory = engine, engine.gpu, engine.device.memory
        self._pipelines: dict[tuple[str, int], Any] = {}
        self._pairs: list[Any] = []  # two GPUBuffers that levels write in turns

    def highest(self, logits: Buffer) -> int | None:
        """The token with the highest logit, the lowest of several. None where a logit is NaN or
        +infinity, or all are -infinity.
        """
        count = logits.nbytes // 4
        words = self._run(logits, "argmax", levels_of_argmax(count), 4)
        (token,) = struct.unpack("<I", words)
        return None if token == NONE else token

    def top(self, logits: Buffer) -> list[tuple[int, float]] | None:
        """The 256 highest logits, or all where there are fewer, as (token, logit) in descending
        order, equal ones by token. None where a logit is NaN or +infinity.
        """
        found = self._run(logits, "top", levels_of_top(logits.nbytes // 4), 8 * HIGHEST)
        words = struct.unpack(f"<{2 * HIGHEST}I", found)
        if words[0] == NONE:
            return None
        return [(token, _logit(rank)) for rank, token in zip(words[::2], words[1::2]) if rank]

    def _run(self, logits: Buffer, name: str, levels: list[Level], nbytes: int) -> bytes:
        """Runs dispatches one after the other. Returns the first bytes that the last one wrote."""
        self._make_pairs(levels[0].groups * 8 * HIGHEST)
        place = self.memory.place(logits)
        device = self.gpu.device
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        source, offset = place.gpu_buffer, place.offset
        for i, level in enumerate(levels):
            sink = self._pairs[i % 2]
            parts = [(source, offset, 4 * level.words), (sink, 0, sink.size)]
            entries = [
                {"binding": k, "resource": {"buffer": buffer, "offset": at, "size": size}}
                for k, (buffer, at, size) in enumerate(parts)
            ]
            pipeline = self._pipeline(name, min(i, 1))
            layout = pipeline.get_bind_group_layout(0)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, device.create_bind_group(layout=layout, entries=entries))
            compute.dispatch_workgroups(level.groups)
            source, offset = sink, 0
        compute.end()
        device.queue.submit([encoder.finish()])
        return self.engine.fetch(source, 0, nbytes)

    def _make_pairs(self, nbytes: int) -> None:
        if not self._pairs or self._pairs[0].size < nbytes:
            while self._pairs:
                self._pairs.pop().destroy()
            self._pairs = [self.gpu.buffer(nbytes) for _ in range(2)]

    def _pipeline(self, name: str, level: int) -> Any:
        if (name, level) not in self._pipelines:
            code = f"const LEVEL = {level}u;\n{CHOICE[name]}"
            module = self.gpu.device.create_shader_module(code=code)
            self._pipelines[name, level] = self.gpu.device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        return self._pipelines[name, level]


def _logit(rank: int) -> float:
    """The float32 with a rank (core/sampling/argmax.wgsl)."""
    bits = rank & 0x7FFFFFFF if rank >> 31 else ~rank & 0xFFFFFFFF
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
