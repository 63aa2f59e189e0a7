"""TrainingSession in a page: invalid arguments, aborts and signals."""

import numpy as np
from onnx import TensorProto, helper

from ..loading import error
from .session_scripts import CREATE


# long: the script of a page and the checks of what it returns
def test_invalid_arguments(visit, server, artifacts):
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
            "const s = await shared(); await s.runOptimizerStep()",
            "InputError",
            "runTrainStep",
        ),
        "a missing feed": (
            "const s = await shared(); await s.runTrainStep({x: batch(0).x})",
            "InputError",
            "labels",
        ),
        "another feed": (
            "const s = await shared(); await s.runTrainStep({...batch(0), y: batch(0).x})",
            "InputError",
            "'y'",
        ),
        "another shape": (
            (
                "const s = await shared(); await s.runTrainStep({...batch(0), x: new"
                " ew.Tensor('float32', new Float32Array(8), [4, 2])})"
            ),
            "",
            "",
        ),
        "no tensor": (
            "const s = await shared(); await s.runTrainStep({...batch(0), x: [1]})",
            "InputError",
            "Tensor",
        ),
        "dims": ("new ew.Tensor('float32', [1, 2], [3])", "InputError", "dims"),
        "type": ("new ew.Tensor('quaternion', [1, 2])", "TypeError", "quaternion"),
        "buffer": (
            "const s = await shared(); await s.loadParametersBuffer(new Uint8Array(4))",
            "InputError",
            "bytes",
        ),
        "parameter": ("const s = await shared(); await s.getParameter('w9')", "InputError", "w9"),
        "output": (
            "const s = await shared(); await s.exportModel(['nothing'])",
            "InputError",
            "nothing",
        ),
        "label": (
            (
                "const s = await shared(); await s.runTrainStep({...batch(0), labels: new"
                " ew.Tensor('int64', [9, 9, 9, 9, 9, 9, 9, 9])})"
            ),
            "",
            "",
        ),
    }
    for name, (body, kind, word) in tries.items():  # with one session, which stays usable
        got = v.run(CREATE + body, artifacts)
        assert isinstance(got, dict) and "error" in got, name
        assert got["error"]["ours"], (name, got)
        if kind:
            error(got, kind, word)


def test_aborts(visit, server, artifacts):
    """A session aborted while it is created, or while its steps are compiled, queued or running,
    throws Aborted; later calls are unaffected.
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
            const released = await s.runEvalStep(batch(0)).catch((e) => e.message);
            return { want, losses, names, released };
        """,
        artifacts,
    )
    assert "error" not in got, got
    assert "the session was released" in got["released"]
    assert got["losses"] == got["want"]
    assert got["names"][:3] == ["Aborted"] * 3 and set(got["names"]) <= {
        "Aborted",
        "done after 400",
        "done after 1200",
        "done",
        "done after 1",
    }, got["names"]


# long: the script of a page and the checks of what it returns
def test_signals_stop_calls(visit, server, artifacts, files):
    """Signals stop updates, exports and runs, also during a step that takes days."""
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
              setTimeout(() => c.abort(), ms);
              try {
                await work(c.signal);
                return "done";
              } catch (e) {
                return e.name;
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
            out.run = await heard(3000, (signal) => endless.run({ x }, undefined, { signal }));
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
    assert got["out"] == {"update": "Aborted", "export": "Aborted", "run": "Aborted"}
    assert np.isfinite(got["losses"]).all() and got["size"] > 100 and got["after"] >= 1
