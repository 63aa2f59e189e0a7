"""The models that are served, by name."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...compiler.onnx import FileSource
from ...compiler.package import Package
from ...compiler.training.peft import Adapter, LoraConfig, load_adapter
from ...errors import InputError, ModelError, NoSuchFile
from ...host.hub import is_model_id, local_path
from ...host.pipelines import pipeline
from ...host.session import InferenceSession
from ...host.session.open import folder_files
from ...host.text import GenerationConfig
from ...host.text.generate import model_defaults
from ...host.training.adapters import CausalLM
from ...json_text import parse_json_object
from .refusals import Refusal
from .tensors import check_part

WRITES = ("ForCausalLM", "LMHeadModel")  # ends of the names of decoder-only architectures
EMBEDS = "feature-extraction"


@dataclass
class TextModel:
    """A language model.

    Attributes:
        pipe: its TextGenerationPipeline.
        adapters: names of its adapters.
        config: defaults of requests: OpenAI's, overridden by the model's generation_config.json.
    """

    pipe: Any
    adapters: tuple[str, ...] = ()
    config: GenerationConfig = field(init=False)

    def __post_init__(self) -> None:
        defaults = GenerationConfig(do_sample=True, temperature=1.0, top_k=0)
        self.config = defaults.merged(GenerationConfig.from_dict(model_defaults(self.pipe.model)))
        if self.config.eos_token_id is None:
            self.config.eos_token_id = getattr(self.pipe.tokenizer, "eos_token_id", None)


class Catalog:
    """Models by name. `created` is the time at which it was made, in seconds since 1970.

    Args:
        models: {name: path of a folder, .onnx or .edge file, or id of a hub}.
        parts: {name: path of an .onnx file or package} of second parts of split models.
        adapters: {name: folder in PEFT's layout} of the language model, of which there must then
            be one only. Each is a model of its own name.
        lookup: prompt_lookup_num_tokens of language models, or None.
        assistant: path of a smaller model that guesses tokens of the language model, of which
            there must then be one only.

    Attributes:
        parts: {name: InferenceSession}. texts: {name: TextModel}.
        vectors: {name: FeatureExtractionPipeline}.
        adapted: {name of an adapter: name of its model}.

    Raises:
        InputError, ModelError, PackageError, TokenizerError: a model cannot be served.
    """

    def __init__(
        self,
        models: Mapping[str, str],
        adapters: Mapping[str, str] | None = None,
        parts: Mapping[str, str] | None = None,
        lookup: int | None = None,
        assistant: str | None = None,
    ) -> None:
        self.parts: dict[str, InferenceSession] = {}
        self.texts: dict[str, TextModel] = {}
        self.vectors: dict[str, Any] = {}
        self.adapted: dict[str, str] = {}
        self.created = int(time.time())
        kinds = {name: task_of(path) for name, path in models.items()}
        writers = [name for name, task in kinds.items() if task == "text-generation"]
        if adapters and len(writers) != 1:
            raise InputError(
                f"there are {len(writers)} language models for adapters",
                "--adapter",
                "Serve one language model with its adapters.",
            )
        if assistant and len(writers) != 1:
            raise InputError(
                f"there are {len(writers)} language models for it",
                "--assistant-model",
                "Serve one language model with a smaller one.",
            )
        if twice := set(adapters or ()) & set(models):
            raise InputError(f"the name {min(twice)!r} is a model's", "--adapter", "Rename it.")
        for name, path in models.items():
            if kinds[name] == "text-generation":
                self.texts[name] = _text_model(path, adapters or {}, assistant)
                if lookup is not None:
                    self.texts[name].config.update({"prompt_lookup_num_tokens": lookup})
                self.adapted |= dict.fromkeys(adapters or (), name)
            else:
                self.vectors[name] = pipeline(EMBEDS, path)
        for name, path in (parts or {}).items():
            self.parts[name] = InferenceSession(path)
            check_part(self.parts[name], path)

    def names(self) -> list[tuple[str, str | None]]:
        """[(name, name of the model that it adapts, or None)]"""
        own = [(name, None) for name in (*self.texts, *self.vectors)]
        return [*own, *self.adapted.items()]

    def text(self, name: str) -> tuple[TextModel, str | None]:
        """A language model, and the adapter to set. Raises Refusal."""
        if name in self.adapted:
            return self.texts[self.adapted[name]], name
        if name not in self.texts:
            raise self._missing(name, "writes text", [*self.texts, *self.adapted])
        return self.texts[name], None

    def embedder(self, name: str) -> Any:
        """The pipeline of an encoder. Raises Refusal."""
        if name not in self.vectors:
            raise self._missing(name, "embeds texts", list(self.vectors))
        return self.vectors[name]

    def part(self, name: str) -> InferenceSession:
        """The second part of a split model. Raises Refusal."""
        if name not in self.parts:
            there = ", ".join(self.parts) or "none"
            text = f"there is no split model {name[:80]!r}; there are: {there}"
            raise Refusal(text, 404, "model", "model_not_found")
        return self.parts[name]

    def _missing(self, name: str, does: str, names: Sequence[str]) -> Refusal:
        there = ", ".join(names) or "none"
        if any(name == known for known, _ in self.names()):
            text = f"the model {name[:80]!r} does something else; what {does}: {there}"
            return Refusal(text, 400, "model", "model_not_supported")
        text = f"there is no model {name[:80]!r} that {does}; there are: {there}"
        return Refusal(text, 404, "model", "model_not_found")


def task_of(path: str) -> str:
    """The task of a package's manifest; of a folder, by its config.json, text-generation or
    feature-extraction.
    """
    path = local_path(path) if is_model_id(path) else path
    if path.endswith(".edge"):
        manifest = Package.read(FileSource(path)).manifest
        task: str = "text-generation" if "decoder" in manifest else manifest["task"]
    elif os.path.exists(path):
        files, _ = folder_files(path)
        source = files.get("config.json")
        if source is None:
            raise InputError(
                "there is no config.json, which tells what the model does",
                path,
                "Put the model's own beside it.",
            )
        config = parse_json_object(source.read(0, source.size), source.name)
        names = config.get("architectures") or []
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise ModelError("`architectures` is no list of names", "config.json", "Restore it.")
        task = "text-generation" if any(n.endswith(WRITES) for n in names) else EMBEDS
    else:
        raise NoSuchFile(
            "there is no such file or folder", path, "Give a model folder or an .edge package."
        )
    if task not in ("text-generation", EMBEDS):
        raise InputError(
            f"it is a package for {task}",
            path,
            "A server has language models, and packages built with --task feature-extraction.",
        )
    return str(task)


def _text_model(path: str, folders: Mapping[str, str], assistant: str | None) -> TextModel:
    adapters = {name: load_adapter(folder) for name, folder in folders.items()}
    room = None if path.endswith(".edge") or not adapters else _room(adapters)
    model = CausalLM(path, lora=room)
    for name, adapter in adapters.items():
        model.load_adapter(adapter, name)
    return TextModel(pipeline("text-generation", model, assistant_model=assistant), tuple(adapters))


def _room(adapters: Mapping[str, Adapter]) -> LoraConfig:
    """What takes all adapters: the highest rank, on every layer that one of them adapts."""
    modules = {m for a in adapters.values() for m in (*a.lora, *a.embeddings)}
    saved = {m for a in adapters.values() for m in a.config.modules_to_save or ()}
    ranks = [a.config.rank_of(m) for a in adapters.values() for m in (*a.lora, *a.embeddings)]
    rank = max(ranks, default=1)
    return LoraConfig(
        r=rank,
        lora_alpha=rank,
        target_modules=sorted(modules),
        modules_to_save=sorted(saved) or None,
    )
