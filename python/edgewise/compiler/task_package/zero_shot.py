"""Packages of models that compare pictures (CLIP, SigLIP) or sounds (CLAP) with texts: the graph is
divided into what depends on the picture or sound alone ("model"), on a text alone ("text"), and on
both ("scores"). So a text is read once for all pictures. Files of the two halves get the same three
programs. Grounding DINO, whose layers join picture and text, is one program ("model").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.tasks.candidates import is_padded, longest_candidate
from ...logic.tasks.objects import MAX_TEXT, is_grounded
from ..bind import bind
from ..compile.programs import Programs
from ..declare.dtypes import BOOL, CODE, INT32, INT64
from ..declare.symbolic import Sym
from ..ir import Graph, Info, Node, Tensor
from .images import add_pictures
from .length_split import reads_of
from .sounds import add_sounds
from .texts import MIN_LENGTH, TEXT_INPUTS, add_text_model, text_limit, text_shapes
from .towers import (
    COMPARED,
    OBJECTS,
    SOUNDS,
    TEXT,
    TEXT_EMBEDS,
    WEIGHTS,
    Compared,
    check_inputs,
    check_shapes,
    embeds_of,
    scale_and_bias,
    scores_graph,
)

LONGER = "is_longer"  # input of CLAP's fused models
SHORT = 8  # tokens of a text, for shapes that do not depend on it

if TYPE_CHECKING:
    from ...logic.manifest.processor import Processor
    from ..package import Package
    from . import Request


def zero_shot_package(request: Request) -> Package:
    """Makes the package of a model of pictures, or sounds, and texts. Raises as compile_task."""
    if request.max_length is not None:
        raise InputError("the model says how long a text is", "max_length", "Leave it out.")
    if request.personalize:
        raise InputError(f"packages for {request.task!r} cannot be personalized", "personalize")
    of, programs = COMPARED[request.task], request.programs()
    config = parse_json(request.texts.get("config.json", b"{}"), "config.json")
    config = config if isinstance(config, dict) else {}
    if TEXT in request.graphs:
        given, texts, both = _halves(request, of, config)
    else:
        graph = request.read("model")
        if of is OBJECTS and is_grounded(config):
            return _grounded_package(request, graph)
        if of is OBJECTS:
            graph = _settled(graph, _shapes(request, graph))
        given, texts, both = divided(graph, of)
    processor: Processor = {}
    if of is not SOUNDS:
        description, shapes = add_pictures(programs, request, given)
        programs.add("model", given, [(s, None) for s in shapes])
        processor["image"] = description.to_dict()
    else:
        given, outputs = _marked(given), [o.name for o in given.outputs]
        processor["audio"] = add_sounds(programs, given, outputs, request.texts)
    limit = longest_candidate(config)
    if is_padded(config):
        programs.add("text", texts, [(text_shapes(texts, limit), None)])
    else:
        limit = add_text_model(programs, texts, [o.name for o in texts.outputs], limit, "text")
    _add_scores(programs, both, of)
    processor["text"] = {"max_length": limit}
    programs.package.manifest["processor"] = processor
    return programs.package


def _grounded_package(request: Request, graph: Graph) -> Package:
    """The package of a model that sees the picture while it reads all labels as one text."""
    programs = request.programs()
    pictures = replace(graph, inputs=[i for i in graph.inputs if i.name not in TEXT_INPUTS])
    description, shapes = add_pictures(programs, request, pictures)
    limit, outputs = min(text_limit(request.texts, None), MAX_TEXT), [OBJECTS.logits, *OBJECTS.also]
    length = add_text_model(programs, graph, outputs, limit, others=shapes)
    programs.package.manifest["processor"] = {
        "image": description.to_dict(),
        "text": {"max_length": length},
    }
    return programs.package


def _marked(graph: Graph) -> Graph:
    """The graph of sounds with its mark of long ones as a constant: the graph divides the batch by
    it. Longer sounds are refused, and one that is not is marked where it is alone, as by
    transformers.
    """
    inputs = [i for i in graph.inputs if i.name != LONGER]
    if len(inputs) == len(graph.inputs):
        return graph
    mark = Tensor.of(LONGER, BOOL, (1, 1), [True])
    return replace(graph, inputs=inputs, constants={**graph.constants, LONGER: mark}, values=None)


def _halves(
    request: Request, of: Compared, config: Mapping[str, Any]
) -> tuple[Graph, Graph, Graph]:
    """As divided, of files that are divided already. Raises as `towers`."""
    halves = []
    graphs = {stem: request.read(stem) for stem in (of.stem, TEXT)}
    check_inputs(of, *([i.name for i in graph.input_names()] for graph in graphs.values()))
    for (stem, graph), name in zip(graphs.items(), (of.embeds, TEXT_EMBEDS)):
        output = embeds_of(graph, name, stem, config)
        given = [i.name for i in graph.input_names()]
        half = _part(graph, graph.nodes, given, [output])
        if output != name:  # both have a pooler_output
            half.nodes.append(Node("Identity", [output], [name]))
            half.outputs = [replace(half.outputs[0], name=name)]
        halves.append(half)
    scores = scores_graph(of, *scale_and_bias(of, config, request.files.get(WEIGHTS)))
    return halves[0], halves[1], scores


def _shapes(request: Request, graph: Graph) -> dict[str, Sequence[Any]]:
    """Shapes of the inputs for one picture and one text."""
    pictures, texts = (
        replace(graph, inputs=[i for i in graph.inputs if (i.name in TEXT_INPUTS) == is_text])
        for is_text in (False, True)
    )
    _, shapes = add_pictures(request.programs(), request, pictures)
    return {**shapes[0], **text_shapes(texts, Sym(0, 1, 0, MIN_LENGTH, SHORT))}


def _settled(graph: Graph, shapes: Mapping[str, Sequence[Any]]) -> Graph:
    """The graph with constants for what it computes of shapes alone: where these are of both
    inputs, it could not be divided.
    """
    names = [o for node in graph.nodes for o in node.outputs if o]
    copy = replace(graph, nodes=[*graph.nodes], values=None)  # bind takes the constants out of it
    bound = bind(copy, shapes, outputs=names)
    constants = dict(graph.constants)
    for name in names:
        value = bound.outputs.get(name)
        numbers = None if value is None else value.numbers
        if value is None or numbers is None or not all(type(x) is int for x in numbers):
            continue
        if value.dtype in (INT32, INT64):
            dims = [int(d) for d in value.shape]
            constants[name] = Tensor.of(name, value.dtype, dims, [*numbers])
    nodes = [n for n in graph.nodes if not all(o in constants for o in n.outputs)]
    return replace(graph, nodes=nodes, constants=constants, values=None)


def divided(graph: Graph, of: Compared) -> tuple[Graph, Graph, Graph]:
    """(what depends on pictures or sounds alone, on texts alone, and the rest) of a graph.

    Raises:
        UnsupportedOp: it has no output of.logits of both.
    """
    if not {of.logits, *of.also} <= {o.name for o in graph.outputs}:
        files = f", or two files: {of.stem}.onnx and {TEXT}.onnx" if of.embeds else ""
        raise UnsupportedOp(
            f"its outputs are {', '.join(o.name for o in graph.outputs)[:200]}",
            graph.name or "model",
            f"This task needs {' and '.join((of.logits, *of.also))}{files}.",
        )
    text = {i.name for i in graph.input_names() if i.name in TEXT_INPUTS}
    other = {i.name for i in graph.input_names()} - text
    nodes, _ = graph.needed([of.logits, *of.also])
    parts: dict[str, list[Node]] = {of.name: [], "text": [], "both": []}
    constant: list[Node] = []  # each part computes what it needs of these
    follow = {of.name: _followers(nodes, other), "text": _followers(nodes, text)}
    for node in nodes:
        kinds = [kind for kind, found in follow.items() if id(node) in found]
        if not kinds:
            constant.append(node)
        else:
            parts["both" if len(kinds) == 2 else kinds[0]].append(node)
    reads = {name for node in parts["both"] for name in reads_of(node)}
    halves = []
    for name, given in ((of.name, other), ("text", text)):
        also = {*of.also} if name == of.name else set[str]()
        made = [o for node in parts[name] for o in node.outputs if o in reads | also]
        if not made:
            raise UnsupportedOp(
                f"its {of.logits} do not depend on a {name}",
                graph.name or "model",
                "Export it again.",
            )
        halves.append(_part(graph, [*constant, *parts[name]], sorted(given), made))
    between = [o.name for half in halves for o in half.outputs]
    rest = _part(graph, [*constant, *parts["both"]], between, [of.logits])
    return halves[0], halves[1], rest


def _followers(nodes: Sequence[Node], names: Iterable[str]) -> set[int]:
    """The `id`s of the nodes that depend on tensors."""
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in reads_of(node):
            readers.setdefault(name, []).append(node)
    found: set[int] = set()
    stack = [*names]
    while stack:
        for node in readers.get(stack.pop(), ()):
            if id(node) not in found:
                found.add(id(node))
                stack += [o for o in node.outputs if o]
    return found


def _part(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]
) -> Graph:
    """The nodes that outputs depend on, as a graph of inputs."""
    known = {i.name: i for i in [*graph.inputs, *graph.outputs]}
    part = replace(
        graph,
        nodes=[*nodes],
        inputs=[known.get(name) or Info(name) for name in inputs],
        outputs=[known.get(name) or Info(name) for name in outputs],
        values=None,
    )
    part.nodes, read = part.needed(outputs)
    part.inputs = [i for i in part.inputs if i.name in read]
    return part


def _add_scores(programs: Programs, graph: Graph, of: Compared) -> None:
    """Adds "scores", whose inputs are the outputs of "model" and "text".

    Raises:
        UnsupportedOp: these depend on the length of the text.
        InputError: as check_shapes.
    """
    described = programs.package.manifest["programs"]
    made: dict[str, Any] = {}
    for name in ("model", "text"):
        for plan in described[name]["plans"]:
            for output, (_, dtype, shape, _) in plan["outputs"].items():
                if made.setdefault(output, (dtype, shape)) != (dtype, shape) or any(
                    isinstance(d, list) for d in shape
                ):
                    raise UnsupportedOp(
                        f"'{output}' is as long as the text", graph.name or "model", "Export again."
                    )
    if {i.name for i in graph.inputs} == {of.embeds, TEXT_EMBEDS}:
        check_shapes(of, made[of.embeds][1], made[TEXT_EMBEDS][1])
    graph.inputs = [Info(i.name, CODE[made[i.name][0]], made[i.name][1]) for i in graph.inputs]
    programs.add("scores", graph, [({i.name: made[i.name][1] for i in graph.inputs}, None)])
