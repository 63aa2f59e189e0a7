"""Contracts of kernels: complete, used as they are declared, and known nowhere else."""

import ast
import re
from pathlib import Path

import pytest
from edgewise.compiler.declare.kernel import dimensions, evaluate, parse
from edgewise.compiler.ops.table import kernel_table

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
        before = C_TEXT[: found.end()]
        statement = before[max(before.rfind(c) for c in ";{}") + 1 :]  # may declare several
        type = re.match(r"\s*(?:/\*.*?\*/\s*)?((?:const )?\w+)", statement, re.S)
        if type:
            types.add(type[1])
    return types


@pytest.mark.parametrize("kernel", TABLE, ids=lambda k: k.name)
def test_c_accesses_operands_as_declared(kernel):
    """C names each operand, and reads inputs, and only them, through pointers to const."""
    for o in kernel.operands:
        assert f"EW_{kernel.name}_{o.name}".upper() in C_NAMES, o.name
        for type in c_types(kernel, o):
            assert ("const" in type) == (o.access == "read"), (o.name, type)


# Bytes of the elements that C's types point to; other types are chosen by a parameter, or void.
BYTES = {
    **dict.fromkeys("float int32_t uint32_t m_f32 m_i32 real".split(), 4),
    **dict.fromkeys("int64_t m_i64 long_m".split(), 8),
    **dict.fromkeys("uint8_t int8_t bool m_u8".split(), 1),
}


@pytest.mark.parametrize("kernel", TABLE, ids=lambda k: k.name)
def test_c_reads_elements_of_the_declared_size(kernel):
    """Where C declares a pointer to an operand of a fixed type, its elements are as large."""
    for o in kernel.operands:
        for type in c_types(kernel, o):
            size = BYTES.get(type.removeprefix("const ").strip())
            if (
                size
                and o.size.isdigit()
                and not o.scratch
                and not (size == 1 and o.type.codes == ())
            ):
                assert int(o.size) == size, (o.name, type)


def test_operands_have_names():
    """C names the operands that it accesses: a number would not be compared with the contract."""
    assert not re.findall(r"operand\[\d+\]", C_TEXT)


@pytest.mark.parametrize("kernel", TABLE, ids=lambda k: k.name)
def test_c_uses_every_parameter(kernel):
    """Each parameter is read as a field by some C file."""
    assert f"ew_{kernel.name}_params" in C_NAMES
    assert not [n for n in kernel.params if n not in C_FIELDS and f"{n}_" not in C_FIELDS]


def names_kernels(node: ast.AST) -> bool:
    """Whether a node is a string of kernels' names alone: "softmax", or "softmax gemm"."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    words = node.value.split()
    return bool(words) and set(words) <= KERNEL_NAMES


def known_names(path: str, text: str) -> list[str]:
    """Where a Python file of the package names a kernel without having to.

    Names belong into contracts, into calls that emit a step, and, in ops/, into rules. A table is
    found by its literals, also by the keywords of dict(softmax=1).
    """
    part, tree, wrong = "/".join(path.split("/")[:2]), ast.parse(text), []
    if part == "compiler/ops":  # rules emit steps; tables stand at the level of the module
        nodes: list[ast.AST] = []
        for statement in tree.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                nodes += elements(statement)
    else:
        every = list(ast.walk(tree))
        emitted = {
            id(node.args[0])
            for node in every
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("emit", "nd")
            and node.args
        }
        nodes = [n for n in every if id(n) not in emitted]
    for node in nodes:
        options = part == "host/pipelines" or part.startswith("logic/")
        if options and getattr(node, "value", None) in OPTIONS:
            continue
        if names_kernels(node) and path not in HOMONYMS.get(node.value.strip(), ()):
            wrong.append(f"{path}:{node.lineno}: {node.value!r}")
        if isinstance(node, ast.keyword) and node.arg in KERNEL_NAMES - WORDS:
            wrong.append(f"{path}:{node.value.lineno}: {node.arg}=")
    return wrong


def elements(statement: ast.AST) -> list[ast.AST]:
    """The keys and elements of containers in a statement, and strings that it splits."""
    found: list[ast.AST] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Dict):
            found += [k for k in node.keys if k is not None]
        if isinstance(node, (ast.Set, ast.List, ast.Tuple, ast.Dict)):
            found += node.values if isinstance(node, ast.Dict) else node.elts
        if isinstance(node, ast.Attribute) and node.attr == "split":
            found.append(node.value)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
            found += node.keywords
    return found


def test_only_contracts_and_lowering_rules_know_a_kernels_name():
    """No other literal, and so no table, names one: with a new kernel only its contract, its C and
    the rules that use it change.
    """
    wrong = []
    for path in sorted(p for p in PACKAGE.rglob("*.py") if p.parent.name != "gen"):
        wrong += known_names(path.relative_to(PACKAGE).as_posix(), path.read_text())
    for path in sorted((ROOT / "web" / "src").rglob("*.ts")):
        if path.parent.name != "gen" and "logic" not in path.parts:
            wrong += [f"{path.relative_to(ROOT)}: {name}" for name in known_names_ts(path)]
    assert not wrong, "\n".join(wrong)


def known_names_ts(path: Path) -> list[str]:
    """Kernels' names in a TypeScript file: as strings, or as keys of an object."""
    text = path.read_text()
    words = re.findall(r"""["'`](\w+)["'`]""", text)
    keys = [k for k in re.findall(r"[{,]\s*(\w+):", text) if "_" in k or k in KEYS]
    known = WORDS | WORDS_OF_PAGES | (OPTIONS if "pipelines" in path.parts else set())
    return [w for w in (*words, *keys) if w in KERNEL_NAMES - known]


@pytest.mark.parametrize(
    "path, text",
    [
        ("compiler/passes/epilogue.py", "PRODUCTS = {'gemm': 1, 'matmul_nbits': 2}"),
        ("compiler/passes/epilogue.py", "PRODUCTS = 'conv gemm'.split()"),
        ("compiler/passes/epilogue.py", "def f(node):\n    return node.kernel in ('conv', 'pool')"),
        ("compiler/passes/layers.py", "COST = dict(softmax=2)"),
        ("compiler/plan/notes.py", "OPERATIONS = frozenset(['softmax'])"),
        ("compiler/plan/notes.py", "TABLE.add('gemm')"),
        ("host/profile/limits.py", "SLOW.update(softmax_grad=1)"),
        ("host/session/driver.py", "if kernel == 'where': pass"),
        ("compiler/ops/kernel.py", "_EXACT = {'softmax', 'gemm'}"),
        ("compiler/ops/reduce/reduction.py", "COSTS = {'softmax': 1}"),
        ("compiler/ops/reduce/reduction.py", "COSTS = dict(softmax=1)"),
        ("compiler/ops/reduce/reduction.py", "FAST = 'softmax reduce'.split()"),
    ],
)
def test_a_table_that_knows_a_kernel_is_found(path, text):
    assert known_names(path, text)


KERNEL_NAMES = {k.name for k in TABLE}
# Names that are also words of other vocabularies (options, losses, kinds of layers), and the files
# in which they are.
HOMONYMS = {
    "batch_norm": ["compiler/training/program.py"],
    "resample": ["compiler/processors/images/reader.py", "compiler/processors/images/types.py"],
    "conv": [
        "compiler/passes/layers.py",
        "compiler/passes/lora.py",
        "compiler/training/export.py",
        "compiler/training/state_plans.py",
    ],
    "cross_entropy": ["compiler/training/losses.py", "training/losses.py"],
    "fill": [
        "logic/manifest/rules.py",
        "compiler/passes/lora.py",
        "host/training/session.py",
        "compiler/training/state_plans.py",
    ],
    "range": ["host/text/templates/sandbox.py"],  # functions of chat templates
    "nms": ["compiler/ops/host/data_dependent.py"],
    "optimizer": [
        "logic/manifest/limits.py",
        "extras/onnxruntime_training/api/module.py",
        "extras/onnxruntime_training/artifact_files/calls.py",
        "compiler/training/optimizers.py",
        "compiler/training/package.py",
        "compiler/training/program.py",
        "host/training/package.py",
        "host/training/trainer/options.py",
        "host/training/trainer/checkpoint.py",
    ],
    "pool": [
        "logic/tasks/pictures.py",
        "host/pipelines/images/image_classification.py",
        "host/session/memory.py",
    ],
    "product": ["compiler/declare/op.py"],
    "top_k": [
        "compiler/training/package.py",
        "host/cli/generate.py",
        "logic/openai/requests.py",
        "logic/generation/config.py",
        "logic/generation/fields.py",
        "logic/generation/records.py",
        "logic/generation/shortlist.py",
    ],
    "unique": ["compiler/ops/host/data_dependent.py", "host/text/templates/tables.py"],
    "where": ["host/session/described.py"],
}
# Options of pipelines, and their values.
OPTIONS = {"binary", "quantize", "softmax", "top_k"}
# The homonyms as arguments of functions, and in TypeScript.
WORDS = {*HOMONYMS, "copy", "range"}
# In TypeScript also a field of a plan, a method of tensors, a function of chat templates.
WORDS_OF_PAGES = {"copy", "range"}
# Names without an underscore that are no word of TypeScript's sources.
KEYS = {"gemm", "softmax", "cumsum", "trilu", "rope", "recurrent", "quantize", "dequantize"}
