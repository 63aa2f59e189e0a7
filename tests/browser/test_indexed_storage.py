"""Storage in IndexedDB, which pages use where there is no private file system (OPFS): here in a
page without a secure context. tests/browsers tests it in WebKitGTK and in a private window of
Firefox.
"""

import subprocess

import numpy as np
import pytest
from onnx import helper
from tiers import slow_unless

from .conftest import WEB
from .inference.test_inference_session import F, save
from .loading import load
from .training.conftest import trainable  # noqa: F401
from .training.harness import TEXT


@pytest.fixture
def insecure(server):
    """The server at an address that is no secure context."""
    return server.replace("localhost", "insecure.test")


@pytest.fixture
def folders(files):
    """The address of folders.ts as a module."""
    subprocess.run(
        [
            WEB / "node_modules/.bin/esbuild",
            WEB / "src/shared/files/folders.ts",
            "--bundle",
            "--format=esm",
            f"--outfile={files / 'folders.js'}",
            "--log-level=warning",
        ],
        check=True,
    )
    return "/files/folders.js"


# long: a script that runs in the page
@pytest.mark.parametrize("rounds", slow_unless(lambda rounds: rounds == 40, [40, 120]))
def test_files_in_place(visit, insecure, folders, rounds):
    """Random reads, writes and truncations give the same bytes as an array in memory, also after
    the file was closed and opened; a file that is written whole replaces the old one.
    """
    v = visit(insecure)
    assert v.run("return [isSecureContext, navigator.storage === undefined]") == [False, True]
    got = v.run(
        """
            const { openFolder } = await import(arg.folders);
            const dir = await openFolder("test");
            let seed = 7;
            const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
            const PIECE = 4 << 20;
            let model = new Uint8Array(0);
            let file = await dir.open("a");
            const resized = (size) => {
              const next = new Uint8Array(size);
              next.set(model.subarray(0, size));
              return next;
            };
            const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
            for (let i = 0; i < arg.rounds; i++) {
              const near = random(3) * PIECE + random(7) - 3; // around the borders of pieces
              const at = Math.max(0, random(2) ? near : random(model.length + 1));
              const what = random(10);
              if (what < 5) {
                const length = 1 + (random(9) ? random(5000) : PIECE);
                const data = Uint8Array.from({ length }, () => random(256));
                if (at + length > model.length) model = resized(at + length);
                model.set(data, at);
                await file.write(data, at);
              } else if (what < 8) {
                const data = new Uint8Array(random(5000));
                const want = model.subarray(at, at + data.length);
                const count = await file.read(data, at);
                const got = data.subarray(0, count);
                if (!same(got, want)) return ["read", i, got.length, want.length];
              } else if (what < 9) {
                const size = random(2) ? at : Math.min(at, model.length);
                if (size > model.length) continue;
                model = resized(size);
                await file.truncate(size);
              } else {
                await file.close();
                const stored = new Uint8Array(await (await dir.read("a")).arrayBuffer());
                if (!same(stored, model)) return ["stored", i, stored.length, model.length];
                file = await dir.open("a");
              }
              if (file.size !== model.length) return ["size", i, file.size, model.length];
            }
            await file.close();
            await dir.write("a", new Blob(["short"]));
            await dir.write("b", new Blob([new Uint8Array(PIECE + 1)]));
            const list = (await dir.list()).map(({ name, size }) => [name, size]);
            const text = await (await dir.read("a")).text();
            await dir.remove("a");
            const gone = await dir.read("a").catch((e) => e.name);
            const again = await dir.remove("a").catch((e) => e.name);
            return { list, text, gone, again };
        """,
        {"folders": folders, "rounds": rounds},
    )
    assert got == {
        "list": [["a", 5], ["b", (4 << 20) + 1]],
        "text": "short",
        "gone": "NotFoundError",
        "again": "NotFoundError",
    }, got


@pytest.fixture
def small(files):
    """An .onnx model, as /files/kept.onnx."""
    w = np.random.default_rng(0).standard_normal((6, 3, 3, 3)).astype("f4")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    save(files / "kept.onnx", nodes, [("x", F, [1, 3, 8, 8])], [("y", F, None)], [("w", w)])


RUN = """
    if (arg) ew.env.pyodideUrl = arg;
    const s = await ew.InferenceSession.create("/files/kept.onnx");
    const x = Float32Array.from({ length: 192 }, (_, i) => Math.sin(i));
    const { y } = await s.run({ x: new ew.Tensor("float32", x, [1, 3, 8, 8]) });
    await s.release();
    return [...y.data];
"""
TRAIN = """
    const p = await ew.pipeline("text-generation", "/files/trainable.edge");
    const losses = [];
    const words = [];
    const c = new AbortController();
    await ew
      .fineTune(p, arg.text, {
        max_steps: 4,
        seed: 3,
        checkpoint: { name: "run", every: 2 },
        resume: true,
        signal: c.signal,
        onStep: (e) => {
          losses.push(e.loss);
          if (e.checkpoint) words.push(e.checkpoint);
          if (e.step === arg.until) c.abort();
        },
      })
      .catch((e) => {
        if (e.name !== "Aborted") throw e;
      });
    const before = (await p.keptAdapters()).map((a) => a.name);
    const kept = await p.keepAdapter(p.adapters[0].name).catch((e) => `${e.name}: ${e.message}`);
    await p.dispose();
    const steps = (await ew.checkpoints()).map((c) => c.step);
    return { losses, words, before, kept, steps };
"""


def test_everything_is_stored(visit, insecure, small, trainable):  # noqa: F811
    """Plans, downloaded files, checkpoints and adapters are found on the next visit; a download
    that was cut off is resumed. clearCache removes plans and files only.
    """
    v = visit(insecure)
    first = v.run(RUN)
    url = "/files/model.edge?fault=cut-once:900000"
    assert "error" not in load(v, url, cache_files=True)
    trained = v.run(TRAIN, {"text": TEXT, "until": 2})
    assert trained["before"] == [] and trained["kept"] > 1000, trained
    [step] = trained["steps"]
    assert step in (2, 3), trained
    sizes = v.run("return await ew.cacheBytes()")
    assert sizes["plans"] > 0 and sizes["files"] > 1e6, sizes
    v.page.reload()
    v.start()
    v.requests.clear()
    assert v.run(RUN, "/no-python/") == first
    assert "error" not in load(v, url, cache_files=True)
    assert not v.asked("model.edge"), "a complete file is used without a request"
    more = v.run(TRAIN, {"text": TEXT})
    assert len(more["losses"]) == 4 - step and more["steps"] == [4], "the run was resumed"
    assert len(more["before"]) == 1, more
    assert v.run("await ew.clearCache(); return await ew.cacheBytes()") == {"plans": 0, "files": 0}
    assert v.run("return (await ew.checkpoints()).length") == 1


@pytest.mark.slow("test_everything_is_stored")
def test_eviction_between_visits(visit, insecure, context, small, trainable):  # noqa: F811
    """Storage that the browser has cleared is filled again."""
    v = visit(insecure)
    first = v.run(RUN)
    whole = v.run(TRAIN, {"text": TEXT})
    context.new_cdp_session(v.page).send(
        "Storage.clearDataForOrigin", {"origin": insecure, "storageTypes": "indexeddb"}
    )
    assert v.run(RUN) == first, "cleared during the visit"
    v.page.reload()
    v.start()
    again = v.run(TRAIN, {"text": TEXT})
    assert again["losses"] == whole["losses"] and again["before"] == [], again
    assert v.run(RUN, "/no-python/") == first


def test_full_storage(visit, insecure, context, small, trainable):  # noqa: F811
    """What could not be stored is reported; everything else works, also the next time. The quota is
    set first, since Chromium asks for it every 30 seconds only.
    """
    v = visit(insecure)
    client = context.new_cdp_session(v.page)
    client.send("Storage.overrideQuotaForOrigin", {"origin": insecure, "quotaSize": 1000})
    said = []
    v.page.on("console", lambda m: said.append(m.text))
    first = v.run(RUN)
    assert any("full" in text and "Nothing is lost" in text for text in said), said
    got = v.run(
        """
            const said = [];
            const p = await ew.pipeline("text-generation", "/files/model.edge", {
              cache_files: true,
              progress_callback: (e) => e.status === "warning" && said.push(e.message),
            });
            const [{ generated_text }] = await p("Once", { max_new_tokens: 3 });
            await p.dispose();
            return { said, generated_text };
        """
    )
    assert any("full" in w and "Nothing is lost" in w for w in got["said"]), got
    refused = v.run(TRAIN, {"text": TEXT})
    assert "full" in refused["words"][0] and "clearCache" in refused["words"][0], refused
    assert refused["kept"].startswith("StorageError") and refused["steps"] == [], refused
    client.send("Storage.overrideQuotaForOrigin", {"origin": insecure})
    again = v.run(TRAIN, {"text": TEXT})
    assert again["losses"] == refused["losses"] and again["steps"] == [4], again
    assert v.run(RUN) == first


def test_writers_of_one_file(visit, server, folders):
    """While a file is open, it cannot be opened again, as in OPFS; whole files are written one
    after another.
    """
    v = visit(server)
    got = v.run(
        """
            delete StorageManager.prototype.getDirectory;
            const { openFolder } = await import(arg);
            const dir = await openFolder("test");
            const file = await dir.open("a");
            const second = await dir.open("a").catch((e) => e.name);
            await file.close();
            await (await dir.open("a")).close();
            const texts = Array.from({ length: 8 }, (_, i) => String(i).repeat(1000 * i));
            await Promise.all(texts.map((text) => dir.write("b", new Blob([text]))));
            const last = (await (await dir.read("b")).text()) === texts[7];
            return [second, last, (await dir.list()).map((file) => file.name)];
        """,
        folders,
    )
    assert got == ["NoModificationAllowedError", True, ["b"]], got
