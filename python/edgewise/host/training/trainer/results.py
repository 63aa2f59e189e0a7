"""What a Trainer's states become: a language model, an ONNX file, the states of an adapter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....compiler.compile import compile_package
from ....compiler.training.export import export_lora, export_parameters
from ....compiler.training.peft import Adapter, LoraConfig
from ....errors import InputError
from ...profile import Watch
from ...session.decoder import DecoderModel
from ..adapters import fitted, floats, transposed
from ..card import Base, TrainingRun, card, training_section
from ..data import Rows
from ..session import TrainingSession
from .loop import tokens_of
from .options import TrainedModel

Stored = tuple[int, Sequence[int], bytes]  # dtype code, shape, bytes


def language_model_of(
    model: TrainedModel, session: TrainingSession, lora: LoraConfig | None, watch: Watch
) -> DecoderModel:
    """A DecoderModel that reads the session's parameters and adapters. watch: gets its profile."""
    states = session.program.states
    # Plans for generation read weights in the file's type, training holds them in its own.
    converted = [
        n
        for n, s in states.items()
        if s.kind == "parameter" and model.graph.constants[n].dtype != s.dtype
    ]
    package = compile_package(
        model.files,
        model.dtype,
        model_file=model.model_file,
        lora=lora,
        trainable=converted,
        target=session.program.target,
    )
    lm = DecoderModel(
        package,
        engine=session.engine,
        states={
            n: session.place(n) for n, s in states.items() if s.kind in ("parameter", "adapter")
        },
    )
    lm.trained = session  # type: ignore[attr-defined]  # keeps the memory that it reads
    for plan in lm.plans:
        plan.loaded.watch = watch
    return lm


def export_model(
    session: TrainingSession,
    adapter: Mapping[str, Stored] | None,
    path: str | os.PathLike[str] | None,
    external_data: str | None,
) -> bytes | None:
    """Trainer.export. adapter: Trainer.adapter(), or None if parameters were trained."""
    program = session.program
    source, constants = program.graph.source, program.graph.constants
    if source is None:
        raise InputError(
            "its file is not available",
            "Trainer.export",
            "Make the trainer from a path or from bytes.",
        )
    parameters = {
        n: (s.dtype, s.shape, session.read(n))
        for n, s in program.states.items()
        if s.kind in ("parameter", "buffer")
    }
    if adapter is None:
        return export_parameters(source, parameters, path, external_data)
    merged = {
        n: (constants[n].dtype, constants[n].shape, data) for n, data in session.merged().items()
    }
    rest = {n: x for n, x in parameters.items() if n not in merged}
    gains = session.gains() if any(x.weight not in merged for x in program.lora_layers) else {}
    return export_lora(
        source, program.lora_layers, adapter, merged, path, external_data, rest, gains
    )


def adapter_states(
    adapter: Adapter, own: Mapping[str, Stored], session: TrainingSession, lora: LoraConfig
) -> dict[str, bytes]:
    """Bytes of the states that an adapter gives, {name: bytes}.

    Args:
        adapter: of PEFT's files.
        own: Trainer.adapter().

    Raises:
        InputError: the adapter does not fit.
    """
    program = session.program
    shapes = {n: shape for n, (_, shape, _) in own.items() if ".lora_" in n}
    states = fitted(adapter, shapes, lora, exact=True)
    saved = {s.name: s for s in program.saved}
    for key, tensor in adapter.saved.items():
        if key not in saved:
            raise InputError(
                f"it contains '{key}', which this trainer does not train",
                "adapter",
                "Make the trainer with the modules_to_save and bias of the adapter.",
            )
        target = saved[key]
        state = program.states[target.parameter]
        values = floats(tensor).tobytes()
        if len(values) != state.nbytes:
            raise InputError(
                f"'{key}' has {len(values) // 4} numbers, {state.nbytes // 4} are expected",
                "adapter",
                "Give an adapter of this model.",
            )
        states[target.parameter] = (
            transposed(values, state.shape[1], state.shape[0]) if target.transposed else values
        )
    return states


def adapter_card(base: Base, run: TrainingRun | None, rows: Rows | None) -> bytes:
    """The model card of an adapter: of a run, if there was one, and its data, all of which is read
    for the count of its tokens.
    """
    if run is None:
        return card(base, "peft", "", adapter=True)
    tokens = 0 if rows is None else sum(tokens_of(rows, i, None, 0) for i in range(len(rows)))
    told = training_section(replace(run, tokens=tokens or None))
    return card(base, "peft", told, adapter=True)
