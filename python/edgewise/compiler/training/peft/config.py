"""LoraConfig: `adapter_config.json` of PEFT (https://huggingface.co/docs/peft, checkpoint format).

logic/training/lora.py checks its values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ....errors import InputError, ModelError, UnsupportedField
from ....logic.training.adapters import scaling
from ....logic.training.lora import MODULES, check_config, read_config
from .module_patterns import ModulePatterns

CONFIG = "adapter_config.json"
HEADS = ("score", "classifier")  # names of the classification head in transformers


@dataclass
class LoraConfig:
    r"""What to adapt and how, as peft.LoraConfig (release 0.21).

        LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
        LoraConfig(target_modules=r".*\.layers\.[0-3]\..*_proj")  # of the whole module name
        LoraConfig(target_modules="all-linear", modules_to_save=["lm_head"])

    Args:
        r: rank.
        lora_alpha: the adapter's output is scaled by lora_alpha / r, with use_rslora by
            lora_alpha / sqrt(r).
        lora_dropout: probability, on the adapter's input, in training.
        target_modules: names that a module's name is or ends with ("q_proj" matches
            "model.layers.0.self_attn.q_proj"), or one regular expression, or "all-linear" (every
            linear layer but the output head; also the meaning of None).
        exclude_modules: likewise, for what to leave out.
        layers_to_transform, layers_pattern: indices of layers, and the name before the index.
        rank_pattern, alpha_pattern: {module name or regular expression: value} for modules that
            differ.
        use_dora: DoRA: the norm of each row of a linear layer's weight is trained by itself.
        modules_to_save: modules trained as a whole and kept in the adapter.
        bias: "none", "all" or "lora_only".
        fan_in_fan_out: the base model stores its weights as [in, out].
        init_lora_weights: True (A Kaiming-uniform, B zero), "gaussian" (A normal / r, B zero) or
            False (both random).

    Raises:
        InputError: a value is out of range. UnsupportedField: PEFT has it, Edgewise does not.
    """

    r: int = 8
    lora_alpha: float = 8
    lora_dropout: float = 0.0
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    use_rslora: bool = False
    use_dora: bool = False
    modules_to_save: list[str] | None = None
    bias: str = "none"
    fan_in_fan_out: bool = False
    init_lora_weights: bool | str = True
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None
    rank_pattern: dict[str, int] = field(default_factory=dict)
    alpha_pattern: dict[str, float] = field(default_factory=dict)
    task_type: str | None = None
    base_model_name_or_path: str | None = None
    revision: str | None = None
    peft_type: str = "LORA"

    def __post_init__(self) -> None:
        self._patterns = ModulePatterns()  # not a field: a copy with other values makes its own
        for name in MODULES:
            value = getattr(self, name)
            if isinstance(value, (set, frozenset, tuple)):
                setattr(
                    self, name, sorted(value) if isinstance(value, (set, frozenset)) else [*value]
                )
        for name in ("rank_pattern", "alpha_pattern"):
            if getattr(self, name) is None:
                setattr(self, name, {})
        check_config({f.name: getattr(self, f.name) for f in fields(self)}, "LoraConfig")
        if self.target_modules == ["all-linear"]:
            self.target_modules = "all-linear"
        self._check_patterns()

    def _check_patterns(self) -> None:
        """Raises InputError for a pattern that cannot be matched."""
        for name in ("target_modules", "exclude_modules", "layers_pattern"):
            value = getattr(self, name)
            every = name == "target_modules" and self._is_all_linear
            if value and isinstance(value, str) and not every:
                self._patterns.check(value, name)
        for x in self.modules_to_save or ():
            self._patterns.check(x, "modules_to_save")
        if isinstance(self.layers_pattern, list):
            for x in self.layers_pattern:
                self._patterns.check(x, "layers_pattern")
        for name in ("rank_pattern", "alpha_pattern"):
            for x in getattr(self, name):
                self._patterns.check(x, name)

    @property
    def _is_all_linear(self) -> bool:
        targets = self.target_modules
        return targets is None or isinstance(targets, str) and targets.lower() == "all-linear"

    @property
    def scaling(self) -> float:
        """Factor of adapters' outputs, for modules that rank_pattern and alpha_pattern do not
        name.
        """
        return scaling(self.lora_alpha, self.r, self.use_rslora)

    def rank_of(self, module: str) -> int:
        """Rank of a module's adapter: from rank_pattern, else r."""
        return self._patterns.lookup(self.rank_pattern, module, self.r, "rank_pattern")

    def alpha_of(self, module: str) -> float:
        """Alpha of a module's adapter: from alpha_pattern, else lora_alpha."""
        return self._patterns.lookup(self.alpha_pattern, module, self.lora_alpha, "alpha_pattern")

    def scaling_of(self, module: str) -> float:
        """Factor of a module's adapter: alpha / r, with use_rslora alpha / sqrt(r)."""
        return scaling(self.alpha_of(module), self.rank_of(module), self.use_rslora)

    def saves(self, module: str) -> bool:
        """Whether modules_to_save names this module or one that contains it."""
        return any(self.saved_by(m, module) for m in self.modules_to_save or ())

    def saved_by(self, entry: str, module: str) -> bool:
        """Whether an entry of modules_to_save names this module or one that contains it."""
        return self._patterns.begins(rf"(^|.*\.){entry}($|\..*)", entry, module, "modules_to_save")

    def excludes(self, module: str) -> bool:
        """Whether a module gets no adapter regardless of target_modules: exclude_modules names it,
        or modules_to_save trains it as a whole.
        """
        x = self.exclude_modules
        if x and (
            self._patterns.full(x, module, "exclude_modules")
            if isinstance(x, str)
            else _named(module, x)
        ):
            return True
        return self.saves(module)

    def matches(self, module: str) -> bool:
        """Whether a module gets an adapter, by its name ("all-linear" and None match every module
        that is not excluded).
        """
        if self.excludes(module):
            return False
        targets = self.target_modules
        if targets is None or self._is_all_linear:
            return self._in_layers(module)
        if isinstance(targets, str):
            return self._patterns.full(targets, module, "target_modules")
        if module in targets:
            return True
        return _named(module, targets) and self._in_layers(module)

    def _in_layers(self, module: str) -> bool:
        layers = self.layers_to_transform
        if layers is None or layers == []:
            return True
        if not self.layers_pattern:
            found = re.match(r".*?\.[^.]*\.(?P<idx>\d+)\.", module)
            index = found["idx"] if found else None
        else:
            index = None
            for p in (
                [self.layers_pattern]
                if isinstance(self.layers_pattern, str)
                else self.layers_pattern
            ):
                if index is None:
                    index = self._patterns.named(
                        rf"(?:^|.*?\.){p}\.(?P<idx>\d+)\.", p, module, "layers_pattern"
                    )
        # a number too long for an index is none
        return (
            index is not None
            and len(index) < 19
            and int(index) in ([layers] if isinstance(layers, int) else layers)
        )

    def select(self, modules: Mapping[str, str], heads: Collection[str] = ()) -> list[str]:
        """Names of the modules to adapt.

        Args:
            modules: {module name: "linear", "conv" or "embedding"}, in the model's order.
            heads: names of output heads, which "all-linear" leaves out (with task_type SEQ_CLS also
                modules called score or classifier).

        Raises:
            InputError: no module matches.
        """
        all_linear = self._is_all_linear
        out = []
        for name, kind in modules.items():
            if all_linear and (
                kind != "linear" or name in heads or self.task_type == "SEQ_CLS" and name in HEADS
            ):
                continue
            if self.matches(name):
                out.append(name)
        if not out and not self.modules_to_save:
            raise InputError(
                f"target_modules {self.target_modules!r} match no module of the model",
                "LoraConfig",
                f"It has {', '.join(list(modules)[:12]) or 'none to adapt'}"
                + (", ..." if len(modules) > 12 else "."),
            )
        return out

    def to_dict(self) -> dict[str, Any]:
        """The fields as in adapter_config.json; those that later releases of PEFT added only if
        they are set.
        """
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        if out["exclude_modules"] is None:
            del out["exclude_modules"]
        return out

    @classmethod
    def from_dict(cls, values: Any, where: str = CONFIG) -> LoraConfig:
        """A configuration from the contents of adapter_config.json. where: for messages.

        Raises:
            UnsupportedField: a field is set that Edgewise does not have.
            ModelError: a value is out of range.
        """
        try:
            return cls(**read_config(values, where))
        except UnsupportedField as e:
            raise UnsupportedField(e.what, where, e.remedy) from None
        except InputError as e:
            raise ModelError(e.what, where, e.remedy) from None


def _named(module: str, names: Collection[str]) -> bool:
    """Whether a module has one of the names, or ends with one after a dot."""
    return module in names or any(module.endswith("." + name) for name in names)
