"""The base of pipelines that run an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..training.adapters import Seq2SeqLM
from .adapted import AdaptedPipeline

if TYPE_CHECKING:
    from ...compiler.training.peft import LoraConfig
    from ..session.seq2seq import Seq2SeqModel

__all__ = ["Seq2SeqPipeline"]


class Seq2SeqPipeline(AdaptedPipeline):
    """A pipeline that has a Seq2SeqModel: a given one, or one that it loads on first use.

    Args:
        model: model folder, package, id of a model of the hub, or a Seq2SeqModel, which stays the
            caller's.
        tokenizer, options: as of Pipeline.
    """

    OPTIONAL: ClassVar[Sequence[str]] = (
        "decoder_model_merged",
        "decoder_model",
        "decoder_with_past_model",
    )
    TOKENIZER = True
    PACKAGED = True

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        self._model: Seq2SeqModel | None = None
        super().__init__(model, tokenizer, **options)

    def _take(self, model: Any) -> None:
        from ..session.seq2seq import Seq2SeqModel

        if not isinstance(model, Seq2SeqModel):
            super()._take(model)
        self._model = model

    @property
    def model(self) -> Seq2SeqModel:
        """The model, which is loaded on first use."""
        if self._model is None:
            assert self.files is not None
            if self.files.package is not None:
                self._model = Seq2SeqLM(self.files.package, engine=self.engine)
            else:
                self._model = Seq2SeqLM.from_graphs(
                    self.files.root, self.files.graphs, engine=self.engine
                )
        return self._model

    def _adapted(self, lora: LoraConfig) -> Seq2SeqLM:
        assert self.files is not None
        root, graphs = self.files.root, self.files.graphs
        return Seq2SeqLM.from_graphs(root, graphs, engine=self.engine, lora=lora)

    def close(self) -> None:
        """Frees the model, if the pipeline has loaded it."""
        if self._model is not None and self.files is not None:
            self._model.free()
        super().close()
