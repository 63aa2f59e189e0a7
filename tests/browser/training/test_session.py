"""TrainingSession in a page: steps, updates, parameters, schedules and onnxruntime's artifacts."""

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiers import ALL

from .session_scripts import CREATE


# long: the script of a page and the checks of what it returns
def test_losses_equal_those_of_python(visit, server, files, artifacts, tmp_path):
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
    """The losses of tests/conformance/training_updates.json, computed by PyTorch and reproduced by
    Python. In `make test` every second sequence, since each compiles a session.
    """
    from conformance.vectors import vectors
    from training.updates import write_artifacts

    data = vectors("training_updates")
    data = {**data, "sequences": data["sequences"][:: 1 if ALL else 2]}
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


def test_read_and_write_parameters(visit, server, artifacts):
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


CASES = sorted(
    p for p in (Path(__file__).parents[2] / "training" / "models").glob("*/training_model.onnx")
)


@pytest.mark.parametrize("case", [p.parent for p in CASES], ids=lambda p: p.name)
def test_artifacts_written_by_onnxruntime(visit, server, files, case):
    """Twenty steps on ONNX Runtime Training's own files match PyTorch with the same AdamW rule."""
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


def test_the_schedule_equals_pythons(visit, server, artifacts):
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
