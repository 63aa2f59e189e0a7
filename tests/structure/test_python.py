"""The house's walls: what may import what, what is generated, and what a machine without NumPy
gets.
"""

import ast
import subprocess
import sys

import pytest
from repository import ROOT, facts

PACKAGE = ROOT / "python" / "edgewise"

# Parts of the package, each of which may import only those of lines above its own (and itself).
ORDER = [
    {"errors", "schema", "element_types"},
    {"logic"},  # printed as TypeScript for pages: pure, and imports nothing but errors
    {"manifest_limits", "session_limits"},
    {"json_text", "atomic_file", "model_metadata"},
    {"declare"},
    {"ops", "manifest", "seeds"},
    {"ir", "arrays"},
    {"onnx"},
    {"bind", "passes", "engine", "shake"},
    {"targets"},
    {"sums", "locks"},
    {"package"},
    {"plan"},
    {"webgpu"},
    {"devices"},
    {"processors"},
    {"compile", "profile"},
    {"hub"},
    {"session"},
    {"text"},
    {"training"},
    {"heads"},
    {"task_package"},
    {"pipelines", "custom_engine", "page"},
    {"inspect", "bench", "snapshot", "federated", "serve", "release"},
    {"backend", "capi"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {part: i for i, parts in enumerate(ORDER) for part in parts}
# Lines of the order that could be crossed but must not be: ops know no graph files, passes no
# engine, text no model.
NEVER = {
    "logic": set(LEVEL) - {"logic", "errors"},
    "passes": {"onnx", "bind", "arrays"},
    "text": set(LEVEL) - {"text", "errors", "json_text", "schema", "logic"},
    "engine": {"declare", "ops", "ir", "arrays"},
}

# Files of edgewise[federated] that compute with NumPy.
FEDERATED = """audit.py broadcast.py client.py client_secure.py client_state.py codec.py grid.py
    local_training.py private_grid.py rounds.py secure/group.py secure/member.py
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
    """(file, its part, imported module as a list of names) of every import, also those inside
    functions, but not those for annotations alone.
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
                targets = [[*base, a.name] for a in node.names] if base == ["edgewise"] else [base]
            for target in targets:
                yield str(where), where.parts[0].removesuffix(".py"), target


def test_imports_point_one_way():
    assert {
        p.name.removesuffix(".py")
        for p in PACKAGE.iterdir()
        if p.suffix == ".py" or (p / "__init__.py").exists()
    } == set(LEVEL), "name new parts in ORDER"
    wrong = [
        f"{where} imports {'.'.join(target)}"
        for where, part, target in imports()
        if target[0] == "edgewise"
        and (to := target[1] if len(target) > 1 and target[1] in LEVEL else "__init__") != part
        and (LEVEL[to] >= LEVEL[part] or to in NEVER.get(part, ()))
    ]
    assert not wrong


@pytest.mark.parametrize(
    "names, only",
    [
        # the engine, and the tokenizers and templates of pages
        ({"js", "pyodide", "pyodide_js"}, "host/engine/browser.py host/text/browser.py"),
        (
            {"numpy"},
            "host/arrays.py extras/backend.py extras/bench/peer.py"
            + "".join(f" federated/{file}" for file in FEDERATED)
            + "".join(f" release/{file}" for file in RELEASE["numpy"]),
        ),
        ({"ctypes", "mmap"}, "host/engine/native.py"),
        ({"wgpu", "wgpudawn"}, ""),  # by name: webgpu/gpu.py
    ],
)
def test_few_files_know(names, only):
    assert {where for where, _, target in imports() if target[0] in names} == set(only.split())


def test_nothing_is_needed_but_python():
    """Everything else that is imported is optional: it belongs to a feature, and its absence is an
    error of that feature alone.
    """
    known = set(sys.stdlib_module_names) | {"edgewise", "js", "pyodide", "pyodide_js"}
    assert {(where, target[0]) for where, _, target in imports() if target[0] not in known} == {
        ("host/arrays.py", "numpy"),
        ("host/arrays.py", "ml_dtypes"),
        ("host/hub.py", "huggingface_hub"),
        ("extras/backend.py", "numpy"),
        ("host/text/library.py", "tokenizers"),
        ("host/text/templates/rendering.py", "jinja2"),
        ("host/text/templates/bounds.py", "jinja2"),
        ("host/text/templates/bounds.py", "markupsafe"),
        ("host/text/templates/budget.py", "jinja2"),
        ("host/text/templates/sandbox.py", "jinja2"),
        ("host/text/templates/tables.py", "markupsafe"),
        ("extras/onnxruntime_training/onnxblock/_graph_utils.py", "onnx"),
        ("extras/backend.py", "onnx"),
        ("host/media/decode.py", "soundfile"),
        ("host/media/recording.py", "soundfile"),
        ("host/media/pictures.py", "PIL"),
        ("extras/bench/peer.py", "numpy"),
        ("extras/bench/peer.py", "onnxruntime"),
        *(("federated/" + file, "numpy") for file in FEDERATED),
        ("extras/federated/admission.py", "websockets"),
        ("extras/federated/client.py", "websockets"),
        ("extras/federated/hub.py", "websockets"),
        ("extras/federated/secure/crypto.py", "cryptography"),
        ("extras/federated/secure/identity.py", "cryptography"),
        ("extras/federated/secure/privacy.py", "dp_accounting"),
        *(("federated/" + file, "flwr") for file in FLOWER),
        *((f"release/{file}", name) for name, files in RELEASE.items() for file in files),
        ("extras/serve/app.py", "starlette"),
        ("extras/serve/connections.py", "h11"),
        ("extras/serve/connections.py", "uvicorn"),
        ("extras/serve/launch.py", "uvicorn"),
    }


def test_only_public_modules_of_flower_are_imported():
    """Those that `flwr.__all__` names: the others change with its releases."""
    found = {".".join(target) for _, _, target in imports() if target[0] == "flwr"}
    assert found == {"flwr.app", "flwr.serverapp", "flwr.clientapp"}


def test_generated_files_are_current():
    done = subprocess.run(
        [sys.executable, "-S", "core/generate", "--check"],  # -S: nothing but Python
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr + "\nRun `make gen`."
