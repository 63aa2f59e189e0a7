"""OrtValue, IOBinding and the ways to run."""

import threading

import edgewise
import numpy as np
import pytest
from edgewise.errors import InputError

from .scripts import W, X, both, product


def test_ort_value():
    def described(ort):
        v = ort.OrtValue.ortvalue_from_numpy(X.copy())
        empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], 10)
        empty.update_inplace(np.ones((2, 3), "f2"))
        bits = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.uint16([1, 2]), 16)
        shared = X.copy()
        alias = ort.OrtValue.ortvalue_from_numpy(shared)
        shared[0, 0] = 7
        with pytest.raises(Exception):  # noqa: B017 - onnxruntime's own
            v.update_inplace(np.ones((9, 9), "f4"))
        with pytest.raises(Exception):  # noqa: B017 - onnxruntime's own
            ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
        return (
            [
                (
                    x.shape(),
                    x.data_type(),
                    x.element_type(),
                    x.device_name(),
                    x.is_tensor(),
                    x.has_value(),
                    x.is_sparse_tensor(),
                    x.is_tensor_sequence(),
                    x.tensor_size_in_bytes(),
                )
                for x in (v, empty, bits)
            ],
            v.numpy().tolist(),
            empty.numpy().tolist(),
            alias.numpy().tolist(),
            alias.data_ptr() == shared.ctypes.data,
        )

    both(described)


def test_run_with_ort_values():
    def computed(ort):
        session = ort.InferenceSession(product())
        x = ort.OrtValue.ortvalue_from_numpy(X)
        outs = session.run_with_ort_values(["y"], {"x": x})
        again = session.run_with_ort_values(["y"], {"x": outs[0]})
        return (
            outs[0].numpy().tolist(),
            again[0].numpy().tolist(),
            session.run(None, {"x": x})[0].tolist(),
        )

    both(computed)


def test_io_binding():
    """Inputs that change, outputs into memory of the caller, and at an address."""

    def computed(ort):
        session = ort.InferenceSession(product())
        binding, results = session.io_binding(), []
        x, y, z = X.copy(), np.zeros((3, 2), "f4"), np.zeros((3, 2), "f4")
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        results += [a.tolist() for a in binding.copy_outputs_to_cpu()]
        results += [v.numpy().tolist() for v in binding.get_outputs()]
        binding.clear_binding_outputs()
        binding.clear_binding_inputs()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        x[:] = 2
        session.run_with_iobinding(binding)
        results.append(y.tolist())
        binding.bind_input("x", "cpu", 0, np.float32, [3, 2], x.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, [3, 2], z.ctypes.data)
        binding.synchronize_inputs()
        for factor in (3, 4):
            x[:] = factor
            session.run_with_iobinding(binding, ort.RunOptions())
            binding.synchronize_outputs()
            results.append(z.tolist())
        for bind in (binding.bind_cpu_input, binding.bind_ortvalue_input):
            with pytest.raises(Exception):  # noqa: B017 - onnxruntime's own
                bind("nothing", ort.OrtValue.ortvalue_from_numpy(x))
        return results

    both(computed)
    with pytest.raises(InputError, match="no output 'nothing'"):
        edgewise.InferenceSession(product()).io_binding().bind_output("nothing")


def test_runs_with_values_are_recorded():
    """As those of arrays: a value is no reason for the long way."""
    session, direct = edgewise.InferenceSession(product()), []
    x = edgewise.OrtValue.ortvalue_from_numpy(X)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y")
    run = session.direct.run
    session.direct.run = lambda *args: direct.append(run(*args)) or direct[-1]
    for _ in range(4):
        session.run_with_iobinding(binding)
        (y,) = session.run_with_ort_values(["y"], {"x": x})
    assert direct[0] is None and all(direct[-2:])
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], X * W) and np.array_equal(y, X * W)


def test_run_async():
    def computed(ort):
        options, done, got = ort.SessionOptions(), threading.Event(), []
        options.intra_op_num_threads = 2  # onnxruntime needs one besides that of the caller
        session = ort.InferenceSession(product(), options)

        def callback(results, data, error):
            got.extend([[r.tolist() for r in results], data, error])
            done.set()

        session.run_async(None, {"x": X}, callback, "mine")
        assert done.wait(240)
        return got

    both(computed)


def test_a_failed_run_async():
    done, got = threading.Event(), []
    session = edgewise.InferenceSession(product())
    session.run_async(None, {"x": X[:2]}, lambda *a: (got.extend(a), done.set()), 5)
    assert done.wait(240) and got[:2] == [[], 5] and "y" in got[2]
