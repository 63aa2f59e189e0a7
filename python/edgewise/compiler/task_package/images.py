"""Packages of tasks on pictures: the graphs "pre", from pixels to numbers, and "model"."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.images.batches import MAX_PIXELS
from ...logic.images.geometry import SPLIT, never_split
from ...logic.tasks.keypoints import HEATMAPS, POINTS
from ...logic.tasks.pictures import DEPTHS, PAINTED
from ..declare.dtypes import INT64
from ..declare.registers import Registers
from ..declare.symbolic import NeedsHost, NotStatic
from ..ir import Graph, NeedsValue, Node, Tensor
from ..processors.images import Description, read_description
from ..processors.images.fixed import with_mirrors, with_sizes
from ..processors.images.graph import image_graph
from .personal import Personal

if TYPE_CHECKING:
    from ...logic.manifest.processor import Processor
    from ..compile.programs import Programs
    from ..package import Package
    from . import Request

CONFIG = "preprocessor_config.json"
IMAGE_OUTPUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "image-classification": (("logits",),),
    "image-feature-extraction": (
        ("last_hidden_state", "pooler_output"),
        ("last_hidden_state",),
        ("image_embeds",),
        ("pooler_output",),
        ("logits",),
    ),
    "object-detection": (("logits", "pred_boxes"),),
    "image-segmentation": (
        ("class_queries_logits", "masks_queries_logits"),
        ("logits", "pred_masks"),
        ("logits",),
    ),
    "background-removal": (),
    "depth-estimation": tuple((name,) for name in DEPTHS),
    "keypoint-detection": ((HEATMAPS,), POINTS),
    "image-to-image": ((PAINTED,),),
}
"""Outputs that pipelines read: alternatives, of which the first is taken that a graph has all of;
else the graph's first output."""
NEEDED = ("image-segmentation", "depth-estimation")  # these do not take just any output
DATASET = "dataset_index"
PLAIN = {"image_processor_type": "Swin2SRImageProcessor", "do_pad": False}
"""Of models that make pictures of pictures, where there is no configuration: numbers of 0 to 1."""
VIEWS_RANK = 5
YOLO_SIZE = 640  # pixels of a side, where the graph does not say


def image_package(request: Request) -> Package:
    """Makes the package of a task on pictures. Raises as compile_task.

    Where shapes depend on the picture in a way that no plan has, a page runs the graph in a session
    (`session` of the manifest's processor).
    """
    if request.max_length is not None:
        raise InputError("this task has no texts", "max_length", "Leave it out.")
    programs, personal = request.programs(), Personal(request, "image")
    graph = personal.graph
    one_dataset(graph)
    one_view(graph)
    description, shapes = add_pictures(programs, request, graph)
    outputs = personal.also(_outputs(graph, request.task))
    try:
        programs.add("model", graph, [(s, None) for s in shapes], outputs)
    except (NotStatic, NeedsValue, NeedsHost):
        if not request.any_size or request.personalize:
            raise
        return session_package(request)
    processor: Processor = {"image": description.to_dict()}
    labels = yolo_labels(graph)
    if description.type == "YoloImageProcessor" and labels:
        processor["labels"] = labels
    return personal.package(programs, processor)


def session_package(request: Request) -> Package:
    """The package of a graph that a page runs in a session: pictures keep the sizes that their
    processor gives them.
    """
    programs, graph = request.programs(), request.read("model")
    described = _description(request, graph)
    if described.size is not None or described.frame or described.gray:
        description, sizes = with_sizes(described, False, _own_size(graph), CONFIG)
        shapes: list[list[Any]] = [[*size, 3] for size in sizes]
    else:
        description = described
        shapes = [[Registers([(1, MAX_PIXELS)]).length(0), 1, 3]]
    programs.add("pre", image_graph(description), [({"pixels": s}, None) for s in shapes])
    programs.package.manifest["processor"] = {
        "image": description.to_dict(),
        "session": request.graphs["model"],
    }
    return programs.package


def question_package(request: Request) -> Package:
    """The package of a classifier of answers to questions about pictures (ViLT), whose graph finds
    the patches of a picture in its mask. Raises as compile_task.
    """
    if not request.any_size:
        raise UnsupportedOp(
            "its shapes depend on the picture, so that a package would have no plans",
            request.graphs["model"],
            "Give a page or Python the model's folder or the id of the model.",
        )
    return session_package(request)


def one_dataset(graph: Graph) -> None:
    """Makes the input `dataset_index` of ViTPose+ a constant: 0, which is that of COCO's people."""
    if any(i.name == DATASET for i in graph.input_names()):
        graph.constants[DATASET] = Tensor.of(DATASET, INT64, [1], [0])
        graph.inputs = [i for i in graph.inputs if i.name != DATASET]


def one_view(graph: Graph) -> None:
    """Makes an input [batch, views, 3, height, width], of views of a scene, one of pictures: Depth
    Anything 3 sees one view here.
    """
    for at, info in enumerate(graph.inputs):
        if len(info.shape or []) != VIEWS_RANK or info.name in graph.constants:
            continue
        picture = f"{info.name}/picture"
        shape = [d for i, d in enumerate(info.shape or []) if i != 1]
        graph.inputs[at] = replace(info, name=picture, shape=shape)
        if graph.opsets.get("", 18) < 13:
            made = Node("Unsqueeze", [picture], [info.name], {"axes": [1]})
        else:
            axis = f"{info.name}/axis"
            graph.constants[axis] = Tensor.of(axis, INT64, [1], [1])
            made = Node("Unsqueeze", [picture, axis], [info.name])
        graph.nodes.insert(0, made)


def add_pictures(
    programs: Programs, request: Request, graph: Graph
) -> tuple[Description, list[dict[str, Sequence[Any]]]]:
    """Adds the program "pre" for a graph of pictures.

    Returns:
        (what happens to pictures before it, shapes of the graph's inputs for each of its plans)
    """
    described = _description(request, graph)
    if request.task != "image-segmentation" and any(s["rule"] == SPLIT for s in described.steps):
        raise never_split()
    masked = any(i.name == "pixel_mask" for i in graph.input_names())
    if request.task == "image-to-image":
        description, sizes = with_mirrors(described, _own_size(graph))
    else:
        description, sizes = with_sizes(described, masked, _own_size(graph), CONFIG)
    pre = image_graph(description)
    valid: dict[str, list[Any]] = {"valid": [4]} if description.frame else {}
    programs.add("pre", pre, [({"pixels": [*size, 3], **valid}, None) for size in sizes])
    return description, [_shapes(graph, size) for size in sizes]


def _description(request: Request, graph: Graph) -> Description:
    """What happens to pictures. YOLO models have no configuration: their size is in the graph."""
    if CONFIG in request.texts:
        config = parse_json(request.texts[CONFIG], CONFIG)
        return read_description(config if isinstance(config, dict) else {}, CONFIG)
    if request.task == "image-to-image":
        return read_description(PLAIN)
    config = yolo_config(graph) if request.task == "object-detection" else None
    if config is None:
        raise InputError("there is none", CONFIG, f"Put the model's {CONFIG} into its folder.")
    return read_description(config, CONFIG)


def yolo_config(graph: Graph) -> dict[str, Any] | None:
    """Contents of preprocessor_config.json for a YOLO model, which has no such file: its size is in
    the graph. None for models with other inputs, and for those with queries, such as DETR.
    """
    inputs = graph.input_names()
    shape = (inputs[0].shape or []) if len(inputs) == 1 else []
    if len(shape) != 4 or any(o.name == "pred_boxes" for o in graph.outputs):
        return None
    height, width = (d if type(d) is int and d > 0 else YOLO_SIZE for d in shape[2:])
    size = {"height": height, "width": width}
    return {"image_processor_type": "YoloImageProcessor", "size": size}


def yolo_labels(graph: Graph) -> dict[str, str]:
    """The names of classes in a YOLO model's metadata; empty if there are none.

    Raises:
        InputError: they are no dict of names.
    """
    text = graph.about.custom_metadata_map.get("names")
    if text is None:
        return {}
    try:
        return {str(k): str(v) for k, v in dict(ast.literal_eval(text)).items()}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InputError(
            "its metadata `names` is not a dict of names", "object-detection", "Export it again."
        ) from None


def _own_size(graph: Graph) -> tuple[int, int] | None:
    """Height and width of the pictures that a graph takes, if it takes no others."""
    for info in graph.input_names():
        shape = info.shape or []
        if len(shape) == 4 and all(type(d) is int and d > 0 for d in shape[2:]):
            return shape[2], shape[3]
    return None


def _shapes(graph: Graph, size: tuple[int, int]) -> dict[str, Sequence[Any]]:
    """Shapes of the inputs for one picture. Raises UnsupportedOp, InputError."""
    shapes: dict[str, Sequence[Any]] = {}
    for info in graph.input_names():
        wanted = [1, *size] if info.name == "pixel_mask" else [1, 3, *size]
        if info.shape is None or len(info.shape) != len(wanted):
            raise UnsupportedOp(
                f"its input '{info.name}' is none that this task feeds",
                graph.name or "model",
                "Export the model with pixel_values of [batch, 3, height, width].",
            )
        fixed = [d if isinstance(d, int) and d > 0 else w for d, w in zip(info.shape, wanted)]
        if fixed != wanted:
            raise InputError(
                f"it has the shape {fixed}, but the processor gives {wanted}",
                f"input '{info.name}'",
                f"Do the model and its {CONFIG} belong together?",
            )
        shapes[info.name] = wanted
    return shapes


def _outputs(graph: Graph, task: str) -> list[str]:
    """The outputs that a pipeline reads. Raises UnsupportedOp."""
    names = [o.name for o in graph.outputs]
    for wanted in IMAGE_OUTPUTS[task]:
        if set(wanted) <= set(names):
            return list(wanted)
    if task in NEEDED:
        raise UnsupportedOp(
            f"its outputs are {', '.join(names)[:200]}",
            graph.name or "model",
            "This task needs "
            + " or ".join(" and ".join(wanted) for wanted in IMAGE_OUTPUTS[task])
            + ".",
        )
    return names[:1]
