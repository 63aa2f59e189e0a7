"""Contracts of kernels: complete, used as they are declared, and known nowhere else."""

import ast
import re
from pathlib import Path

import pytest
from edgewise.declare.kernel import dimensions, evaluate, parse
from edgewise.ops.table import kernel_table

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "edgewise"
C_SOURCES = {
    p: p.read_text() for p in sorted((ROOT / "core").rglob("*.[ch]")) if p.parent.name != "gen"
}
C_TEXT = "\n".join(C_SOURCES.values())
C_NAMES = set(re.findall(r"\w+", C_TEXT))
C_FIELDS = set(re.findall(r"(?:->|\.)(\w+)", C_TEXT))
TABLE = kernel_table().kernels


def names_in(expression: str) -> set[str]:
    """The parameters that an expression uses."""
    tree = parse(expression)
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return {
        {"as_": "as", "is_": "is"}.get(n.id, n.id)
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and id(n) not in called
    }


@pytest.mark.parametrize("kernel", TABLE, ids=lambda k: k.name)
def test_expressions_use_parameters(kernel):
    """Layouts, rules, grids and costs are expressions over the kernel's own parameters."""
    expressions = [*kernel.require, *(extent for extent, _ in dimensions(kernel.grid))]
    for o in kernel.operands:
        expressions += [o.size, o.lo, o.hi, *([o.type.bool_if] if o.type.bool_if else ())]
        assert o.type.parameter == "" or o.type.parameter in kernel.params
        assert not o.touches or o.touches in kernel.index
        assert all(name in kernel.index and not o.scratch for name in o.inplace)
    if kernel.cost is not None:
        expressions += [
            kernel.cost.operations,
            *([kernel.cost.integer] if kernel.cost.integer else ()),
        ]
    if kernel.c.scratch:
        expressions.append(kernel.c.scratch)
    used = set().union(*map(names_in, expressions))
    assert used <= set(kernel.params), used - set(kernel.params)
    assert set(kernel.empty) | set(kernel.enums) | set(kernel.c.variants) <= set(kernel.params)
    ones = {name: [1] * 6 if "[" in kind else 1 for name, kind in kernel.params.items()}
    if kernel.cost is not None:
        assert evaluate(kernel.cost.operations, ones) > 0


def c_types(kernel, operand) -> set[str]:
    """The pointer types that C gives an operand where it declares a variable for it."""
    name = f"EW_{kernel.name}_{operand.name}".upper()
    types = set()
    for found in re.finditer(rf"\*\w+ = operand\[{name}\]", C_TEXT):
        before = C_TEXT[: found.start()]
        types.add(before[max(before.rfind(c) for c in ";{}") + 1 :].strip())
    return types


@pytest.mark.parametrize("kernel", TABLE, ids=lambda k: k.name)
def test_c_accesses_operands_as_declared(kernel):
    """C names each operand, and reads inputs, and only them, through pointers to const."""
    for o in kernel.operands:
        assert f"EW_{kernel.name}_{o.name}".upper() in C_NAMES, o.name
        for type in c_types(kernel, o):
            assert ("const" in type) == (o.access == "read"), (o.name, type)


@pytest.mark.parametrize("kernel", TABLE, ids=lambda k: k.name)
def test_c_uses_every_parameter(kernel):
    """Each parameter is read as a field by some C file."""
    assert f"ew_{kernel.name}_params" in C_NAMES
    assert not [n for n in kernel.params if n not in C_FIELDS and f"{n}_" not in C_FIELDS]


def test_only_contracts_and_lowering_rules_know_a_kernels_name():
    """Outside of ops/ and the calls of the plan builder no literal, and so no table, names one."""
    own = {k.name for k in TABLE} - COMMON_WORDS
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0]
        tree = ast.parse(path.read_text())
        emitted = {
            id(argument)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and part in ("plan", "profile")
            for argument in node.args
        }
        wrong += [
            f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if part != "ops"
            and isinstance(node, ast.Constant)
            and node.value in own
            and id(node) not in emitted
        ]
    for path in sorted((ROOT / "web" / "src").rglob("*.ts")):
        if path.parent.name != "gen":
            words = re.findall(r"""["'`](\w+)["'`]""", path.read_text())
            wrong += [
                f"{path.relative_to(ROOT)}: {word!r}"
                for word in words
                if word in own - WORDS_OF_PAGES
            ]
    assert not wrong, "\n".join(wrong)


# Names that are also words of other vocabularies: options, losses, kinds of layers.
COMMON_WORDS = set("batch_norm conv cross_entropy fill optimizer pool product top_k where".split())
# The same in TypeScript: a field of a plan, a method of tensors, a function of chat templates.
WORDS_OF_PAGES = {"copy", "range"}
