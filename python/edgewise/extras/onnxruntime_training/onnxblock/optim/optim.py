"""Optimizers as blocks: they build ONNX Runtime Training's optimizer_model.onnx.

`edgewise.extras.onnxruntime_training.artifact_files.metadata` reads these models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _graph_utils as g
from .. import blocks
from ..onnxblock import ForwardBlock

if TYPE_CHECKING:
    from onnx import TensorProto


class ClipGradNorm(blocks.Block):
    """Scales a sequence of gradients so that their total L2 norm is at most max_norm."""

    def __init__(self, max_norm: float) -> None:
        super().__init__()
        self._max_norm = max_norm

    def build(self, gradients_name: str) -> str:
        """Name of the sequence of clipped gradients."""
        output = g.add_node(
            self.base,
            "InplaceClipGradNorm",
            [gradients_name],
            domain="com.microsoft",
            names=["clip_grad_norm_output"],
            max_norm=float(self._max_norm),
        )
        self.base.graph.value_info.append(
            g.onnx().helper.make_tensor_sequence_value_info(output, g.FLOAT, None)
        )
        return output


class SGDOptimizer(blocks.Block):
    """The node of SGD: parameter -= learning_rate * gradient."""

    def build(self, learning_rate_name: str, gradients_name: str, params_name: str) -> str:
        """Name of the output, a flag. Parameters and gradients are sequences of tensors."""
        return g.add_node(
            self.base,
            "SGDOptimizerV2",
            [learning_rate_name, params_name, gradients_name],
            domain="com.microsoft",
            names=["update_completed"],
        )


class AdamWOptimizer(blocks.Block):
    """The node of AdamW in the form of transformers (adam_mode 1): decay follows the update."""

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self._attributes: dict[str, Any] = {
            "alpha": float(betas[0]),
            "beta": float(betas[1]),
            "epsilon": float(eps),
            "weight_decay": float(weight_decay),
            "correct_bias": int(bool(bias_correction)),
            "adam_mode": 1,
        }

    def build(
        self,
        learning_rate_name: str,
        step_name: str,
        parameter_sequence_name: str,
        gradient_sequence_name: str,
        first_order_moment_sequence_name: str,
        second_order_moment_sequence_name: str,
    ) -> str:
        """Name of the output, a flag.

        Args:
            learning_rate_name: float32 [1].
            step_name: int64 [1].
            parameter_sequence_name, gradient_sequence_name, first_order_moment_sequence_name,
                second_order_moment_sequence_name: sequences of tensors.
        """
        inputs = [
            learning_rate_name,
            step_name,
            parameter_sequence_name,
            gradient_sequence_name,
            first_order_moment_sequence_name,
            second_order_moment_sequence_name,
        ]
        return g.add_node(
            self.base,
            "AdamWOptimizer",
            inputs,
            domain="com.microsoft",
            names=["adamw.updated_flag"],
            **self._attributes,
        )


class _OptimizerBlock(ForwardBlock):
    _moments: tuple[str, ...] = ()

    def __init__(self, clip_grad: ClipGradNorm | None = None) -> None:
        super().__init__()
        self._clip_grad = clip_grad

    def build(self, parameters: tuple[Sequence[TensorProto], Sequence[TensorProto]]) -> str:
        """Name of the output, a flag. parameters: (trainable, frozen), of TrainingBlock.parameters.

        Raises:
            BlockError: no parameter is trained.
        """
        trainable, _ = parameters
        if not trainable:
            raise g.BlockError(
                "there is no parameter to train", type(self).__name__, "Name some in requires_grad."
            )
        h = g.onnx().helper
        kind = trainable[0].data_type
        self.base.graph.input.extend(
            [
                h.make_tensor_value_info("learning_rate", g.FLOAT, [1]),
                h.make_tensor_value_info("step", g.onnx().TensorProto.INT64, [1]),
            ]
        )
        self.base.graph.input.extend(
            h.make_tensor_sequence_value_info(name, kind, None)
            for name in ("params", "gradients", *self._moments)
        )
        gradients = "gradients" if self._clip_grad is None else self._clip_grad("gradients")
        flag = self._update(gradients)
        self.base.graph.output.append(
            h.make_tensor_value_info(flag, g.onnx().TensorProto.BOOL, [1])
        )
        return flag

    def _update(self, gradients: str) -> str:
        raise NotImplementedError


class AdamW(_OptimizerBlock):
    """AdamW of ONNX Runtime, in the form of transformers instead of PyTorch's.

    Args:
        bias_correction: whether the moments are corrected for their bias.
        betas, eps, weight_decay: of AdamW.
        clip_grad: a ClipGradNorm, or None.
    """

    _moments = ("first_order_moments", "second_order_moments")

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad: ClipGradNorm | None = None,
    ) -> None:
        super().__init__(clip_grad)
        self._adamw = AdamWOptimizer(
            bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay
        )

    def _update(self, gradients: str) -> str:
        return self._adamw("learning_rate", "step", "params", gradients, *self._moments)


class SGD(_OptimizerBlock):
    """Plain gradient descent. clip_grad: a ClipGradNorm, or None."""

    # An unused input, which ONNX Runtime's session feeds.
    _moments = ("first_order_moments",)

    def __init__(self, clip_grad: ClipGradNorm | None = None) -> None:
        super().__init__(clip_grad)
        self._sgd = SGDOptimizer()

    def _update(self, gradients: str) -> str:
        return self._sgd("learning_rate", gradients, "params")
