"""Pipelines whose language model gets adapters."""

from __future__ import annotations

import os
from typing import Any

from ...compiler.training.peft import Adapter, LoraConfig, load_adapter
from ...errors import InputError, memory_in_words
from ..training.adapters import Adapted, room_for
from .base import Pipeline

__all__ = ["AdaptedPipeline"]


class AdaptedPipeline(Pipeline):
    """A pipeline whose decoder has adapters, which `fine_tune` makes or files have."""

    _model: Any = None

    @property
    def adapters(self) -> dict[str, Adapter]:
        """{name: Adapter} of those that were trained or loaded."""
        return dict(self._model.adapters) if isinstance(self._model, Adapted) else {}

    @property
    def adapter(self) -> str | None:
        """Name of the adapter that is used, or None."""
        return self._model.adapter if isinstance(self._model, Adapted) else None

    @memory_in_words
    def load_adapter(
        self, source: Adapter | str | os.PathLike[str] | dict[str, Any], name: str = "default"
    ) -> None:
        """Reads an adapter and keeps it under a name. `set_adapter` switches to it. The decoder is
        compiled again where it has no room for the adapter.

        Args:
            source: a folder in PEFT's layout, {file name: bytes}, or a peft.Adapter.
            name: replaces an adapter of that name.

        Raises:
            InputError: it has layers that the decoder has not; or the model was compiled without
                adapters, and the pipeline was not made from its folder.
            ModelError, UnsupportedField: as peft.load_adapter.
        """
        adapter = source if isinstance(source, Adapter) else load_adapter(source)
        with self.lock:
            model = self._model
            if isinstance(model, Adapted) and model.lora is not None:
                try:
                    return model.load_adapter(adapter, name)
                except InputError:
                    if not self._compiles:
                        raise
            if not self._compiles:
                raise InputError(
                    "the model was compiled without adapters",
                    "load_adapter",
                    "Make the pipeline from the model's folder.",
                )
            self._compile_for({**self.adapters, name: adapter})

    def _compile_for(self, adapters: dict[str, Adapter]) -> None:
        """Replaces the model by one that has room for adapters."""
        made, model = self._adapted(room_for(adapters.values())), self._model
        try:
            for name, adapter in adapters.items():
                made.load_adapter(adapter, name)
            if self.adapter is not None:
                made.set_adapter(self.adapter, model.scale)
        except BaseException:
            made.free()
            raise
        self._model = made
        if model is not None:
            model.free()

    @memory_in_words
    def set_adapter(self, name: str | None, scale: float = 1.0) -> None:
        """Switches to an adapter.

        Args:
            name: of a trained or loaded adapter; None: the model as it was.
            scale: factor of the adapter's effect; 1 is the adapter as it was trained.

        Raises:
            InputError: there is no such adapter.
        """
        with self.lock:
            if name is not None and not self.adapters:
                raise InputError(
                    f"there is no adapter {name!r}",
                    "set_adapter",
                    "Train one with fine_tune, or load one with load_adapter.",
                )
            if isinstance(self._model, Adapted):
                self._model.set_adapter(name, scale)

    @property
    def _compiles(self) -> bool:
        """Whether the model's files are at hand."""
        return self.files is not None and self.files.package is None

    def _adapted(self, lora: LoraConfig) -> Adapted:
        """The model, compiled with room for adapters."""
        raise NotImplementedError
