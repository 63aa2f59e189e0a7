"""A report as text. Names from the file are shortened and printed on one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..declare.symbolic import product

if TYPE_CHECKING:
    from .report import (
        Cache,
        Initializers,
        Memory,
        Operator,
        Report,
        Shape,
        TensorInfo,
        Trainability,
    )


def report_lines(r: Report) -> Iterator[str]:
    """The lines that `edgewise inspect` prints."""
    opsets = ", ".join(f"{name_text(d) or 'ai.onnx'} {v}" for d, v in sorted(r.opsets.items()))
    yield (
        f"{name_text(r.name)}: {name_text(r.producer) or 'unknown producer'},"
        f" {opsets or 'no opset'}, {r.nodes:,} nodes"
    )
    for tensor in r.inputs:
        yield f"  input {_tensor(tensor)}"
    for tensor in r.outputs:
        shape = r.memory.outputs.get(tensor.name) if r.memory is not None else None
        known = f", here {_shape(shape)}" if shape is not None and shape != tensor.shape else ""
        yield f"  output {_tensor(tensor)}{known}"
    yield from _operators(r.operators, r.unsupported)
    yield _parameters(r.parameters)
    if r.memory is not None:
        yield from _memory(r.memory)
    else:
        yield f"  memory: not known, since {_one_line(r.problem)}" + (
            " (--dims name=size,... or --shape input=2x3)" if r.needs and not r.unsupported else ""
        )
    if r.cache is not None:
        yield from _cache(r.cache)
    if r.why_no_text:
        yield f"  text generation: no, since {_one_line(r.why_no_text)}"
    elif r.file_beside and r.cache is not None:
        yield f"  text generation: with {r.file_beside} of the same export beside it"
    if r.why_no_gradients:
        yield f"  gradients: not known, since {_one_line(r.why_no_gradients)}"
    if r.gradients is not None:
        yield _gradients(r.gradients, len(r.parameters.trainable))


def name_text(text: object) -> str:
    """A name from a file, on one line and at most 100 characters long."""
    name = "".join(c if c.isprintable() else "?" for c in str(text))
    return name if len(name) <= 100 else name[:60] + "..." + name[-30:]


def _tensor(t: TensorInfo) -> str:
    kind = "" if t.kind == "tensor" else t.kind + " of "
    return f"{name_text(t.name)}: {kind}{t.dtype} {_shape(t.shape)}"


def _operators(operators: Sequence[Operator], unsupported: Sequence[Operator]) -> Iterator[str]:
    yield f"  {len(operators)} operators: " + ", ".join(
        f"{name_text(o.full_name)} {o.count}" + (" (a function of the model)" if o.function else "")
        for o in operators
    )
    missing = ", ".join(
        f"{name_text(o.full_name)} ({o.count} nodes: {_few(o.nodes)})" for o in unsupported
    )
    yield f"  not supported: {missing or 'none'}"


def _parameters(p: Initializers) -> str:
    text = f"  constants: {p.all.elements:,} in {p.all.tensors} tensors, {_bytes(p.all.bytes)}"
    if p.all.tensors:
        by_bytes = sorted(p.by_dtype.items(), key=lambda item: -item[1].bytes)
        text += f" ({', '.join(f'{dtype} {_bytes(w.bytes)}' for dtype, w in by_bytes)})"
    elements = sum(product(shape) for _, _, shape in p.trainable)
    text += f"; {len(p.trainable)} look like parameters, {elements:,} elements"
    return text + (f", and {p.quantized:,} weights are quantized" if p.quantized else "")


def _memory(m: Memory) -> Iterator[str]:
    yield (
        f"  memory: {_bytes(m.total)}: weights {_bytes(m.weights)}, computed from them"
        f" {_bytes(m.computed)}, activations {_bytes(m.arena)} (at least"
        f" {_bytes(m.arena_least)} live at once), inputs and outputs"
        f" {_bytes(m.inputs_and_outputs)}, plan {_bytes(m.plan)}"
        + (f" (where {', '.join(m.assumed)})" if m.assumed else "")
    )
    yield f"  a run: {m.nodes:,} nodes in {m.steps:,} steps: " + ", ".join(
        f"{kernel} {count}"
        for kernel, count in sorted(m.kernels.items(), key=lambda item: -item[1])
    )


def _cache(c: Cache) -> Iterator[str]:
    if c.tensors:
        yield (
            f"  keys and values: {_bytes(c.bytes_per_token)} per token and sequence,"
            f" {_bytes(c.bytes - c.fixed_bytes)} for {c.length:,} tokens, in {c.dtype}"
        )
    fixed = [s for s in c.states if "tokens" not in s.shape]
    if fixed:
        shapes = _few([f"{name_text(s.name)} {_shape(s.shape)}" for s in fixed])
        yield f"  states of fixed shape: {_bytes(c.fixed_bytes)} per sequence: {shapes}"


def _gradients(g: Trainability, parameters: int) -> str:
    text = f"  gradients: they reach {g.reached} of {parameters} parameters"
    if g.missing:
        ops = []
        for op, nodes in g.missing.items():
            reason = f"; {_one_line(g.refused[op])}" if op in g.refused else ""
            ops.append(f"{name_text(op)} ({len(nodes)} nodes: {_few(nodes)}{reason})")
        text += f"; none through {'; '.join(ops)}"
    return text + ("" if g.outputs else "; no output is float32")


def _bytes(n: int) -> str:
    if n < 10_000:
        return f"{n:,} B"
    if n < 1e6:
        return f"{n / 1e3:.1f} kB"
    return f"{n / 1e6:.1f} MB" if n < 1e10 else f"{n / 1e9:.1f} GB"


def _few(names: Sequence[str], most: int = 5) -> str:
    text = ", ".join(f"'{name_text(name)}'" for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def _shape(shape: Shape | Sequence[int | str] | None) -> str:
    if shape is None:
        return "of any shape"
    return "[" + ", ".join("?" if d is None else name_text(d) for d in shape) + "]"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:900]
