"""Names of the module, providers, and classes of errors."""

import os
import subprocess
import sys
from pathlib import Path

import edgewise
import pytest
from edgewise.errors import EdgewiseError, InputError
from onnx import helper

from .scripts import MODULES, W, X, both, model, product, refused, value


def test_names_of_the_module():
    def used(ort):
        ort.set_default_logger_severity(4)
        ort.set_seed(3)
        ort.disable_telemetry_events()
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.inter_op_num_threads = options.intra_op_num_threads = 1
        wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
        providers = [p for p in wanted if p in ort.get_available_providers()]
        session = ort.InferenceSession(product(), options, providers)
        session.disable_fallback()
        session.set_providers(["CPUExecutionProvider"])
        with pytest.raises(RuntimeError, match="Unknown Provider Type"):
            session.set_providers(["NoSuchProvider"])
        ran = ort.InferenceSession(product(), options, providers=providers)
        return (
            ort.get_device(),
            ort.get_all_providers()[-1],
            ran.get_providers(),
            ran.get_provider_options(),
            ran.get_session_options().inter_op_num_threads,
            [v.value for v in ort.GraphOptimizationLevel.__members__.values()],
            [v.value for v in ort.ExecutionMode.__members__.values()],
            [i.name for i in ran.get_overridable_initializers()],
            ran.run(None, {"x": X})[0].tolist(),
            "Build Info" in ort.get_build_info(),
            type(ort.get_version_string()),
        )

    try:
        both(used)
    finally:
        edgewise.host.session.face.environment._seed = None


def test_moving_between_providers():
    session = edgewise.InferenceSession(product())
    for _ in range(2):
        assert session.run(None, {"x": X})[0].tolist() == (X * W).tolist()
        session.set_providers(["CPUExecutionProvider"])


def test_providers_that_are_not_there():
    def computed(ort):
        with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available"):
            providers = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
            session = ort.InferenceSession(product(), providers=providers)
        return session.get_providers(), session.run(None, {"x": X})[0].tolist()

    both(computed)
    for wrong in (3, [3], [("CPUExecutionProvider", 3)]):
        with pytest.raises(ValueError):
            edgewise.InferenceSession(product(), providers=wrong)


def test_seed_of_the_process():
    data = model([helper.make_node("RandomNormal", [], ["y"], shape=[4])], [], [value("y", [4])])

    def draw(ort, seed):
        ort.set_seed(seed)
        return ort.InferenceSession(data.SerializeToString()).run(None, {})[0].tolist()

    try:
        for ort in MODULES:
            assert draw(ort, 5) == draw(ort, 5) != draw(ort, 6)
        with pytest.raises(InputError):
            edgewise.set_seed(-1)
    finally:
        edgewise.host.session.face.environment._seed = None


def test_classes_of_errors(tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"\xff" * 40)
    for run, builtin in (
        (lambda ort: ort.InferenceSession(str(tmp_path / "nothing.onnx")), FileNotFoundError),
        (lambda ort: ort.InferenceSession(str(damaged)), EdgewiseError),
        (lambda ort: ort.InferenceSession(product()).run(None, {"x": X[0]}), ValueError),
        (lambda ort: ort.InferenceSession(product()).run(None, {"x": X.astype("f8")}), ValueError),
        (lambda ort: ort.InferenceSession(product()).run(None, {"x": X, "z": X}), ValueError),
    ):
        both(lambda ort, run=run: refused(ort, lambda: run(ort)))
        with pytest.raises(builtin):
            run(edgewise)
    script = (
        "import edgewise as ort\n"
        "try:\n    ort.InferenceSession('nothing.onnx')\n"
        "except ort.capi.onnxruntime_pybind11_state.NoSuchFile:\n    print('caught')\n"
        "from edgewise.capi import _pybind_state as C\n"
        "assert C.SessionOptions is ort.SessionOptions"
    )
    place = {**os.environ, "PYTHONPATH": str(Path(edgewise.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=place)
    assert done.stdout == "caught\n", done.stderr
    with pytest.raises(FileNotFoundError) as e:
        edgewise.InferenceSession(str(tmp_path / "nothing.onnx"))
    assert e.value.filename == str(tmp_path / "nothing.onnx") and "nothing.onnx" in str(e.value)
    for load in (edgewise.pipeline, edgewise.CausalLM):
        with pytest.raises(FileNotFoundError):
            load(*(["text-generation"] if load is edgewise.pipeline else []), tmp_path / "nothing")
