"""ONNX Runtime Web's TrainingSession in a page: artifacts, steps as Python's, checkpoints both
read, exports that onnxruntime runs.
"""

import base64
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from .test_trouble import error

CREATE = """
    const open = (more = {}) =>
      ew.TrainingSession.create(
        {
          checkpointState: "/files/artifacts/checkpoint",
          trainModel: "/files/artifacts/training_model.onnx",
          evalModel: "/files/artifacts/eval_model.onnx",
          optimizerModel: "/files/artifacts/optimizer_model.onnx",
          ...more.files,
        },
        { flavour: "simd128", ...more.options },
      );
    const batch = (i) => ({
      x: new ew.Tensor("float32", Float32Array.from(arg.x[i].flat()), [arg.x[i].length, 6]),
      labels: new ew.Tensor("int64", arg.y[i], [arg.y[i].length]),
    });
    const steps = async (s, from, to) => {
      const losses = [];
      for (let i = from; i < to; i++) {
        const out = await s.runTrainStep(batch(i));
        losses.push(out[s.trainingOutputNames[0]].data[0]);
        await s.runOptimizerStep();
        await s.lazyResetGrad();
      }
      return losses;
    };
    const base64 = (bytes) => btoa(String.fromCharCode(...bytes));
"""


@pytest.fixture(scope="module")
def artifacts(files):
    from edgewise.training import artifacts, onnxblock

    r = np.random.default_rng(0)
    weights = {"w1": (6, 16), "b1": (16,), "w2": (16, 4), "b2": (4,)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["p"]),
        helper.make_node("Add", ["p", "b1"], ["q"]),
        helper.make_node("Relu", ["q"], ["h"]),
        helper.make_node("MatMul", ["h", "w2"], ["s"]),
        helper.make_node("Add", ["s", "b2"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])],
        [
            numpy_helper.from_array(r.standard_normal(shape).astype(np.float32) * 0.3, name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        artifacts.generate_artifacts(
            model,
            ["w1", "b1", "w2"],
            ["b2"],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=onnxblock.optim.AdamW(),
            artifact_directory=files / "artifacts",
        )
    sizes = [8, 8, 3, 8, 3, 8]
    return {
        "x": [r.standard_normal((n, 6)).astype(np.float32).round(3).tolist() for n in sizes],
        "y": [r.integers(0, 4, n).tolist() for n in sizes],
    }


def test_it_trains_as_python_does(visit, server, files, artifacts, tmp_path):
    from edgewise.training.api import CheckpointState, Module, Optimizer

    folder = files / "artifacts"
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.01)
    batches = [
        (np.array(x, np.float32), np.array(y, np.int64))
        for x, y in zip(artifacts["x"], artifacts["y"])
    ]
    here = []
    for x, y in batches:
        here.append(float(module(x, y)))
        optimizer.step()
        module.lazy_reset_grad()
    v = visit(server)
    got = v.run(
        CREATE
        + """
            const s = await open();
            const names = [
              s.trainingInputNames,
              s.trainingOutputNames,
              s.evalInputNames,
              s.evalOutputNames,
              s.parameters,
              await s.getParametersSize(),
              await s.getParametersSize(false),
              await s.getLearningRate(),
            ];
            await s.setLearningRate(0.01);
            const before = Array.from((await s.getContiguousParameters(false)).data);
            const losses = await steps(s, 0, 6);
            const evaluated = (await s.runEvalStep(batch(0)))[s.evalOutputNames[0]].data[0];
            const after = Array.from((await s.getContiguousParameters()).data);
            const w1 = await s.getParameter("w1");
            const model = base64(await s.exportModel(["logits"])),
              checkpoint = base64(await s.saveCheckpoint());
            await s.release();
            // In two halves, with a checkpoint between them.
            const a = await open();
            await a.setLearningRate(0.01);
            const first = await steps(a, 0, 3),
              half = await a.saveCheckpoint();
            await a.release();
            const b = await open({ files: { checkpointState: half } });
            const rate = await b.getLearningRate();
            const second = await steps(b, 3, 6);
            await b.release();
            return {
              names,
              before,
              losses,
              evaluated,
              after,
              w1: [w1.dims, w1.type],
              model,
              checkpoint,
              halves: [...first, ...second],
              rate,
            };
        """,
        artifacts,
    )
    assert "error" not in got, got
    np.testing.assert_allclose(got["losses"], here, rtol=1e-5)
    assert got["halves"] == got["losses"] and got["rate"] == pytest.approx(0.01)
    inputs, outputs, eval_inputs, _, parameters, size, whole, _ = got["names"]
    assert (
        inputs == eval_inputs == ["x", "labels"]
        and len(outputs) >= 1
        and (size, whole) == (6 * 16 + 16 + 16 * 4, 6 * 16 + 16 + 16 * 4 + 4)
        and got["w1"] == [[6, 16], "float32"]
    )
    assert [(p["name"], p["requires_grad"]) for p in parameters] == [
        ("w1", True),
        ("b1", True),
        ("w2", True),
        ("b2", False),
    ] and len(got["before"]) == whole
    module.eval()
    np.testing.assert_allclose(got["evaluated"], float(module(*batches[0])), rtol=1e-5)
    np.testing.assert_allclose(
        got["after"], np.asarray(module.get_contiguous_parameters(True)), rtol=1e-4, atol=1e-6
    )
    (tmp_path / "checkpoint").write_bytes(base64.b64decode(got["checkpoint"]))
    saved = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    np.testing.assert_allclose(
        np.asarray(saved.parameters["w2"].data),
        np.asarray(state.parameters["w2"].data),
        rtol=1e-4,
        atol=1e-6,
    )
    import onnxruntime

    model = base64.b64decode(got["model"])
    (logits,) = onnxruntime.InferenceSession(model).run(None, {"x": batches[0][0]})
    module.export_model_for_inferencing(tmp_path / "here.onnx", ["logits"])
    np.testing.assert_allclose(
        logits,
        onnxruntime.InferenceSession(tmp_path / "here.onnx").run(None, {"x": batches[0][0]})[0],
        rtol=1e-4,
        atol=1e-5,
    )


def test_steps_updates_and_resets_in_any_order(visit, server, files):
    """The losses of tests/conformance/training_updates.json, which PyTorch computed and Python
    meets, too.
    """
    from conformance.vectors import vectors
    from training.updates import write_artifacts

    data = vectors("training_updates")
    write_artifacts(data, files / "updates")
    got = visit(server).run(
        """
            const file = (name) => `/files/updates/${name}`;
            const out = [];
            for (const { steps } of arg.sequences) {
              const s = await ew.TrainingSession.create(
                {
                  checkpointState: file("checkpoint"),
                  trainModel: file("training_model.onnx"),
                  evalModel: file("eval_model.onnx"),
                  optimizerModel: file("optimizer_model.onnx"),
                },
                { flavour: "simd128" },
              );
              await s.setLearningRate(arg.rate);
              const losses = [];
              let early = false;
              for (const step of steps) {
                const [kind, i] = step.split(" ");
                if (kind === "reset") await s.lazyResetGrad();
                else if (kind === "update") await s.runOptimizerStep();
                else {
                  if (!losses.length && !out.length)
                    early = await s.runOptimizerStep().then(
                      () => "no error",
                      (e) => e.name,
                    );
                  const feeds = {
                    x: new ew.Tensor("float32", Float32Array.from(arg.x[i].flat()), [
                      arg.x[i].length,
                      6,
                    ]),
                    labels: new ew.Tensor("int64", arg.y[i], [arg.y[i].length]),
                  };
                  const result =
                    kind === "train" ? await s.runTrainStep(feeds) : await s.runEvalStep(feeds);
                  losses.push(result[s.trainingOutputNames[0]].data[0]);
                }
              }
              await s.release();
              out.push(out.length ? losses : [losses, early]);
            }
            return out;
        """,
        data,
    )
    assert "error" not in got, got
    first, early = got[0]
    assert early == "InputError"
    for row, losses in zip(data["sequences"], [first, *got[1:]]):
        np.testing.assert_allclose(losses, row["losses"], rtol=1e-4, err_msg=row["name"])


def test_parameters_in_and_out(visit, server, artifacts):
    v = visit(server)
    got = v.run(
        CREATE
        + """
            const s = await open();
            const p = await s.getContiguousParameters(false);
            const zeros = new Float32Array(p.size);
            await s.loadParametersBuffer(new Uint8Array(zeros.buffer), false); // frozen ones, too
            const even = (await s.runTrainStep(batch(0)))[s.trainingOutputNames[0]].data[0];
            const trainable = await s.getContiguousParameters();
            await s.loadParametersBuffer(new Uint8Array(p.data.buffer, 0, 4 * trainable.size));
            await s.setParameter(
              "b1",
              new ew.Tensor("float32", new Float32Array(16).fill(2), [16]),
            );
            const b1 = Array.from((await s.getParameter("b1")).data),
              w1 = Array.from((await s.getParameter("w1")).data);
            await s.release();
            return {
              even,
              zero: trainable.data.every((x) => x === 0),
              b1,
              same: w1.every((x, i) => x === p.data[i]),
            };
        """,
        artifacts,
    )
    assert "error" not in got, got
    assert (
        got["even"] == pytest.approx(np.log(4), rel=1e-6)
        and got["zero"]
        and got["b1"] == [2] * 16
        and got["same"]
    )


def test_wrong_wishes(visit, server, artifacts):
    v = visit(server)
    tries = {
        "no train model": (
            "await open({files: {trainModel: undefined}})",
            "InputError",
            "trainModel",
        ),
        "no such file": (
            "await open({files: {checkpointState: '/files/artifacts/nothing'}})",
            "ModelError",
            "404",
        ),
        "another file": (
            "await open({files: {checkpointState: '/files/artifacts/training_model.onnx'}})",
            "ModelError",
            "",
        ),
        "no evaluation": (
            "const s = await open({files: {evalModel: undefined}}); await s.runEvalStep(batch(0))",
            "InputError",
            "evalModel",
        ),
        "no optimizer": (
            (
                "const s = await open({files: {optimizerModel: undefined}}); await"
                " s.runTrainStep(batch(0)); await s.runOptimizerStep()"
            ),
            "InputError",
            "optimizerModel",
        ),
        "no gradients": (
            "const s = await open(); await s.runOptimizerStep()",
            "InputError",
            "runTrainStep",
        ),
        "a missing feed": (
            "const s = await open(); await s.runTrainStep({x: batch(0).x})",
            "InputError",
            "labels",
        ),
        "another feed": (
            "const s = await open(); await s.runTrainStep({...batch(0), y: batch(0).x})",
            "InputError",
            "'y'",
        ),
        "another shape": (
            (
                "const s = await open(); await s.runTrainStep({...batch(0), x: new"
                " ew.Tensor('float32', new Float32Array(8), [4, 2])})"
            ),
            "",
            "",
        ),
        "no tensor": (
            "const s = await open(); await s.runTrainStep({...batch(0), x: [1]})",
            "InputError",
            "Tensor",
        ),
        "dims": ("new ew.Tensor('float32', [1, 2], [3])", "InputError", "dims"),
        "type": ("new ew.Tensor('quaternion', [1, 2])", "InputError", "quaternion"),
        "buffer": (
            "const s = await open(); await s.loadParametersBuffer(new Uint8Array(4))",
            "InputError",
            "bytes",
        ),
        "parameter": ("const s = await open(); await s.getParameter('w9')", "InputError", "w9"),
        "output": (
            "const s = await open(); await s.exportModel(['nothing'])",
            "InputError",
            "nothing",
        ),
        "label": (
            (
                "const s = await open(); await s.runTrainStep({...batch(0), labels: new"
                " ew.Tensor('int64', [9, 9, 9, 9, 9, 9, 9, 9])})"
            ),
            "",
            "",
        ),
    }
    for name, (body, kind, word) in tries.items():
        got = v.run(CREATE + body, artifacts)
        assert isinstance(got, dict) and "error" in got, name
        assert got["error"]["ours"], (name, got)
        if kind:
            error(got, kind, word)


CASES = sorted(
    p for p in (Path(__file__).parents[1] / "training" / "models").glob("*/training_model.onnx")
)


@pytest.mark.parametrize("case", [p.parent for p in CASES], ids=lambda p: p.name)
def test_artifacts_that_onnxruntime_made(visit, server, files, case):
    """Twenty steps on ONNX Runtime Training's own files are PyTorch's, with its AdamW rule."""
    shutil.copytree(case, files / case.name, dirs_exist_ok=True)
    spec = json.loads((case / "spec.json").read_text())
    with np.load(case / "data.npz") as z:
        feeds = [[str(z[k].dtype), list(z[k].shape), z[k].ravel().tolist()] for k in z.files]
    v = visit(server)
    got = v.run(
        """
            const at = (name) => `/files/${arg.case}/${name}`;
            const s = await ew.TrainingSession.create({
              checkpointState: at("checkpoint"),
              trainModel: at("training_model.onnx"),
              evalModel: at("eval_model.onnx"),
              optimizerModel: at("optimizer_model.onnx"),
            });
            await s.setLearningRate(arg.lr);
            const feeds = Object.fromEntries(
              arg.feeds.map(([type, dims, data], i) => [
                s.trainingInputNames[i],
                new ew.Tensor(type, data, dims),
              ]),
            );
            const losses = [];
            for (let i = 0; i < 20; i++) {
              losses.push(Object.values(await s.runTrainStep(feeds))[0].data[0]);
              await s.runOptimizerStep();
              await s.lazyResetGrad();
            }
            await s.release();
            return losses;
        """,
        {"case": case.name, "feeds": feeds, "lr": spec["lr"]},
    )
    assert isinstance(got, list), got
    with np.load(case / "torch.npz") as z:
        np.testing.assert_allclose(got, z["loss_hf"], rtol=1e-4, atol=1e-6)


def test_the_schedule_is_pythons(visit, server, artifacts):
    from edgewise.training.api import LinearLRScheduler

    class Optimizer:
        steps = 0

        def set_learning_rate(self, rate):
            self.rate = rate

    optimizer = Optimizer()
    scheduler, want = LinearLRScheduler(optimizer, 2, 6, 0.1), []
    for _ in range(8):
        want.append(optimizer.rate)
        optimizer.steps += 1
        scheduler.step()
    v = visit(server)
    got = v.run(
        CREATE
        + """
            const s = await open(),
              rates = [];
            const scheduler = await ew.LinearLRScheduler.create(s, 2, 6, 0.1);
            for (let i = 0; i < 8; i++) {
              rates.push(await s.getLearningRate());
              await scheduler.step();
            }
            const wrong = await ew.LinearLRScheduler.create(s, 1.5, 6, 0.1).catch(
              (e) => e.name + " " + e.where,
            );
            await s.release();
            return { rates, wrong };
        """,
        artifacts,
    )
    assert "error" not in got, got
    assert (
        got["rates"] == pytest.approx(want, rel=1e-6)
        and got["wrong"] == "InputError warmupStepCount"
    )


def test_aborts(visit, server, artifacts):
    """While it is created, while its steps are compiled, queued and running: Aborted, and what
    follows is as if nothing had been asked for.
    """
    v = visit(server)
    got = v.run(
        CREATE
        + """
            const whole = await open();
            const want = await steps(whole, 0, 6);
            await whole.release();
            const names = [];
            const aborted = async (ms, work) => {
              const c = new AbortController();
              if (ms) setTimeout(() => c.abort(), ms);
              else c.abort();
              try {
                await work(c.signal);
                names.push(`done after ${ms}`);
              } catch (e) {
                names.push(e.name);
              }
            };
            for (const ms of [0, 1, 50, 400, 1200])
              await aborted(ms, async (signal) => {
                await (await open({ options: { signal } })).release();
              });
            const s = await open();
            // is being compiled
            await aborted(1, (signal) => s.runTrainStep(batch(0), undefined, { signal }));
            await s.lazyResetGrad();
            const losses = await steps(s, 0, 3);
            const first = s.runEvalStep(batch(0));
            await aborted(0, (signal) => s.runTrainStep(batch(4), undefined, { signal }));
            const c = new AbortController();
            const queued = s.runTrainStep(batch(5), undefined, { signal: c.signal }).then(
              () => "done",
              (e) => e.name,
            );
            c.abort();
            names.push(await queued);
            await first;
            await aborted(1, (signal) => s.saveCheckpoint(true, { signal }));
            await s.lazyResetGrad();
            losses.push(...(await steps(s, 3, 6)));
            await s.release();
            return { want, losses, names };
        """,
        artifacts,
    )
    assert "error" not in got, got
    assert got["losses"] == got["want"]
    assert got["names"][:3] == ["Aborted"] * 3 and set(got["names"]) <= {
        "Aborted",
        "done after 400",
        "done after 1200",
        "done",
        "done after 1",
    }, got["names"]


def test_signals_are_heard(visit, server, artifacts, files):
    """By updates, exports and runs, also amid a step that takes minutes."""
    pool = helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[8000, 1000], pads=[7999, 999] * 2
    )
    graph = helper.make_graph(
        [pool],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8000, 1000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    (files / "endless.onnx").write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    got = visit(server).run(
        CREATE
        + """
            const heard = async (ms, work) => {
              const c = new AbortController();
              let at;
              setTimeout(() => {
                at = performance.now();
                c.abort();
              }, ms);
              try {
                await work(c.signal);
                return "done";
              } catch (e) {
                return [e.name, performance.now() - at];
              }
            };
            const s = await open();
            const first = await s.runTrainStep(batch(0));
            const repeat = (call) => async (signal) => {
              for (;;) await call(signal);
            };
            const out = {
              update: await heard(
                100,
                repeat((signal) => s.runOptimizerStep({ signal })),
              ),
              export: await heard(
                100,
                repeat((signal) => s.exportModel(["logits"], { signal })),
              ),
            };
            await s.lazyResetGrad();
            const losses = await steps(s, 1, 3);
            const model = await s.exportModel(["logits"]);
            await s.release();
            const endless = await ew.InferenceSession.create("/files/endless.onnx", {
              threads: 1,
            });
            const x = new ew.Tensor("float32", new Float32Array(8e6), [1, 1, 8000, 1000]);
            out.run = await heard(6000, (signal) => endless.run({ x }, undefined, { signal }));
            await endless.release();
            return {
              out,
              losses,
              size: model.length,
              after: await (async () => {
                const t = await open();
                const l = await t.runTrainStep(batch(0));
                await t.release();
                return Object.keys(l).length;
              })(),
            };
        """,
        artifacts,
    )
    assert "error" not in got, got
    for _name, outcome in got["out"].items():
        assert outcome[0] == "Aborted" and outcome[1] < 5000, got["out"]
    assert np.isfinite(got["losses"]).all() and got["size"] > 100 and got["after"] >= 1
