"""Pipelines and sessions that compute at the same time: results, order, priorities."""

import pytest

from .loading import error

TEXTS = """
    const open = (priority) =>
      ew.pipeline("text-generation", "/files/model.edge", { ...arg, priority });
    const fields = (n) => ({ max_new_tokens: n, min_new_tokens: n, do_sample: false });
    const text = async (p, prompt, n, more = {}) =>
      (await p(prompt, { ...fields(n), ...more }))[0].generated_text;
"""

SERVED = pytest.mark.parametrize(
    "isolated, threads", [(True, 2), (True, 1), (False, 1)], ids=["two", "one", "alone"]
)


@pytest.fixture
def at(visit, server, plain_server):
    return lambda isolated: visit(server if isolated else plain_server)


@SERVED
def test_at_once_as_alone(at, isolated, threads):
    """Texts of pipelines with each of two priorities, while the others write."""
    got = at(isolated).run(
        TEXTS
        + """
            const prompts = ["Once upon a time", "The", "A cat"];
            const all = await Promise.all(["user-blocking", undefined, "background"].map(open));
            const alone = [];
            for (const [i, p] of all.entries()) alone.push(await text(p, prompts[i], 60));
            const rounds = [];
            for (let round = 0; round < 3; round++)
              rounds.push(await Promise.all(all.map((p, i) => text(p, prompts[i], 60))));
            const equal = await Promise.all(all.map((p) => text(p, "The", 60)));
            for (const p of all) await p.dispose();
            return { alone, rounds, equal };
        """,
        {"threads": threads},
    )
    assert len(set(got["alone"])) == 3
    for texts in got["rounds"]:
        assert texts == got["alone"]
    assert len(set(got["equal"])) == 1


@SERVED
def test_the_background_goes_on(at, isolated, threads):
    """It ends while another pipeline has always a call, and so does an aborted one, with the state
    that it had before.
    """
    got = at(isolated).run(
        TEXTS
        + """
            const [slow, fast] = [await open("background"), await open("user-blocking")];
            const want = await text(slow, "The", 20);
            let going = true;
            let calls = 0;
            const busy = (async () => {
              for (; going; calls++) await text(fast, "Once", 5);
            })();
            const found = await text(slow, "The", 20);
            const stop = new AbortController();
            const streamer = { put: () => stop.abort(), end() {} };
            const stopped = await text(slow, "The", 400, { signal: stop.signal, streamer }).catch(
              (e) => e.name,
            );
            const again = await text(slow, "The", 20);
            going = false;
            await busy;
            await Promise.all([slow.dispose(), fast.dispose()]);
            return { want, found, stopped, again, calls };
        """,
        {"threads": threads},
    )
    assert got["want"] == got["found"] == got["again"]
    assert got["stopped"] == "Aborted" and got["calls"] > 0


@pytest.mark.parametrize("isolated", [True, False])
def test_the_order_of_calls(at, isolated):
    """Those that wait: the first of the highest priority comes next."""
    got = at(isolated).run(
        TEXTS
        + """
            const p = await open();
            const ended = [];
            const call = (name, priority, n = 3) =>
              text(p, "The", n, { priority }).then((found) => {
                ended.push(name);
                return found;
              });
            // so long that the others have come before it ends
            const first = call("first", "background", 400);
            const texts = await Promise.all([
              call("late", "background"),
              call("a"),
              call("urgent", "user-blocking"),
              call("b", "user-visible"),
            ]);
            await first;
            const failed = await text(p, "The", 3, { priority: "urgent" }).catch((e) => e.message);
            await p.dispose();
            return { ended, texts, failed };
        """,
        {"threads": 1},
    )
    assert got["ended"] == ["first", "urgent", "a", "b", "late"]
    assert len(set(got["texts"])) == 1
    assert "options.priority: it is 'urgent'" in got["failed"]


@pytest.mark.parametrize("where", ["pipeline", "session", "training", "trainer", "vectors"])
@pytest.mark.parametrize("priority", ["", "high", 1, True, ["background"], {"a": 1}])
def test_other_priorities_are_refused(visit, server, where, priority):
    """Before a worker is started."""
    got = visit(server).run(
        """
            const options = { priority: arg.priority };
            const opens = {
              pipeline: () => ew.pipeline("text-generation", "/files/model.edge", options),
              session: () => ew.InferenceSession.create("/files/none.onnx", options),
              training: () =>
                ew.TrainingSession.create(
                  { checkpointState: new Uint8Array(1), trainModel: new Uint8Array(1) },
                  options,
                ),
              trainer: async () => {
                const p = await ew.pipeline("text-generation", "/files/model.edge");
                return ew.Trainer.create(p, "text", options).finally(() => p.dispose());
              },
              vectors: () => ew.VectorIndex.create(undefined, options),
            };
            await opens[arg.where]();
        """,
        {"where": where, "priority": priority},
    )
    error(got, "InputError", "options.priority", "Give 'user-blocking', 'user-visible', 'backgr")
