"""What `inspect` finds out about a model, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Shape = list[int | str | None]  # sizes, names of dimensions, None if unknown


@dataclass
class TensorInfo:
    """An input or output as the file declares it.

    Attributes:
        name: of the tensor.
        dtype: NumPy's name of the element type.
        shape: dimensions; None if the rank is unknown.
        kind: "tensor", "sequence", "optional" or "map".
    """

    name: str
    dtype: str
    shape: Shape | None
    kind: str = "tensor"


@dataclass
class Operator:
    """An operator of the model.

    Attributes:
        domain: operator set; "" for ONNX's own.
        name: of the operator.
        opset: version of its domain that the model imports.
        count: number of nodes.
        supported: whether Edgewise has it, or the model defines it.
        function: whether the model defines it.
        nodes: names of the nodes, if it is not supported.
    """

    domain: str
    name: str
    opset: int
    count: int
    supported: bool
    function: bool = False
    nodes: list[str] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        """Name with the domain: "com.microsoft.FusedMatMul"; ONNX's own have none."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


@dataclass
class Weights:
    """Number of tensors, elements and bytes of the initializers of one type, or of all."""

    tensors: int = 0
    elements: int = 0
    bytes: int = 0


@dataclass
class Initializers:
    """The initializers of a model.

    Attributes:
        all: totals.
        by_dtype: totals by element type.
        trainable: (name, dtype, shape) of those that are parameters of layers.
        quantized: number of weights that are stored as integers.
    """

    all: Weights
    by_dtype: dict[str, Weights]
    trainable: list[tuple[str, str, list[int]]]
    quantized: int


@dataclass
class Memory:
    """The memory of a session in bytes, and its plan, for given input shapes.

    Attributes:
        shapes: of the inputs.
        assumed: other assumptions, as text.
        weights: bytes of the initializers that are used.
        computed: bytes of values that are computed from weights once.
        arena: bytes of the activations.
        arena_least: the most bytes of activations that are alive in one step, a lower bound for
            every layout.
        inputs_and_outputs: bytes of the inputs and outputs.
        plan: bytes of the compiled steps.
        outputs: shapes by name.
        nodes: number of nodes after optimization.
        steps: number of steps of a run.
        once: number of steps when the model is loaded.
        kernels: number of steps of a run by kernel.
    """

    shapes: dict[str, list[int]]
    assumed: list[str]
    weights: int
    computed: int
    arena: int
    arena_least: int
    inputs_and_outputs: int
    plan: int
    outputs: dict[str, list[int]]
    nodes: int
    steps: int
    once: int
    kernels: dict[str, int]

    @property
    def total(self) -> int:
        """Sum of all bytes."""
        return self.weights + self.computed + self.arena + self.inputs_and_outputs + self.plan


@dataclass
class State:
    """An input of a decoder that an output replaces in each run.

    Attributes:
        name: of the input.
        output: name of the output.
        shape: for one sequence, "tokens" where it grows.
    """

    name: str
    output: str
    shape: list[int | str]


@dataclass
class Cache:
    """The states of a language model for one sequence, as text generation stores them by default
    (see its argument `cache_dtype`).

    Attributes:
        dtype: element types of those that grow, joined by " and ".
        tensors: number of those that grow: keys and values.
        bytes_per_token: of these together.
        length: number of tokens that `bytes` is for.
        bytes: for `length` tokens, with `fixed_bytes`.
        fixed_bytes: of the states of fixed shape: convolution, recurrent and others.
        states: all of them.
    """

    dtype: str
    tensors: int
    bytes_per_token: int
    length: int
    bytes: int
    fixed_bytes: int = 0
    states: list[State] = field(default_factory=list)


@dataclass
class Trainability:
    """Which parameters can be trained, for the sum of all float32 outputs as loss.

    Attributes:
        shapes: of the inputs for which the gradients were made.
        outputs: names of the float32 outputs.
        reached: number of parameters with a gradient.
        missing: names of nodes without a gradient between parameters and outputs, by operator.
        refused: reason by operator, for those that have a gradient, but not in this case.
    """

    shapes: dict[str, list[int]]
    outputs: list[str]
    reached: int
    missing: dict[str, list[str]]
    refused: dict[str, str]


@dataclass
class Report:
    """What `inspect` finds out about a model.

    Attributes:
        name: of the file.
        producer: program that exported it.
        ir_version: of the file.
        opsets: version by operator set.
        nodes: number of nodes, subgraphs included.
        inputs: that a caller feeds.
        outputs: of the model.
        operators: that occur.
        parameters: initializers.
        needs: dimensions without a size, and inputs without a shape.
        memory: for the given shapes; None if it cannot be known.
        cache: of a language model with one.
        why_no_text: why text generation cannot run a model that takes token ids and states; "" if
            it can, and for other models.
        file_beside: the file that embeds token ids, where a decoder takes embeddings: text
            generation needs it beside the model.
        gradients: if they were requested and could be made.
        problem: why `memory` is None.
        why_no_gradients: why `gradients` is None although they were requested.
    """

    name: str
    producer: str
    ir_version: int
    opsets: dict[str, int]
    nodes: int
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    operators: list[Operator]
    parameters: Initializers
    needs: list[str]
    memory: Memory | None = None
    cache: Cache | None = None
    gradients: Trainability | None = None
    problem: str = ""
    why_no_gradients: str = ""
    why_no_text: str = ""
    file_beside: str = ""

    @property
    def unsupported(self) -> list[Operator]:
        """The operators that Edgewise does not have."""
        return [o for o in self.operators if not o.supported]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-serializable values."""
        d = asdict(self)
        if self.memory is not None:
            d["memory"]["total"] = self.memory.total
        return d

    def __str__(self) -> str:
        from .text import report_lines

        return "\n".join(report_lines(self))
