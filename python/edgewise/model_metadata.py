"""What the file of a model says about it."""

from __future__ import annotations

from dataclasses import dataclass, field

NO_VERSION = (1 << 63) - 1  # of a model, as in ONNX Runtime


@dataclass
class ModelMetadata:
    """What a file says about its model, as onnxruntime.ModelMetadata.

    Attributes:
        producer_name: tool that wrote the file.
        graph_name: name of the graph.
        domain: namespace of the model, such as "org.example".
        description: of the model (its `doc_string`).
        graph_description: of the graph (its `doc_string`).
        version: of the model; NO_VERSION: not given.
        custom_metadata_map: {key: text}; exporters put labels, sizes and token lists here.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
