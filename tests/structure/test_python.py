"""The house's walls: what may import what, what is generated, and what a machine without NumPy
gets.
"""

import ast
import subprocess
import sys

import pytest
from repository import ROOT, facts

PACKAGE = ROOT / "python" / "edgewise"

# Parts of the package, each of which may import only those of lines above its own, and itself.
ORDER = [
    {"element_types", "errors", "seeds"},
    {"logic"},  # printed as TypeScript for pages: pure
    {"json_text", "atomic_file", "locks", "model_metadata"},
    {"compiler"},  # from a model to a package
    {"host"},  # runs packages
    {"extras"},  # what the rest does not know
]
LEVEL = {part: i for i, parts in enumerate(ORDER) for part in parts}
# Every other file is a face, above all of them: the public names of modules, and nothing else.
# These have code of their own: they are entry points of a process, or import on first use.
ENTRIES = """__init__.py __main__.py cli.py page.py snapshot.py training/__init__.py
    capi/onnxruntime_pybind11_state.py""".split()
# Imports that the order allows but that must not be: passes know no graph files, text knows no
# model, the engine no operators.
NEVER = {
    "compiler.passes": {"compiler.onnx", "compiler.bind", "compiler.arrays"},
    "host.text": {f"{w}.{p.stem}" for w in ("compiler", "host") for p in (PACKAGE / w).iterdir()}
    - {"host.text", "host.drive", "compiler.schema", "compiler.tokenizers"},
    "host.engine": {"compiler.declare", "compiler.ops", "compiler.ir", "compiler.arrays"},
}

# Files of edgewise[federated] that compute with NumPy.
FEDERATED = """audit.py broadcast.py client.py client_secure.py client_state.py codec.py grid.py
    local_training.py private_grid.py rounds.py secure/group.py
    secure/noise.py secure/plan.py secure/privacy.py secure/quantize.py run_folder.py site.py
    site_grid.py verify.py""".split()
RELEASE = {  # files of edgewise[release]
    "numpy": ("build.py", "codec.py", "entropy.py", "floats.py"),
    "tuf": ("client.py", "metadata.py"),
    "securesystemslib": ("keys.py",),
    "cryptography": ("keys.py",),
}
FLOWER = ["grid.py", "site_grid.py", "private_grid.py", "rounds.py"] + [
    f"app/edgewise_rounds/{name}_app.py" for name in ("client", "server")
]


def imports():
    """(file, imported module as a list of names) of every import, also those inside functions, but
    not those for annotations alone.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        package = ["edgewise", *where.parts[:-1]]
        for node in facts(path).imports:
            if isinstance(node, ast.Import):
                targets = [a.name.split(".") for a in node.names]
            else:
                base = package[: len(package) - node.level + 1] if node.level else []
                base += node.module.split(".") if node.module else []
                ours = base[0] == "edgewise"
                targets = [[*base, a.name] for a in node.names] if ours else [base]
            for target in targets:
                yield where.as_posix(), target


def parts_of(file):
    """The part of a file, and what it is within the part: "compiler", "compiler.passes"."""
    names = file.removesuffix(".py").split("/")
    return names[0], ".".join(names[:2])


def test_imports_point_one_way():
    wrong = []
    for where, target in imports():
        if target[0] != "edgewise" or target[1:] == ["__version__"]:
            continue
        (part, inner), to = parts_of(where), (target[1:] or ["__init__"])[0]
        if part not in LEVEL:
            continue
        if LEVEL.get(to, len(ORDER)) > LEVEL[part] or ".".join(target[1:3]) in NEVER.get(inner, ()):
            wrong.append(f"{where} imports {'.'.join(target)}")
    assert not wrong


def test_faces_only_name():
    """A file beside the parts imports public names, and does nothing else."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        if parts_of(where)[0] in LEVEL or where in ENTRIES:
            continue
        for node in ast.parse(path.read_text()).body:
            known = isinstance(node, ast.ImportFrom)
            known |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            known |= isinstance(node, ast.Assign) and ast.unparse(node.targets) == "__all__"
            assert known, f"{where}:{node.lineno}: move it to a part of ORDER"


@pytest.mark.parametrize(
    "names, only",
    [
        # the engine, and the tokenizers and templates of pages
        ({"js", "pyodide", "pyodide_js"}, "host/engine/browser.py host/text/browser.py"),
        (
            {"numpy"},
            "compiler/arrays.py extras/bench/peer.py"
            + "".join(f" extras/federated/{file}" for file in FEDERATED)
            + "".join(f" extras/release/{file}" for file in RELEASE["numpy"]),
        ),
        ({"ctypes", "mmap"}, "host/engine/native.py"),
        ({"wgpu", "wgpudawn"}, ""),  # by name: host/webgpu/gpu.py
    ],
)
def test_few_files_know(names, only):
    assert {where for where, target in imports() if target[0] in names} == set(only.split())


def test_nothing_is_needed_but_python():
    """Everything else that is imported is optional: it belongs to a feature, and its absence is an
    error of that feature alone.
    """
    known = set(sys.stdlib_module_names) | {"edgewise", "js", "pyodide", "pyodide_js"}
    assert {(where, target[0]) for where, target in imports() if target[0] not in known} == {
        ("compiler/arrays.py", "numpy"),
        ("compiler/arrays.py", "ml_dtypes"),
        ("host/hub.py", "huggingface_hub"),
        ("host/training/trainer/loop.py", "tqdm"),
        ("host/text/library.py", "tokenizers"),
        ("host/text/templates/rendering.py", "jinja2"),
        ("host/text/templates/bounds.py", "jinja2"),
        ("host/text/templates/bounds.py", "markupsafe"),
        ("host/text/templates/budget.py", "jinja2"),
        ("host/text/templates/sandbox.py", "jinja2"),
        ("host/text/templates/tables.py", "markupsafe"),
        ("extras/onnxruntime_training/onnxblock/_graph_utils.py", "onnx"),
        ("host/media/decode.py", "soundfile"),
        ("host/media/recording.py", "soundfile"),
        ("host/media/pictures.py", "PIL"),
        ("extras/bench/peer.py", "numpy"),
        ("extras/bench/peer.py", "onnxruntime"),
        *(("extras/federated/" + file, "numpy") for file in FEDERATED),
        ("extras/federated/admission.py", "websockets"),
        ("extras/federated/client.py", "websockets"),
        ("extras/federated/hub.py", "websockets"),
        ("extras/federated/secure/crypto.py", "cryptography"),
        ("extras/federated/secure/identity.py", "cryptography"),
        ("extras/federated/secure/privacy.py", "dp_accounting"),
        *(("extras/federated/" + file, "flwr") for file in FLOWER),
        *((f"extras/release/{file}", name) for name, files in RELEASE.items() for file in files),
        ("extras/serve/app.py", "starlette"),
        ("extras/serve/connections.py", "h11"),
        ("extras/serve/connections.py", "uvicorn"),
        ("extras/serve/launch.py", "uvicorn"),
    }


def test_only_public_modules_of_flower_are_imported():
    """Those that `flwr.__all__` names: the others change with its releases."""
    found = {".".join(target) for _, target in imports() if target[0] == "flwr"}
    assert found == {"flwr.app", "flwr.serverapp", "flwr.clientapp"}


def test_generated_files_are_current():
    done = subprocess.run(
        [sys.executable, "-S", "core/generate", "--check"],  # -S: nothing but Python
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr + "\nRun `make gen`."
