"""Aborts during loading, compilation and generation; calls on disposed pipelines."""

from .loading import error, load

# Aborts


def test_abort_while_loading(visit, server):
    v = visit(server)
    for model in (
        "/files/model.edge?fault=slow:300",
        "/demo/model/onnx/model_q4.onnx?fault=slow:300",
    ):
        got = v.run(
            """
                const c = new AbortController();
                let t;
                const p = ew.pipeline("text-generation", arg, { signal: c.signal });
                setTimeout(() => {
                  t = performance.now();
                  c.abort();
                }, 300);
                try {
                  await p;
                } catch (e) {
                  return {
                    name: e.name,
                    own: e instanceof ew.Aborted,
                    ms: performance.now() - t,
                  };
                }
            """,
            model,
        )
        assert got["name"] == "Aborted" and got["own"] and got["ms"] < 1000, got
    got = v.run(
        "const c = new AbortController(); c.abort(); await ew.pipeline('text-generation',"
        " '/files/model.edge', {signal: c.signal})"
    )
    error(got, "Aborted")
    assert "error" not in load(v, "/files/model.edge")


def test_abort_while_compiling(visit, server):
    v = visit(server)
    got = v.run("""
        const c = new AbortController();
        let t;
        const progress_callback = (e) => {
          if (e.status === "compile" && e.stage === "compile") {
            t = performance.now();
            c.abort();
          }
        };
        try {
          await ew.pipeline("text-generation", "/demo/model/", {
            dtype: "q4",
            signal: c.signal,
            progress_callback,
          });
        } catch (e) {
          return { name: e.name, ms: performance.now() - t };
        }
    """)
    assert got["name"] == "Aborted" and got["ms"] < 1000, got


def test_abort_while_generating(visit, server):
    v = visit(server)
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge");
        const c = new AbortController();
        let n = 0,
          after = 0,
          t;
        const streamer = {
          put: () => {
            n++;
            if (c.signal.aborted) after++;
            if (n === 6) {
              t = performance.now();
              c.abort();
            }
          },
          end() {},
        };
        let name, ms, own;
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
          ms = performance.now() - t;
        }
        const both = await Promise.all([
          p("The", { max_new_tokens: 5, do_sample: false }),
          p("The", { max_new_tokens: 5, do_sample: false }),
        ]);
        await p.dispose();
        return {
          name,
          own,
          ms,
          after,
          n,
          same: both[0][0].generated_text === both[1][0].generated_text,
          text: both[0][0].generated_text,
        };
    """)
    assert (
        got["name"] == "Aborted"
        and got["own"]
        and got["ms"] < 1000
        and got["n"] < 60
        and got["after"] == 0
    ), got
    assert got["same"] and got["text"].startswith("The")


def test_calls_on_a_disposed_pipeline_fail(visit, server):
    v = visit(server)
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge");
        const running = p("Once", {max_new_tokens: 400, min_new_tokens: 400}).catch((e) => e.name);
        await new Promise((r) => setTimeout(r, 50));
        await p.dispose(); await p.dispose();
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
