"""Names of the layers of a language model that is a part of a larger one.

Adapters are written and read under the names of layers. Exports of decoders have those of the
decoder alone, or of the tool; in transformers, and in PEFT's files, the layers are within the whole
model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..ir import Graph

# What is before the layers in transformers, by model_type.
_LAYERS = dict.fromkeys(("idefics2", "idefics3", "smolvlm"), "model.text_model.")
_OTHERS = "model.language_model."
_LAYER = re.compile(r"^(/?)(?:[\w.-]+?[./])?layers([./])(?=\d+[./])")
_ATTENTION = re.compile(r"([./])attn(?=[./])")  # of ONNX Runtime GenAI's builder


def name_layers(graph: Graph, config: Mapping[str, Any]) -> None:
    """Gives the nodes and weights of a decoder's layers the names that the layers have in
    transformers. Names of tensors stay.

    Args:
        graph: the decoder, which is changed.
        config: contents of the whole model's config.json.
    """
    before = _LAYERS.get(str(config.get("model_type")), _OTHERS)

    def named(name: str) -> str:
        found = _LAYER.match(name)
        if found is None:
            return name
        root, end = found.groups()
        parts = before.replace(".", "/") if root else before
        return root + parts + "layers" + end + _ATTENTION.sub(r"\1self_attn", name[found.end() :])

    for node in graph.every_node():
        node.name, node.module = named(node.name), named(node.module)
    names = {name: named(tensor.name) for name, tensor in graph.constants.items()}
    if len({*names.values()}) == len(names):  # of two towers in one file there may be equal ones
        for name, tensor in graph.constants.items():
            tensor.name = names[name]
