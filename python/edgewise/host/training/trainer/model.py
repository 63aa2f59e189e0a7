"""The model that a Trainer is made for: its graph, and the files of its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from ....compiler.compile import pick_model_file
from ....compiler.ir import Graph
from ....compiler.onnx import as_source, read_model
from ....compiler.onnx.source import Source
from ....errors import InputError, ModelError, NoSuchFile
from ....json_text import parse_json
from ...hub import local_path
from ...session.open import folder_files, name_in
from ...text import Tokenizer
from ..data import special_token

CONFIGS = ("generation_config.json", "config.json")


class TrainedModel:
    """A model and the files beside it.

    Args:
        model: path of a model folder or an .onnx file; the id of a model of the hub; a Graph; or
            the bytes of a file.
        dtype: which .onnx file of a folder.
        tokenizer: a Tokenizer or the path of one; None: the folder's.

    Attributes:
        graph: the model.
        path: where it is, or None.
        files: {relative name: Source} of its folder; empty without a path.
        model_file: the .onnx file's name in `files`, or None.
        is_causal_lm: whether it has an input `input_ids` and an output `logits`.

    Raises:
        InputError: there is no such file, or it is a package.
    """

    def __init__(
        self,
        model: Graph | str | os.PathLike[str] | bytes,
        dtype: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ):
        self.dtype, self._tokenizer = dtype, tokenizer
        self.path: str | None = None
        self.model_file: str | None = None
        self.files: Mapping[str, Source] = {}
        if isinstance(model, Graph):
            self.graph = model
        elif isinstance(model, (str, os.PathLike)):
            self.path = _checked(local_path(model, dtype))
            self.files, root = folder_files(self.path)
            self.model_file = (
                name_in(root, self.path)
                if os.path.isfile(self.path)
                else pick_model_file(self.files, dtype)
            )
            self.graph = read_model(self.files[self.model_file])
        else:
            self.graph = read_model(as_source(model))
        self.is_causal_lm = "input_ids" in {i.name for i in self.graph.input_names()} and any(
            o.name == "logits" for o in self.graph.outputs
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that was passed, or the folder's, read on first use.

        Raises:
            InputError: there is none. TokenizerError: its file is broken.
        """
        tokenizer = self._tokenizer
        if tokenizer is None:
            if not self.files:
                raise InputError(
                    "there is no tokenizer",
                    "Trainer",
                    "Pass tokenizer=..., or a model folder that has one.",
                )
            tokenizer = Tokenizer.from_files(self._contents, cast(str, self.path))
        elif isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = Tokenizer.from_pretrained(tokenizer)
        self._tokenizer = tokenizer
        return tokenizer

    def _file(self, name: str) -> Source | None:
        return next((s for n, s in self.files.items() if n.rsplit("/", 1)[-1] == name), None)

    def _contents(self, name: str) -> bytes | None:
        source = self._file(name)
        return None if source is None else source.read_all()

    def config(self, name: str) -> object:
        """The contents of a configuration file; {} if there is none, or it is not JSON."""
        source = self._file(name)
        try:
            return {} if source is None else parse_json(source.read_all(), name)
        except ModelError:
            return {}

    @property
    def end(self) -> int | None:
        """Id of the end token: of the configuration, else of the tokenizer; or None."""
        end = special_token("eos_token_id", *map(self.config, CONFIGS))
        if end is None and (self._tokenizer is not None or self._file("tokenizer.json")):
            end = getattr(self.tokenizer, "eos_token_id")  # noqa: B009 (set by name)
        return end

    @property
    def pad(self) -> int:
        """Id of padding, which does not affect training."""
        pad = special_token("pad_token_id", *map(self.config, CONFIGS))
        return pad if pad is not None else self.end or 0

    @property
    def positions(self) -> int | None:
        """Maximum tokens of a sequence, where the configuration has it."""
        for config in map(self.config, CONFIGS):
            for name in ("max_position_embeddings", "n_positions", "n_ctx"):
                if isinstance(config, dict) and config.get(name) is not None:
                    n = config[name]
                    return n if type(n) is int and n > 0 else None
        return None


def _checked(path: str) -> str:
    """The path of a model's file or folder. Raises InputError for others."""
    if not os.path.exists(path):
        raise NoSuchFile(
            "there is no such file or folder", path, "Give a model folder or an .onnx file."
        )
    if path.endswith(".edge"):
        raise InputError(
            "a package holds plans, not the model",
            path,
            "Give the model folder or .onnx file that it was built from; pages train packages that"
            " `edgewise build --train` made.",
        )
    return path
