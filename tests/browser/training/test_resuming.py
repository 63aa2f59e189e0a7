"""Training resumes bit for bit after a closed tab, a killed browser, a pause or an abort."""

import os
import signal

import pytest

from ..chromium import CHROMIUM, FLAGS
from ..conftest import Visit
from .harness import RESUME, RUN, WHOLE, train

BEGIN = (
    "window.steps = 0; void ew.fineTune(p, arg.text, {...arg.o, onStep: (e) => { window.steps ="
    " e.step; window.failed = e.checkpoint; }}).catch((e) => { window.failed = e.message; });"
    " return true;"
)


@pytest.mark.slow("test_resumes_after_a_killed_browser")
def test_resumes_after_a_closed_tab(visit, server, trainable):
    v = visit(server, alone=True)
    whole = train(v, WHOLE, o=RUN)
    assert "error" not in whole and len(whole["losses"]) == 6, whole
    assert train(v, BEGIN, o=RUN) is True
    v.page.wait_for_function("window.steps >= 3")
    v.close()
    w = visit(server)
    again = train(w, RESUME, o=RUN)
    assert "error" not in again, again
    assert (
        again["losses"] == whole["losses"]
        and again["text"] == whole["text"]
        and again["events"][0] in (3, 5)
    )
    assert [(c["name"], c["step"], c["total"], c["program"]) for c in again["kept"]] == [
        ("run 1", 6, 6, "lora")
    ]
    # A second resume has no steps left; the adapter exists.
    done = train(w, RESUME, o=RUN)
    assert (
        done["losses"] == whole["losses"] and done["events"] == [] and done["text"] == whole["text"]
    )
    assert w.run(
        "await ew.clearCache(); const a = await ew.checkpoints(); await ew.deleteCheckpoint('run"
        " 1'); return [a.length, (await ew.checkpoints()).length]"
    ) == [1, 0]


def test_resumes_after_a_killed_browser(playwright, built, server, trainable, tmp_path):
    def launch():
        return playwright.chromium.launch_persistent_context(
            tmp_path, executable_path=CHROMIUM, args=FLAGS
        )

    context = launch()
    v = Visit(context, server + "/files/blank.html").start()
    whole = train(v, WHOLE, o=RUN)
    assert "error" not in whole, whole
    train(v, BEGIN, o=RUN)
    v.page.wait_for_function("window.steps >= 3")
    pid = (
        next(
            p["id"]
            for p in context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")[
                "processInfo"
            ]
            if p["type"] == "browser"
        )
        if context.browser
        else None
    )
    if pid is None:
        pid = int(os.readlink(tmp_path / "SingletonLock").rsplit("-", 1)[1])
    os.kill(pid, signal.SIGKILL)
    try:
        context.close()
    except Exception:
        pass
    (tmp_path / "SingletonLock").unlink(missing_ok=True)
    context = launch()
    try:
        w = Visit(context, server + "/files/blank.html").start()
        again = train(w, RESUME, o=RUN)
        assert "error" not in again, again
        assert (
            again["losses"] == whole["losses"]
            and again["text"] == whole["text"]
            and again["events"][0] in (3, 5)
        )
    finally:
        context.close()


# long: the script of a page and the checks of what it returns
def test_pause_generate_resume_abort(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const steps = [],
              stop = new AbortController();
            const t = await ew.Trainer.create(p, arg.text, {
              max_steps: 10_000,
              seed: 1,
              signal: stop.signal,
              onStep: (e) => steps.push(e.step),
            });
            const first = await t.step();
            const running = t.run();
            running.catch(() => undefined);
            while (steps.length < 3) await new Promise((r) => setTimeout(r, 5));
            await t.pause();
            const during = await greedy();
            const at = steps.length;
            await greedy();
            const still = steps.length - at;
            await p.setAdapter(null);
            const base = await greedy(); // another adapter meanwhile: the run finds its own again
            let second;
            try {
              second = await ew.Trainer.create(p, arg.text);
            } catch (e) {
              second = e.message;
            }
            await t.resume();
            while (steps.length < at + 3) await new Promise((r) => setTimeout(r, 5));
            const beside = await greedy(); // while it trains
            stop.abort();
            let end;
            try {
              end = await running;
            } catch (e) {
              end = e.name;
            }
            const result = await t.result();
            await t.close();
            const losses = result.losses.length;
            const adapters = p.adapters;
            let gone;
            try {
              gone = await t.step();
            } catch (e) {
              gone = e.message;
            }
            await p.dispose();
            return {
              first,
              during,
              still,
              base,
              second,
              end,
              losses,
              steps,
              adapters,
              gone,
              beside,
            };
        """,
    )
    assert "error" not in got, got
    assert (
        got["first"]["step"] == 1
        and got["steps"][:2] == [1, 2]
        and got["still"] == 0
        and got["end"] == "Aborted"
    )
    assert (
        got["during"]
        and got["beside"]
        and "another training run is active" in got["second"]
        and "no training run is active" in got["gone"]
    )
    assert got["losses"] >= len(got["steps"]) and got["adapters"][0]["active"]


def test_pausing_and_switching_adapters_do_not_change_the_run(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const whole = (await ew.fineTune(p, arg.text, { max_steps: 4, seed: 2, name: "x" }))
              .losses;
            const t = await ew.Trainer.create(p, arg.text, {
              max_steps: 4,
              seed: 2,
              name: "y",
              evaluation: undefined,
            });
            const losses = [];
            for (let i = 0; i < 4; i++) {
              losses.push((await t.step()).loss);
              await p.setAdapter("x");
              await greedy();
              await p.setAdapter("y", 0.3);
              await greedy();
              if (i % 2) await p.setAdapter(null);
            }
            await t.close();
            await p.setAdapter("x");
            const x = await greedy();
            await p.setAdapter("y");
            const y = await greedy();
            const files = await Promise.all(
              ["x", "y"].map(
                async (n) => new Uint8Array(await (await p.saveAdapter(n))[0].arrayBuffer()),
              ),
            );
            await p.dispose();
            return {
              whole,
              losses,
              x,
              y,
              same:
                files[0].length === files[1].length &&
                files[0].every((b, i) => b === files[1][i]),
            };
        """,
    )
    assert "error" not in got, got
    assert got["losses"] == got["whole"] and got["x"] == got["y"] and got["same"]
