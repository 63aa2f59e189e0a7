"""What a causal language model is fed in training, whoever exported it."""

from __future__ import annotations

from ..compile import CACHE_NAME, cache_axis, head_dim
from ..declare.dtypes import INT64
from ..errors import InputError, UnsupportedOp
from ..ir import Tensor, Value


def causal_lm_inputs(graph, batch, sequence):
    """Arguments of Program for whole sequences without a past: `input_ids` [batch, sequence] is
    fed, the mask is all ones, positions count from 0.

    Padding stands on the right, where no token that counts sees it, and its labels are -100.

    Returns:
        {"shapes": ..., "known": ..., "computed": ...}
    Raises:
        InputError, UnsupportedOp: it is not such a model.
    """
    inputs = {i.name: i for i in graph.input_names()}
    if "input_ids" not in inputs or not any(o.name == "logits" for o in graph.outputs):
        raise UnsupportedOp(
            f"inputs {', '.join(inputs)} and outputs"
            f" {', '.join(o.name for o in graph.outputs)[:200]} are not those of a causal language"
            " model",
            graph.name or "model",
            "Train other models with Program or Trainer and the shapes of their inputs.",
        )
    for what, n in (("batch", batch), ("sequence", sequence)):
        if type(n) is not int or n < 1:
            raise InputError(
                f"{n!r} is no number of {'rows' if what == 'batch' else 'tokens'}",
                what,
                "Give one from 1 on.",
            )
    shapes, known, computed = {"input_ids": [batch, sequence]}, {}, {}
    for name, info in inputs.items():
        if ".encoder." in name:
            raise UnsupportedOp(
                f"its input '{name}' holds what an encoder said",
                graph.name or "graph",
                "Train it with Program or Trainer, a loss on its outputs, and the shapes of its"
                " inputs.",
            )
        if CACHE_NAME.search(name):
            shape = [d if isinstance(d, int) else batch for d in info.shape]
            shape[3] = head_dim(graph, name, info)
            shape[cache_axis(info)] = 0
            shapes[name], known[name] = shape, []
        elif name == "use_cache_branch":
            shapes[name], known[name] = [1], [False]
        elif name == "attention_mask":
            one = Tensor.of("one", info.dtype, [1], [1])
            computed[name] = lambda b, one=one: b.op(
                "ConstantOfShape",
                Value("mask_shape", INT64, [2], numbers=[batch, sequence]),
                value=one,
            )
        elif name == "position_ids":

            def positions(builder, dtype=info.dtype):
                ids = builder.op(
                    "Range", *(Value("p", dtype, [], numbers=[x]) for x in (0, sequence, 1))
                )
                return builder.op(
                    "Expand",
                    builder.op("Unsqueeze", ids, builder.constant(INT64, [1], [0])),
                    builder.constant(INT64, [2], [batch, sequence]),
                )

            computed[name] = positions
        elif name != "input_ids":
            raise UnsupportedOp(
                f"it has an input '{name}' that is not one of a causal language model",
                graph.name or "model",
                "Train it with Program or Trainer and the shapes of its inputs.",
            )
    return {"shapes": shapes, "known": known, "computed": computed}
