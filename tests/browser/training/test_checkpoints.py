"""Checkpoints that are damaged or belong to other runs; storage that is full or denied."""

import json

import pytest
from tiers import slow_unless

from ..loading import error
from .harness import RESUME, RUN, TEXT, WHOLE, train

DAMAGE = """
    const dir = await (
      await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
    ).getDirectoryHandle("checkpoints");
    for (const side of arg.sides) {
      const file = await dir.getFileHandle(`run 1.${side}.safetensors`);
      let bytes = new Uint8Array(await (await file.getFile()).arrayBuffer());
      if (arg.how === "cut") bytes = bytes.slice(0, bytes.length - 100);
      else bytes[arg.how === "header" ? 100 : bytes.length - 5000] ^= 1;
      const out = await file.createWritable();
      await out.write(bytes);
      await out.close();
    }
"""


SHORT = RUN | {
    "max_steps": 3,
    "gradient_accumulation_steps": 1,
    "checkpoint": {"name": "run 1", "every": 1},
}


@pytest.mark.parametrize("how", slow_unless(lambda how: how == "flip", ["flip", "cut", "header"]))
def test_a_damaged_checkpoint_is_not_used(visit, server, trainable, how):
    v = visit(server)
    whole = train(v, WHOLE, o=SHORT)
    train(v, RESUME, o=SHORT)
    # the checkpoints of steps 1, 2 and 3 were written to a, b and a
    v.run(DAMAGE, {"sides": ["a"], "how": how})
    again = train(v, RESUME, o=SHORT)
    assert again["events"] == [3] and again["losses"] == whole["losses"], again
    v.run(DAMAGE, {"sides": ["a", "b"], "how": how})
    anew = train(v, RESUME, o=SHORT)
    assert anew["events"] == [1, 2, 3] and anew["losses"] == whole["losses"]


def test_checkpoints_of_other_runs_are_refused(visit, server, trainable):
    v = visit(server)
    train(v, RESUME, o=SHORT)
    for change in ({"seed": 4}, {"learning_rate": 0.5}, {"max_steps": 7}):
        error(
            train(v, RESUME, o={**SHORT, **change}),
            "InputError",
            next(iter(change)) if "max_steps" not in change else "total",
            "run 1",
        )
    error(
        train(v, RESUME.replace("arg.text", "arg.text + ' And more.'"), o=SHORT),
        "InputError",
        "other texts",
    )
    error(
        train(v, RESUME, o={**SHORT, "checkpoint": "../x"}),
        "InputError",
        "not a valid checkpoint name",
    )
    assert (
        train(
            v,
            "const r = await ew.fineTune(p, arg.text, arg.o); return r.step",
            o={**SHORT, "seed": 4},
        )
        == 3
    ), "without resume it begins anew"


def test_full_storage_is_reported_and_loses_nothing(visit, server, context, trainable):
    v = visit(server)
    first = train(v, RESUME, o={**RUN, "max_steps": 2})
    assert first["kept"][0]["step"] == 2
    client = context.new_cdp_session(v.page)
    client.send("Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": 1000})
    got = train(
        v,
        """
            const events = [];
            const t = await ew.Trainer.create(p, arg.text, {
              ...arg.o,
              onStep: (e) => events.push(e),
            });
            const r = await t.run();
            let saved;
            try {
              saved = await t.save();
            } catch (e) {
              saved = [e.name, e.message];
            }
            await t.close();
            let kept;
            try {
              kept = await p.keepAdapter(r.adapter);
            } catch (e) {
              kept = [e.name, e.message];
            }
            const text = await greedy();
            await p.dispose();
            return {
              r,
              saved,
              kept,
              text,
              words: events.map((e) => e.checkpoint ?? null),
              there: await ew.checkpoints(),
            };
        """,
        o=RUN,
    )
    assert "error" not in got, got
    assert (
        got["r"]["step"] == 6
        and [bool(w) for w in got["words"]] == [False, True] * 3
        and "full" in got["words"][1]
        and "full" in got["r"]["checkpoint_error"]
    )
    assert (
        got["saved"][0] == "StorageError"
        and got["kept"][0] == "StorageError"
        and "still in use" in got["kept"][1]
    )
    assert got["there"] and got["there"][0]["step"] == 2, "the save before is still there"
    client.send("Storage.overrideQuotaForOrigin", {"origin": server})
    whole = train(v, RESUME, o=RUN | {"max_steps": 2})
    assert whole["events"] == [] and whole["losses"] == first["losses"]


def test_denied_storage(visit, server, trainable):
    v = visit(server, start=False)
    v.page.context.add_init_script("")
    got = v.page.evaluate(
        f"""async () => {{
        const ew = await import('/edgewise.js');
        const source = await (await fetch('/worker.js')).text();
        const denied = `
          const refuse = () => {{ throw new DOMException('denied', 'SecurityError'); }};
          StorageManager.prototype.getDirectory = async () => refuse();
          IDBFactory.prototype.open = refuse;
        `;
        const blob = new Blob([denied + source], {{type: 'text/javascript'}});
        ew.env.workerUrl = URL.createObjectURL(blob);
        const options = {{flavour: 'simd128'}};
        const p = await ew.pipeline('text-generation', '/files/trainable.edge', options);
        const words = [];
        const checkpoint = {{name: 'x', every: 1}}, onStep = (e) => words.push(e.checkpoint);
        const r = await ew.fineTune(p, {json.dumps(TEXT)}, {{max_steps: 2, checkpoint, onStep}});
        await p.dispose();
        return {{step: r.step, words}};
    }}"""
    )
    assert got["step"] == 2 and all("not allowed to store files" in w for w in got["words"]), got
