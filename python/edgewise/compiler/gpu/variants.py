"""The shaders of kernels: which one runs a step, and how many workgroups it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ...logic.gpu import variants as logic
from ...logic.gpu.accessors import class_of
from ...logic.gpu.steps import Linear, Shader, follows
from ..declare.kernel import evaluate
from .gen.shaders import COMMON, SHADERS
from .steps import PlanStep, element_dtype

parts_of = cache(logic.parts_of)


@dataclass(frozen=True)
class Variant:
    """A shader of a kernel.

    Attributes:
        name: of the file.
        declared: declarations of its first lines: threads or groups, group, alone, when, apply.
        parts: {name: text} of its functions and variables.
    """

    name: str
    declared: Mapping[str, str]
    parts: Mapping[str, str]

    @property
    def group(self) -> int:
        """Invocations in a workgroup."""
        return int(self.declared.get("group", "64"))


@cache
def variants_of(kernel: str) -> tuple[Variant, ...]:
    """The shaders of a kernel, special ones first; none where it has none."""
    out: list[Variant] = []
    for name, declared, text in SHADERS.get(kernel, ()):
        if "alone" in declared:
            out.append(_alone(name, declared, text))
        out.append(Variant(name, declared, parts_of(text)))
    return tuple(out)


def _alone(name: str, declared: Mapping[str, str], text: str) -> Variant:
    """The form without barriers."""
    found = {key: value for key, value in declared.items() if key != "groups"}
    found["threads"] = declared["groups"]
    found["when"] = f"({declared.get('when', 'True')}) and ({declared['alone']})"
    return Variant(f"{name}.alone", found, parts_of(logic.alone(text)))


def count_of(variant: Variant, values: Mapping[str, object]) -> int:
    """Workgroups of a step."""
    if "threads" in variant.declared:
        return -(-int(evaluate(variant.declared["threads"], values)) // variant.group)
    return int(evaluate(variant.declared["groups"], values))


def grid_of(variant: Variant, values: Mapping[str, object]) -> tuple[int, int]:
    """Workgroups of a step, in two dimensions."""
    return logic.folded(count_of(variant, values))


def conditions_of(step: PlanStep, largest: Sequence[int]) -> dict[str, object]:
    """What conditions of shaders refer to: parameters, has_<operand>, and serial."""
    present = {f"has_{o.name}": v is not None for o, v in zip(step.kernel.operands, step.operands)}
    return {**step.values(largest), **present, "serial": step.serial}


def stages_of(step: PlanStep, largest: Sequence[int]) -> list[Variant]:
    """The shaders that run a step, one after the other; none where the kernel has none for these
    parameters and types.

    Args:
        step: the step.
        largest: the highest values of the plan's registers.
    """
    key = "stages", *largest
    if key not in step.memo:
        step.memo[key] = _stages_of(step, largest)
    found: list[Variant] = step.memo[key]
    return found


def _stages_of(step: PlanStep, largest: Sequence[int]) -> list[Variant]:
    values = conditions_of(step, largest)
    for i, v in enumerate(step.operands):
        if v is not None and step.kernel.operands[i].name != "scratch":
            if not class_of(*element_dtype(step.kernel, i, step.params)):
                return []
    fit = [
        variant
        for variant in variants_of(step.kernel.name)
        if "computes" not in variant.declared
        and evaluate(variant.declared.get("when", "True"), values)
        and all(name in all_parts(variant) for name in applied_in(variant, step).values())
        and _aligned(variant, step)
        and _fixed(variant, step)
    ]
    before = [
        n for v in variants_of(step.kernel.name) for n in v.declared.get("stages", "").split()
    ]
    names = [f"{step.kernel.name}.{name}" for name in before]
    return [fit[i] for i in logic.staged([v.name for v in fit], names)]


def apart_of(step: PlanStep, largest: Sequence[int]) -> int:
    """How far two elements that a step takes are apart; 0: it takes them one by one."""
    text = stages_of(step, largest)[0].declared.get("apart")
    return int(evaluate(text, conditions_of(step, largest))) if text else 0


def columns_of(step: PlanStep, largest: Sequence[int]) -> int:
    """Elements side by side that a workgroup of a product computes."""
    text = stages_of(step, largest)[0].declared["columns"]
    return int(evaluate(text, conditions_of(step, largest)))


def _fixed(variant: Variant, step: PlanStep) -> bool:
    """Whether arrays that follow registers are only indexed by constants."""
    following = [name for name, value in step.params.items() if follows(value)]
    return logic.is_fixed("".join(variant.parts.values()), following)


def _aligned(variant: Variant, step: PlanStep) -> bool:
    """Whether operands that are read as words begin with one."""
    places = [
        logic.Place(o.name, v.offset, v.scale)
        for o, v in zip(step.kernel.operands, step.operands)
        if v is not None
    ]
    return logic.is_aligned("".join(variant.parts.values()), places)


def all_parts(variant: Variant) -> dict[str, str]:
    """Its functions and variables, and those that all shaders share."""
    return {**parts_of(COMMON), **variant.parts}


def applied_in(variant: Variant, step: PlanStep) -> dict[str, str]:
    """{name in the body: function of a variant that depends on parameters}"""
    if "apply" not in variant.declared:
        return {}
    rules = []
    for rule in variant.declared["apply"].split(";"):
        name, _, pattern = rule.partition("=")
        rules.append((name.strip(), pattern.strip()))
    return logic.applied(rules, lambda parameter: _named(step, parameter))


def shader_of(variant: Variant, step: PlanStep) -> Shader:
    """A shader as the programs of a step have it."""
    key = "shader", variant.name
    if key not in step.memo:
        step.memo[key] = _shader_of(variant, step)
    found: Shader = step.memo[key]
    return found


def _shader_of(variant: Variant, step: PlanStep) -> Shader:
    declared = variant.declared
    fixed = {k: v for k, v in step.params.items() if not isinstance(v, Linear)}

    def chosen(found: re.Match[str]) -> str:
        return found[1] if evaluate(found[2], fixed) else found[3]

    total = declared.get("threads") or declared.get("groups", "0")
    before, after, takes = (
        declared.get(key, "").partition(" if ")[0] for key in ("before", "after", "takes")
    )
    return Shader(
        variant.group,
        "element" in variant.parts,
        re.sub(r"(\w+) if (.+?) else (\w+)", chosen, total),
        applied_in(variant, step),
        dict(variant.parts),
        parts_of(COMMON),
        before,
        after,
        takes,
        declared.get("joins", ""),
        "apart" in declared,
    )


def declaring(kernel: str, key: str) -> Variant:
    """The shader of a kernel whose first lines have a key."""
    return next(variant for variant in variants_of(kernel) if key in variant.declared)


def _named(step: PlanStep, parameter: str) -> str:
    """What stands for a parameter in the name of a function: the item of an enum, or the class of
    an element type.
    """
    code = step.params[parameter]
    if parameter in step.kernel.enums and isinstance(code, int):
        return step.kernel.enums[parameter].items[code]
    if "type" in parameter and isinstance(code, int):
        return class_of(code, 0)
    return str(code)
