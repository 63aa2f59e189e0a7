"""How a model's embeddings are made, from the files of sentence-transformers beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ModelError
from ..post.embeddings import check_pooling

FLAGS = (
    ("pooling_mode_cls_token", "cls"),
    ("pooling_mode_max_tokens", "max"),
    ("pooling_mode_mean_tokens", "mean"),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"),
    ("pooling_mode_weightedmean_tokens", "weightedmean"),
    ("pooling_mode_lasttoken", "last_token"),
)
"""Fields of 1_Pooling/config.json, in the order in which their vectors are joined."""
TRANSFORMERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""Model types whose names are in the names of files; newer models all have that of the first."""


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
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dimensions: int | None = None


Config = Callable[[str], dict[str, Any]]
"""The contents of a JSON file of the model; {} if there is none."""


def recipe_of(modules: object, where: str, config: Config) -> Recipe:
    """The Recipe of a model.

    Args:
        modules: contents of modules.json; None: there is none.
        where: the name of that file in errors.
        config: reads the other files.

    Raises:
        ModelError: modules.json is no list of modules.
        InputError: a way of pooling is not known.
    """
    recipe = Recipe()
    if modules is None:
        return recipe
    if not isinstance(modules, list) or not all(
        isinstance(m, dict) and m.get("type") for m in modules
    ):
        raise ModelError("it is no list of modules", where, "Copy the file again.")
    for module in modules:
        _read_module(recipe, module, config)
    found = config("config_sentence_transformers.json")
    prompts = found.get("prompts")
    if isinstance(prompts, dict):
        recipe.prompts = {str(k): v for k, v in prompts.items() if isinstance(v, str)}
    prompt = found.get("default_prompt_name")
    if isinstance(prompt, str):
        recipe.default_prompt = prompt
    recipe.dimensions = _whole(found.get("truncate_dim"))
    return recipe


def _read_module(recipe: Recipe, module: Mapping[str, Any], config: Config) -> None:
    kind = str(module["type"]).split(".")[-1]
    folder = module.get("path")
    inside = f"{folder}/" if folder else ""
    if kind == "Pooling":
        name = f"{inside}config.json"
        found = config(name)
        recipe.poolings = poolings_of(found)
        if not recipe.poolings:
            recipe.others.append(f"Pooling ({name} is missing or names none)")
        recipe.include_prompt = found.get("include_prompt", True) is not False
    elif kind == "Normalize":
        recipe.normalize = True
    elif kind == "Transformer":
        for model in TRANSFORMERS:
            found = config(f"{inside}sentence_{model}_config.json")
            if found:
                recipe.max_length = _whole(found.get("max_seq_length"))
                recipe.lower_case = found.get("do_lower_case") is True
                return
    else:
        recipe.others.append(kind)


def poolings_of(config: dict[str, Any]) -> list[str]:
    """Ways of pooling of 1_Pooling/config.json, whose vectors are joined. Raises InputError if one
    is not known.
    """
    named = config.get("pooling_mode")
    if named is not None:
        names: list[object] = named if isinstance(named, list) else [named]
        return [check_pooling(name) for name in names]
    return [name for flag, name in FLAGS if config.get(flag) is True]


def _whole(value: object) -> int | None:
    return value if type(value) is int else None
