"""What a machine without NumPy gets."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_without_numpy():
    """With NumPy blocked: import, run a model on lists and buffers, get buffers back."""
    script = """
import sys
sys.modules["numpy"] = None
import edgewise
from array import array
session = edgewise.InferenceSession(bytes.fromhex(sys.argv[1]))
y, = session.run(None, {"x": [[1, 2, 3], [4, 5, 6]]})
assert type(y) is edgewise.Array and y.shape == (2, 3) or list(y.shape) == [2, 3], y
assert y.tolist() == [[2, 4, 6], [8, 10, 12]], y
y, = session.run(None, {"x": memoryview(array("f", [1, 2, 3])).cast("B").cast("f", (1, 3))})
assert y.tolist() == [[2, 4, 6]] and bytes(memoryview(y.data)) == array("f", [2, 4, 6]).tobytes()
try:
    session.run(None, {"x": [[1, 2], [3]]})
except edgewise.EdgewiseError as e:
    print(e)
assert sys.modules["numpy"] is None
"""
    from onnx import TensorProto, helper

    f = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", f, ["n", 3])],
        [helper.make_tensor_value_info("y", f, ["n", 3])],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    done = subprocess.run(
        [sys.executable, "-c", script, model.hex()],
        env={"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "rectangular" in done.stdout, done.stdout + done.stderr


def test_fine_tuning_without_numpy():
    """With NumPy blocked: the same losses and text."""
    script = """
import sys
from edgewise import LoraConfig, Trainer
trainer = Trainer(sys.argv[1], adapters=LoraConfig(r=2), batch_size=1, sequence_length=16)
history = trainer.fit("red coat torn stop " * 20, max_steps=2, progress=False)
print(history.losses, trainer.generate("The old", max_new_tokens=8, do_sample=False))
"""
    blocked = 'import sys\nsys.modules["numpy"] = None\n'
    results = []
    for source in (script, blocked + script):
        done = subprocess.run(
            [sys.executable, "-c", source, str(ROOT / "web/demo/model")],
            env={"PYTHONPATH": str(ROOT / "python")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        results.append(done.stdout)
    assert results[0] == results[1] and "The old" in results[0]
