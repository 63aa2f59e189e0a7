"""How a model's embeddings are made, from the files of sentence-transformers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ModelError
from ...json_text import parse_json
from ...logic.post.embeddings import check_pooling
from .files import ModelFiles

_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last_token",
}
"""Fields of 1_Pooling/config.json, in the order in which their vectors are joined."""


@dataclass
class Recipe:
    """What modules.json says.

    Attributes:
        poolings: ways of pooling, whose vectors are joined; empty: the model names none.
        normalize: whether vectors get length 1.
        include_prompt: whether the tokens of a prompt count in the pooling.
        others: modules that only a graph can contain, such as Dense, or with incomplete files.
        max_length: in tokens; None: not given.
        lower_case: whether texts are put in lower case.
        prompts: {name: text that is put before a text}.
        default_prompt: name of the prompt that is used where none is named.
        dimensions: to which vectors are shortened; None: all.
    """

    poolings: list[str] = field(default_factory=list)
    normalize: bool = False
    include_prompt: bool = True
    others: list[str] = field(default_factory=list)
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dimensions: int | None = None


def read_recipe(files: ModelFiles | None) -> Recipe:
    """The Recipe of a model; an empty one for a model without these files.

    Raises:
        ModelError: a file is damaged.
    """
    recipe = Recipe()
    data = files.read("modules.json") if files is not None else None
    if files is None or data is None:
        return recipe
    modules = parse_json(data, f"{files.where}/modules.json", ModelError)
    if not isinstance(modules, list) or not all(
        isinstance(m, dict) and m.get("type") for m in modules
    ):
        raise ModelError("it is no list of modules", f"{files.where}/modules.json")
    for module in modules:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        folder = str(module.get("path", ""))
        if kind == "Pooling":
            name = f"{folder}/config.json" if folder else "config.json"
            config = files.json(name) or {}
            recipe.poolings = _poolings(config)
            if not recipe.poolings:
                recipe.others.append(f"Pooling ({name} is missing or names none)")
            recipe.include_prompt = config.get("include_prompt", True) is not False
        elif kind == "Normalize":
            recipe.normalize = True
        elif kind == "Transformer":
            _read_transformer(recipe, files, folder)
        else:
            recipe.others.append(kind)
    config = files.json("config_sentence_transformers.json") or {}
    prompts = config.get("prompts")
    if isinstance(prompts, Mapping):
        recipe.prompts = {str(k): v for k, v in prompts.items() if isinstance(v, str)}
    if isinstance(config.get("default_prompt_name"), str):
        recipe.default_prompt = config["default_prompt_name"]
    if type(config.get("truncate_dim")) is int:
        recipe.dimensions = config["truncate_dim"]
    return recipe


def _poolings(config: Mapping[str, Any]) -> list[str]:
    """Ways of pooling of 1_Pooling/config.json. Raises InputError if one is not known."""
    named = config.get("pooling_mode")
    if named is not None:
        return [check_pooling(n) for n in (named if isinstance(named, list) else [named])]
    return [name for flag, name in _FLAGS.items() if config.get(flag) is True]


def _read_transformer(recipe: Recipe, files: ModelFiles, folder: str) -> None:
    """Reads sentence_bert_config.json or its equivalent of older models."""
    inside = f"{folder}/" if folder else ""
    names = ("sentence_bert_config", "sentence_roberta_config", "sentence_distilbert_config",
             "sentence_camembert_config", "sentence_albert_config",
             "sentence_xlm-roberta_config", "sentence_xlnet_config")  # fmt: skip
    for name in names:
        config = files.json(f"{inside}{name}.json")
        if config is None:
            continue
        if type(config.get("max_seq_length")) is int:
            recipe.max_length = config["max_seq_length"]
        recipe.lower_case = config.get("do_lower_case") is True
        return
