"""SessionOptions and RunOptions."""

import gc
import json
import time

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.errors import InputError, UnsupportedField
from onnx import TensorProto, helper

from .scripts import MODULES, W, X, both, model, product, refused, value

FIELDS = [n for n in dir(onnxruntime.SessionOptions) if not n.startswith("_")]
RUN_FIELDS = [n for n in dir(onnxruntime.RunOptions) if not n.startswith("_")]


def test_defaults_of_options():
    def fields(ort):
        options, run = ort.SessionOptions(), ort.RunOptions()
        read = [(n, getattr(options, n)) for n in FIELDS if hasattr(edgewise.SessionOptions, n)]
        read += [(n, getattr(run, n)) for n in RUN_FIELDS if hasattr(edgewise.RunOptions, n)]
        return [(n, getattr(v, "name", v)) for n, v in read if not callable(v)]

    assert len(both(fields)) > 15


def test_options_that_do_not_exist():
    """Also where they are read; a field may be asked for with hasattr."""
    for ort in MODULES:
        for options in (ort.SessionOptions(), ort.RunOptions()):
            with pytest.raises(AttributeError):
                options.max_run_second = 1
            assert not hasattr(options, "max_run_second")
            with pytest.raises(AttributeError):
                options.run = 3
    with pytest.raises(InputError, match="Did you mean 'max_run_seconds'?"):
        edgewise.SessionOptions().max_run_second = 1
    with pytest.raises(InputError, match="terminate"):
        edgewise.RunOptions().teminate = True


def test_configuration_entries():
    def entries(ort):
        options, run = ort.SessionOptions(), ort.RunOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        for read in (options.get_session_config_entry, run.get_run_config_entry):
            with pytest.raises(RuntimeError, match="does not have configuration with key: nothing"):
                read("nothing")
        return (
            options.get_session_config_entry("session.intra_op.allow_spinning"),
            run.get_run_config_entry("memory.enable_memory_arena_shrinkage"),
            ort.InferenceSession(product(), options).run(None, {"x": X}, run)[0].tolist(),
        )

    both(entries)


def test_free_dimensions():
    m = model(
        [helper.make_node("Abs", ["x"], ["y"])],
        [value("x", ["a", "b", 5])],
        [value("y", ["a", "b", 5])],
    )
    for i, means in enumerate(("DATA_BATCH", "DATA_CHANNEL")):
        m.graph.input[0].type.tensor_type.shape.dim[i].denotation = means
    data = m.SerializeToString()

    def shapes(ort, by, first, size):
        options = ort.SessionOptions()
        getattr(options, f"add_free_dimension_override_by_{by}")(first, size)
        session = ort.InferenceSession(data, options)
        kinds = [
            refused(ort, lambda n=n: session.run(None, {"x": np.ones((n, 2, 5), "f4")}))
            for n in (size, size + 1)
        ]
        return session.get_inputs()[0].shape, session.get_outputs()[0].shape[1:], kinds

    assert both(shapes, "name", "a", 3)[0] == [3, "b", 5]
    assert both(shapes, "name", "nothing", 3)[0] == ["a", "b", 5]
    assert both(shapes, "denotation", "DATA_BATCH", 4)[0] == [4, "b", 5]


def test_initializers_of_options():
    def computed(ort, name, w):
        options = ort.SessionOptions()
        w = ort.OrtValue.ortvalue_from_numpy(w)
        options.add_initializer(name, w)
        return ort.InferenceSession(product(), options).run(None, {"x": X})[0].tolist()

    assert both(computed, "w", W + 1) == (X * (W + 1)).tolist()
    for w in (W[:2], W.astype("f8")):
        with pytest.raises(InputError, match="initializer 'w'"):
            computed(edgewise, "w", w)
    with pytest.raises(InputError, match="no initializer of this name"):
        computed(edgewise, "nothing", W)


def test_external_initializers_of_options():
    """The file of the data does not exist."""
    m = onnx.load_from_string(product())
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "nowhere.bin"), ("offset", "0"), ("length", "24")):
        t.external_data.add(key=key, value=text)
    data = m.SerializeToString()

    def computed(ort):
        options = ort.SessionOptions()
        w = ort.OrtValue.ortvalue_from_numpy(W)
        options.add_external_initializers(["w"], [w])
        return ort.InferenceSession(data, options).run(None, {"x": X})[0].tolist()

    assert both(computed) == (X * W).tolist()
    for ort in MODULES:
        with pytest.raises(Exception):  # noqa: B017 - onnxruntime's own
            ort.InferenceSession(data)


def test_options_that_cannot_be_kept(tmp_path):
    options = edgewise.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    with pytest.raises(UnsupportedField, match="optimized_model_filepath"):
        edgewise.InferenceSession(product(), options)
    with pytest.raises(UnsupportedField, match="libraries of operators"):
        edgewise.SessionOptions().register_custom_ops_library("custom.so")


def test_profiling(tmp_path):
    """A list of Chrome trace events, one on a line."""

    def recorded(ort):
        options = ort.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / ort.__name__)
        before = time.time_ns()
        session = ort.InferenceSession(product(), options)
        for n in (3, 3, 3):
            session.run(None, {"x": X[:n]})
        begun = session.get_profiling_start_time_ns()
        path = session.end_profiling()
        assert path.startswith(options.profile_file_prefix) and path.endswith(".json")
        with open(path) as file:
            lines = file.read().splitlines()
        events = json.loads("\n".join(lines))
        assert lines[0] == "[" and lines[-1] == "]" and len(lines) == len(events) + 2
        nodes = [e for e in events if e["ph"] == "X" and "Mul" in e["name"]]
        assert len(nodes) >= 3 and all({"pid", "tid", "ts", "dur", "args"} <= set(e) for e in nodes)
        return before <= begun <= time.time_ns()

    assert both(recorded)
    session = edgewise.InferenceSession(product())
    assert session.end_profiling() == "" and session.get_profiling_start_time_ns() == 0


def test_a_profile_that_nobody_ends(tmp_path):
    options = edgewise.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    edgewise.InferenceSession(product(), options).run(None, {"x": X})
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
