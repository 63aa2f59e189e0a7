"""GenerationConfig: the fields of a generation as attributes. Their rules are
logic/generation/config.py's.
"""

from __future__ import annotations

import copy
from typing import Any

from ...errors import InputError
from ...logic.generation import config as rules
from ...logic.generation.fields import GENERATION_FIELDS

__all__ = ["GenerationConfig"]


class GenerationConfig(rules.Configuration):
    """How to generate: `GenerationConfig(max_new_tokens=32, do_sample=True, top_p=0.9)`.

    Every field of transformers' GenerationConfig is an attribute with its default, and there are
    `presence_penalty`, `frequency_penalty`, `logit_bias` and `seed` (logic/generation/fields.py
    lists all). As transformers/generation/configuration_utils.py, with one difference: fields that
    were set are remembered (`set_fields`), so a value that equals the default still overrides the
    model's generation_config.json.

    Args:
        fields: of transformers' GenerationConfig.

    Raises:
        UnsupportedField: a field is unknown, or refused and not at its default.
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)

    @classmethod
    def from_dict(cls, fields: Any, where: str = "generation_config.json") -> GenerationConfig:
        """A configuration from the contents of generation_config.json. where: for messages."""
        if not isinstance(fields, dict):
            raise InputError(f"expected an object of fields, found {type(fields).__name__}", where)
        config = cls()
        config.update(rules.without_nulls(fields), where)
        return config

    def __getattr__(self, name: str) -> Any:
        """A field."""
        if name not in GENERATION_FIELDS:
            raise AttributeError(f"a GenerationConfig has no {name!r}")
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "values":
            object.__setattr__(self, name, value)
        else:
            self.update({name: value})

    @property
    def set_fields(self) -> set[str]:
        """The names of the fields that were set."""
        return set(self.values)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were set, {name: value}."""
        return {
            name: copy.deepcopy(self.values[name])
            for name in GENERATION_FIELDS
            if name in self.values
        }

    def merged(self, over: rules.Configuration) -> GenerationConfig:
        """A copy, overridden by the fields that were set in `over`."""
        config = copy.deepcopy(self)
        config.update(over.values)
        return config

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in self.to_dict().items()]
        return f"GenerationConfig({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenerationConfig) and all(
            getattr(self, name) == getattr(other, name) for name in GENERATION_FIELDS
        )

    __hash__ = None  # type: ignore[assignment]  # as Python does for classes with __eq__
