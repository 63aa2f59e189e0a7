"""Packages of models that find masks by prompts (SAM): the graphs "pre", "vision_encoder", which
runs once for a picture, and "prompt_encoder_mask_decoder", which runs for each prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...logic.tasks.prompts import MAX_BATCH, MAX_POINTS, PROMPTS, embedding_names
from ..compile.programs import Programs
from ..declare.symbolic import NeedsHost, NotStatic, Sym
from ..ir import Graph, NeedsValue
from .images import add_pictures

if TYPE_CHECKING:
    from ..package import Package
    from . import Request

ENCODER, DECODER = "vision_encoder", "prompt_encoder_mask_decoder"
POINTS, LABELS, BOXES = PROMPTS
Shapes = Mapping[str, Sequence[Any]]


def prompts_package(request: Request) -> Package:
    """Makes the package of a model that finds masks by prompts. Raises as compile_task."""
    for name, given in (("max_length", request.max_length), ("personalize", request.personalize)):
        if given:
            raise InputError("this task has none", name, "Leave it out.")
    programs = request.programs()
    encoder, decoder = request.read(ENCODER), request.read(DECODER)
    description, shapes = add_pictures(programs, request, encoder)
    programs.add(ENCODER, encoder, [(s, None) for s in shapes])
    if len(shapes) != 1:
        raise UnsupportedOp(
            "its pictures have several sizes", ENCODER, "Set size to a height and a width."
        )
    _add_decoder(programs, decoder, _embeddings(programs, decoder))
    programs.package.manifest["processor"] = {"image": description.to_dict()}
    return programs.package


def _embeddings(programs: Programs, decoder: Graph) -> dict[str, Sequence[Any]]:
    """Shapes of the inputs of the decoder that the encoder computes. Raises InputError."""
    plan = programs.package.manifest["programs"][ENCODER]["plans"][0]
    made = {name: shape for name, (_, _, shape, _) in plan["outputs"].items()}
    infos = {i.name: i for i in decoder.input_names()}
    found: dict[str, Sequence[Any]] = {}
    for name, output in embedding_names(list(infos), list(made)).items():
        check_embedding(name, infos[name].shape, made[output])
        found[name] = made[output]
    return found


def check_embedding(name: str, declared: Sequence[Any] | None, shape: Sequence[Any]) -> None:
    """Raises InputError if the decoder does not take what the encoder has computed."""
    fits = declared is None or len(declared) == len(shape)
    for wanted, have in zip(declared or (), shape):
        if type(wanted) is int and wanted > 0 and wanted != have:
            fits = False
    if not fits:
        raise InputError(
            f"it is {list(shape)}, the decoder takes {list(declared or ())}",
            f"input '{name}'",
            f"Do {ENCODER}.onnx and {DECODER}.onnx belong together?",
        )


def _add_decoder(programs: Programs, decoder: Graph, embeddings: Shapes) -> None:
    """Adds the decoder for one object of several points, and for several objects of one point, or
    of a box.
    """
    names = [i.name for i in decoder.input_names()]

    def shapes(points: Any, objects: Any, boxed: bool, pointed: bool = True) -> Shapes:
        given: dict[str, Sequence[Any]] = {
            POINTS: [1, objects if pointed else 1, points if pointed else 0, 2],
            LABELS: [1, objects, points if pointed else 0],
            BOXES: [1, objects if boxed else 0, 4],
            "multimask_output": [],
            **embeddings,
        }
        return {name: given[name] for name in names}

    def several(low: int, high: int) -> Sym:
        return Sym(0, 1, 0, low, high)

    most, batch = (1, MAX_POINTS), (1, MAX_BATCH)
    runs: list[Any] = [
        (shapes(several(*most), 1, False), most),
        (shapes(1, several(*batch), False), batch),
    ]
    if BOXES in names:
        runs.append((shapes(0, several(*batch), True, False), batch))
        runs.append((shapes(several(*most), 1, True), most))
    else:  # a box is two points
        runs.append((shapes(2, several(*batch), False), batch))
    try:
        programs.add(DECODER, decoder, runs)
    except (NotStatic, NeedsValue, NeedsHost) as e:
        raise UnsupportedOp(
            f"its shapes are not linear in the number of points ({e})",
            decoder.name or DECODER,
            "Load it in Python, which takes the model's folder.",
        ) from e
