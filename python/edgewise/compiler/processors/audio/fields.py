"""Reads the fields of a preprocessor_config.json: every field is used, or refused by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names of classes, and matrices that are computed from the other fields.
DESCRIPTIVE = {
    "feature_extractor_type",
    "image_processor_type",
    "processor_class",
    "_processor_class",
    "auto_map",
    "transformers_version",
    "mel_filters",
    "mel_filters_slaney",
    "window",
}


class Fields:
    """The fields of one configuration.

    Args:
        config: contents of the file.
        kind: its type, for errors.
    """

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        self.config, self.kind = config, kind
        self.seen = set(DESCRIPTIVE)

    def integer(self, name: str, default: int, low: int = 1, high: int = 1 << 24) -> int:
        """A field that is an integer from `low` to `high`. Raises InputError."""
        value = self._value(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise self.error(name, f"It must be an integer from {low} to {high}.")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A field that is a number from `low` to `high`. Raises InputError."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(name, "It must be a number.")
        if not low <= value <= high:
            raise self.error(name, f"It must be between {low} and {high}.")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A field that is true or false. Raises InputError."""
        value = self._value(name, default)
        if type(value) is not bool:
            raise self.error(name, "It must be true or false.")
        return value

    def refuse(self, name: str, wrong: bool, remedy: str) -> None:
        """Raises InputError with the value of a field if it is wrong."""
        if wrong:
            raise self.error(name, remedy)

    def choice(self, name: str, default: str, *choices: str) -> str:
        """A field that is one of `choices`. Raises InputError."""
        value = self._value(name, default)
        if value not in choices:
            raise self.error(name, f"It must be one of {', '.join(choices)}.")
        return str(value)

    def optional(
        self, name: str, low: float, high: float, default: float | None = None
    ) -> float | None:
        """A field that is a number or null. Raises InputError."""
        if self.config.get(name, default) is None:
            self.seen.add(name)
            return None
        return self.number(name, default or 0.0, low, high)

    def unused(self, *names: str) -> None:
        """Fields that the model's own extractor stores but does not use, either."""
        self.seen.update(names)

    def only(self, name: str, *values: Any) -> None:
        """A field that must be absent or one of `values`. Raises InputError."""
        if self._value(name, values[0]) not in values:
            raise self.error(name, f"Only {' or '.join(map(repr, values))} is supported.")

    def common(self) -> None:
        """The fields of all extractors of sequences: padding is with zeros on the right."""
        self.only("padding_value", 0, None)
        self.only("padding_side", "right")

    def finish(self) -> None:
        """Raises InputError if there are other fields."""
        for name in self.config:
            if name not in self.seen:
                raise InputError(
                    f"the field '{name}' is unknown",
                    f"preprocessor_config.json of type {self.kind}",
                    "Remove it if the model does not need it.",
                )

    def error(self, name: str, remedy: str) -> InputError:
        """The error for a value that is not supported."""
        return InputError(
            f"the field '{name}' is {self.config.get(name)!r}",
            f"preprocessor_config.json of type {self.kind}",
            remedy,
        )

    def _value(self, name: str, default: Any) -> Any:
        self.seen.add(name)
        return self.config.get(name, default)
