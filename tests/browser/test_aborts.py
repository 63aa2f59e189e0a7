"""Aborts during loading, compilation and generation; calls on disposed pipelines."""

from .loading import error, load

# Aborts


def test_abort_while_loading(visit, server):
    """The server pauses for an hour after the first piece: a load that went on would end with
    another error.
    """
    v = visit(server)
    for model in (
        "/files/model.edge?fault=slow:3600000",
        "/demo/model/onnx/model_q4.onnx?fault=slow:3600000",
    ):
        got = v.run(
            """
                const c = new AbortController();
                const options = {
                  signal: c.signal,
                  progress_callback: ({ loaded }) => loaded > 0 && c.abort(),
                };
                try {
                  await ew.pipeline("text-generation", arg, options);
                } catch (e) {
                  return { name: e.name, own: e instanceof ew.Aborted };
                }
            """,
            model,
        )
        assert got["name"] == "Aborted" and got["own"], got
    got = v.run(
        "const c = new AbortController(); c.abort(); await ew.pipeline('text-generation',"
        " '/files/model.edge', {signal: c.signal})"
    )
    error(got, "Aborted")
    assert "error" not in load(v, "/files/model.edge")


def test_abort_while_compiling(visit, server):
    """No stage follows the one that was aborted."""
    v = visit(server)
    got = v.run("""
        const c = new AbortController();
        const after = [];
        const progress_callback = (e) => {
          if (c.signal.aborted) after.push(e.status);
          if (e.status === "compile" && e.stage === "compile") c.abort();
        };
        try {
          await ew.pipeline("text-generation", "/demo/model/", {
            dtype: "q4",
            signal: c.signal,
            progress_callback,
          });
        } catch (e) {
          return { name: e.name, after };
        }
    """)
    assert got == {"name": "Aborted", "after": []}, got


def test_abort_while_generating(visit, server):
    v = visit(server)
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge");
        const c = new AbortController();
        let n = 0,
          after = 0;
        const streamer = {
          put: () => {
            n++;
            if (c.signal.aborted) after++;
            if (n === 6) c.abort();
          },
          end() {},
        };
        let name, own;
        try {
          await p("Once upon a time", {
            max_new_tokens: 400,
            min_new_tokens: 400,
            signal: c.signal,
            streamer,
          });
        } catch (e) {
          name = e.name;
          own = e instanceof ew.Aborted;
        }
        const both = await Promise.all([
          p("The", { max_new_tokens: 5, do_sample: false }),
          p("The", { max_new_tokens: 5, do_sample: false }),
        ]);
        await p.dispose();
        return {
          name,
          own,
          after,
          n,
          same: both[0][0].generated_text === both[1][0].generated_text,
          text: both[0][0].generated_text,
        };
    """)
    assert got["name"] == "Aborted" and got["own"] and got["n"] == 6 and got["after"] == 0, got
    assert got["same"] and got["text"].startswith("The")


def test_calls_on_a_disposed_pipeline_fail(visit, server):
    v = visit(server)
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge");
        let disposing;
        const streamer = { put: () => (disposing ??= p.dispose()), end() {} };
        const options = { max_new_tokens: 400, min_new_tokens: 400, streamer };
        const running = p("Once", options).catch((e) => e.name);
        while (!disposing) await new Promise((r) => setTimeout(r, 5));
        await disposing; await p.dispose();
        const later = await p("Once").catch((e) => e.name);
        return [await running, later];
    """)
    assert got == ["Aborted", "Aborted"]


def test_a_failing_callback_affects_its_own_call_only(visit, server):
    v = visit(server)
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge");
        let said;
        try {
          await p("Once", {
            max_new_tokens: 50,
            streamer: () => {
              throw new Error("mine");
            },
          });
        } catch (e) {
          said = e.message;
        }
        const out = await p("Once", { max_new_tokens: 3 });
        await p.dispose();
        return [said, out.length];
    """)
    assert got == ["mine", 1]


def test_interrupted_generation_has_the_tokens_so_far(visit, server):
    """Unlike an abort: the promise resolves with the first tokens of the whole generation, and the
    streamer is told of the end. Until its reset a criterion ends further calls.
    """
    got = visit(server).run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge");
        const fields = { max_new_tokens: 400, min_new_tokens: 400, do_sample: false };
        fields.return_tensors = fields.return_dict_in_generate = true;
        const stopping_criteria = new ew.InterruptableStoppingCriteria();
        let [puts, ends] = [0, 0];
        const streamer = {
          put: () => ++puts === 4 && stopping_criteria.interrupt(),
          end: () => void ends++,
        };
        const [part] = await p("Once upon a time", { ...fields, streamer, stopping_criteria });
        const [again] = await p("Once", { ...fields, stopping_criteria });
        stopping_criteria.reset();
        const [whole] = await p("Once upon a time", { ...fields, stopping_criteria });
        const wrong = await p("Once", { stopping_criteria: () => true }).catch((e) => e.message);
        await p.dispose();
        const { generated_token_ids: ids } = part;
        const first = whole.generated_token_ids.slice(0, ids.length);
        return [ids.length < whole.generated_token_ids.length, String(ids) === String(first),
          ids.length > 6, part.finish_reasons, ends,
          again.generated_token_ids.length < 100, wrong];
    """)
    assert "error" not in got, got
    assert got[:6] == [True, True, True, "stopping_criteria", 1, True], got
    assert "InterruptableStoppingCriteria" in got[6]
