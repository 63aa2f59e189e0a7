"""Servers, compilers, engines and storage that do not respond."""

import gzip
import shutil

import pytest
from tiers import slow_unless

from .conftest import MODEL, WEB, greedy
from .faulty import Faulty
from .loading import COMPILED, LOAD, error, load, stalling

# They wait for, or measure, times: one after the other.
pytestmark = pytest.mark.xdist_group("time")


def wheel():
    return next((WEB / "dist").glob("edgewise-*.whl"))


@pytest.fixture
def faulty(package, built):
    files = {"model.edge": package, "model.onnx": (MODEL / "onnx" / "model_q4.onnx").read_bytes()}
    for path in (WEB / "node_modules" / "pyodide").iterdir():
        if path.is_file():
            files[path.name] = path.read_bytes()
    for path in (WEB / "dist" / "engine").iterdir():
        files[path.name] = path.read_bytes()
    one = Faulty(files)
    yield one
    one.close()


# Resuming after a broken connection


def test_resuming_through_a_redirecting_cdn(visit, server, faulty):
    """Model hubs redirect to a CDN that refuses preflight requests and exposes few headers, and
    whose connections can break.
    """
    v = visit(server)
    want = greedy(v, "/files/model.edge")["text"]
    for amount, fault in enumerate(("hub", "cdn"), 700_000):
        faulty.asked.clear()
        got = greedy(v, f"{faulty.url}/{fault}/{amount}/model.edge")
        assert "error" not in got and got["text"] == want, got
        begun, resumed = [r for f, r in faulty.asked if f == "cdn"]
        assert begun is None and resumed.startswith("bytes=") and 0 < int(resumed[6:-1]) <= amount
    assert not faulty.options, "a preflight was sent, which such a CDN refuses"


@pytest.mark.parametrize("keep", slow_unless(lambda keep: keep, [False, True]))
def test_only_the_same_version_of_a_file_is_resumed(visit, server, faulty, keep):
    v = visit(server)
    want = greedy(v, "/files/model.edge")["text"]
    at = 700_000 + keep
    for fault in (
        "nameless-206",
        "rangeless-206",
        "elsewhere-206",
    ):  # a response that cannot continue the file: it is fetched from the start
        for attempt in range(5):
            faulty.asked.clear()
            path = f"{fault}/{at + 10 * attempt}/model.edge"
            got = greedy(v, f"{faulty.url}/{path}", {"cache_files": keep})
            assert "error" not in got and got["text"] == want, (fault, got)
            asked = [r is None for _, r in faulty.asked]
            if asked != [True, True]:  # else the browser gave nothing of the response that broke
                break
        assert asked == [True, False, True], fault
    # another version, or one without an ETag
    for fault in ("changed-206", "longer-206", "nameless-200"):
        url = f"{faulty.url}/{fault}/{at}/model.edge"
        error(
            load(v, url, cache_files=keep), "ModelError", "changed on the server", "Load it again"
        )
    if keep:
        v.run("await ew.clearCache()")


def test_damaged_files_are_not_stored(visit, server, files, package):
    """A complete file with a wrong checksum is fetched again on the next visit."""
    (files / "kept.edge").write_bytes(package[:200_000] + bytes(1000) + package[201_000:])
    v = visit(server)
    got = load(v, "/files/kept.edge", cache_files=True)
    error(got, "PackageError")
    assert v.run("return (await ew.cacheBytes()).files") == 0
    (files / "kept.edge").write_bytes(package)
    assert "error" not in load(v, "/files/kept.edge", cache_files=True)


# Servers that send nothing


def test_requests_to_a_silent_server_are_repeated(visit, server, faulty):
    v = visit(server)

    def once(seconds):
        faulty.asked.clear()
        got = load(v, f"{faulty.url}/stall-once/{700_000 + int(10 * seconds)}/model.edge")
        assert "error" not in got, got
        assert [r is None for _, r in faulty.asked] == [True, False]

    def always(seconds):
        got = load(v, f"{faulty.url}/stall/700000/model.edge")
        words = "broke off", f"sent nothing for {seconds} s", "model.edge"
        error(got, "ModelError", *words)

    def silent(seconds):
        got = load(v, f"{faulty.url}/mute/0/model.edge")
        error(got, "ModelError", "could not be fetched", f"sent nothing for {seconds} s")

    for attempt in (once, always, silent):
        stalling(v, attempt)
    assert "error" not in load(v, "/files/model.edge")


def test_a_slow_server_is_waited_for(visit, server, faulty, package):
    """The timeout restarts with each received chunk; the total time does not count."""
    v = visit(server)

    def slowly(seconds):
        amount = len(package) // (4 * seconds)  # each takes 0.4 s
        got = load(v, f"{faulty.url}/trickle/{amount}/model.edge")
        assert "error" not in got and got["info"]["ms"]["load"] > 1200 * seconds, got

    stalling(v, slowly, 1)


@pytest.mark.parametrize(
    "name, words, times",
    slow_unless(
        lambda name, *_: name == "pyodide.asm.wasm",
        [
            ("pyodide.asm.wasm", "did not answer within", 1),
            ("python_stdlib.zip", "sent nothing for", 1),
            ("pyodide.mjs", "did not answer within", 4),
        ],
    ),
)
def test_python_does_not_load(visit, server, files, faulty, name, words, times):
    v = visit(server)
    if name.endswith(".zip"):  # is not loaded if there is a snapshot beside the wheel
        shutil.copy(wheel(), files / "own.whl")
        v.run("ew.env.wheelUrl = '/files/own.whl';")
    v.run(
        "window.was = ew.env.pyodideUrl; ew.env.pyodideUrl = arg;", f"{faulty.url}/without/{name}/"
    )

    def missing(seconds):
        e = error(v.run(LOAD, COMPILED), "EngineError", f"{words} {times * seconds} s")
        assert e["remedy"] and faulty.url in e["where"], e

    stalling(v, missing, 1)
    v.run("ew.env.pyodideUrl = window.was;")
    assert "error" not in v.run(LOAD, COMPILED)


@pytest.mark.slow("test_python_does_not_load")
def test_the_compiler_does_not_load(visit, server):
    v = visit(server)
    v.run("ew.env.wheelUrl = '/' + arg + '?fault=mute';", wheel().name)
    stalling(
        v,
        lambda seconds: error(
            v.run(LOAD, COMPILED), "EngineError", ".whl", f"sent nothing for {seconds} s"
        ),
        1,
    )


# The snapshot of Python


def test_python_starts_from_the_snapshot(visit, server):
    """Compiling for training downloads neither the standard library nor the wheel."""
    v = visit(server)
    assert "error" not in v.run(LOAD, COMPILED)
    assert v.asked(".snapshot") and not v.asked(".whl") and not v.asked("python_stdlib")


@pytest.mark.parametrize(
    "damage", slow_unless(lambda damage: damage == "cut", ["missing", "cut", "other"])
)
def test_python_starts_without_a_snapshot(visit, server, files, damage):
    """A snapshot that is missing, damaged or of another Pyodide only makes the start slower."""
    shutil.copy(wheel(), files / "own.whl")
    memory = bytearray(
        gzip.decompress(next((WEB / "dist").glob("edgewise-*.snapshot")).read_bytes())
    )
    if damage == "missing":
        (files / "own.snapshot").unlink(missing_ok=True)
    elif damage == "cut":
        (files / "own.snapshot").write_bytes(gzip.compress(memory, 1)[:1_000_000])
    else:
        head = int.from_bytes(memory[:4], "little")
        # the hash that identifies the Pyodide that wrote it, in Pyodide's head
        memory[head + 16 : head + 48] = bytes(32)
        (files / "own.snapshot").write_bytes(gzip.compress(memory, 1))
    v = visit(server)
    v.run("ew.env.wheelUrl = '/files/own.whl';")
    assert "error" not in v.run(LOAD, COMPILED)
    assert v.asked("own.whl") and v.asked("python_stdlib")


def test_the_engine_does_not_load(visit, server, faulty):
    v = visit(server)
    v.run("ew.env.engineUrl = arg;", f"{faulty.url}/mute/0/")
    words = "the engine could not be fetched", "sent nothing for"
    stalling(
        v,
        lambda seconds: error(
            load(v, "/files/model.edge"), "EngineError", *words, f"for {seconds} s"
        ),
    )


# Storage and files

EARLY = """
    const early = [],
      hold = (e) => {
        if (early) early.push(e.data);
      };
    addEventListener("message", hold);
    import("/worker.js").then(() => {
      removeEventListener("message", hold);
      for (const data of early) dispatchEvent(new MessageEvent("message", { data }));
    });
"""


SILENT = [
    "FileSystemDirectoryHandle.prototype.getFileHandle",
    "FileSystemFileHandle.prototype.createSyncAccessHandle",
    "FileSystemFileHandle.prototype.createWritable",
    "FileSystemFileHandle.prototype.getFile",
    "StorageManager.prototype.getDirectory",
]


@pytest.mark.parametrize("broken", slow_unless(lambda broken: broken in SILENT[:2], SILENT))
def test_storage_does_not_respond(visit, server, files, broken):
    """Nothing is stored then; everything else works."""
    # Parts of the worker lie beside it.
    (files / "worker-onnx.js").write_text('import "/worker-onnx.js";')
    (files / "instead.js").write_text(f"{broken} = () => new Promise(() => undefined);" + EARLY)
    v = visit(server)
    v.run("ew.env.workerUrl = '/files/instead.js';")

    def works(_):
        got = load(v, "/files/model.edge", cache_files=True)
        assert "error" not in got, got
        got = load(v, "/demo/model/", dtype="q4", cache_files=True)
        assert "error" not in got and got["info"]["origin"] == "compiled", got

    stalling(v, works, 1)


def test_files_do_not_respond(visit, server, files):
    (files / "instead.js").write_text(
        "Blob.prototype.arrayBuffer = () => new Promise(() => undefined);" + EARLY
    )
    v = visit(server)
    v.run("ew.env.workerUrl = '/files/instead.js';")
    body = (
        "await ew.pipeline('text-generation', new File([await (await"
        " fetch('/files/model.edge')).blob()], 'mine.edge'))"
    )
    stalling(
        v,
        lambda seconds: error(
            v.run(body), "ModelError", "mine.edge", f"did not deliver it within {seconds} s"
        ),
    )


def test_missing_files_of_an_extension(visit, server):
    """At a URL other than http a missing file has no status: it is reported at once."""
    v = visit(server)
    got = v.run(
        "try { await ew.pipeline('text-generation',"
        " 'chrome-extension://abcdefghijklmnopabcdefghijklmnop/model.edge'); } catch (e) { return"
        " [e.name, e.message]; }"
    )
    assert got[0] == "ModelError" and "no such file" in got[1], got


# Resources after an abort


def test_aborted_loads_leave_no_threads(browser, server, files):
    """Regression test: nested workers that were terminated while they started, or together with
    their parent, remained as threads of the browser's process.
    """
    import glob
    import time

    from .conftest import Visit

    context = browser.new_context()
    v = Visit(context, server + "/files/blank.html").start()
    devtools = browser.new_browser_cdp_session()

    def threads():
        of = [
            p["id"]
            for p in devtools.send("SystemInfo.getProcessInfo")["processInfo"]
            if p["type"] == "renderer"
        ]
        found = 0
        for path in (p for process in of for p in glob.glob(f"/proc/{process}/task/*/comm")):
            try:
                with open(path) as f:
                    found += f.read().startswith("DedicatedWorker")
            except OSError:
                pass
        return found

    v.run("""
        for (let i = 0; i < 20; i++) {
          const c = new AbortController();
          if (i % 4) setTimeout(() => c.abort(), (i * 37) % 120);
          try {
            await (
              await ew.pipeline("text-generation", "/files/model.edge", {
                threads: 2,
                signal: c.signal,
              })
            ).dispose();
          } catch (e) {
            if (e.name !== "Aborted") throw e;
          }
        }
    """)
    until = time.monotonic() + 300
    while threads() and time.monotonic() < until:
        time.sleep(0.5)
    assert threads() == 0
    v.close()
    context.close()


# long: the script of a page and the checks of what it returns
@pytest.mark.slow(
    "browser/training/test_checkpoints.py::test_full_storage_is_reported_and_loses_nothing"
)
def test_a_quota_that_shrinks(visit, server, context):
    """The storage quota shrinks while files, plans, adapters and checkpoints are written: each
    operation succeeds or reports the reason, and existing files remain.
    """
    v = visit(server)
    quota = context.new_cdp_session(v.page)
    room = lambda size=None: quota.send(
        "Storage.overrideQuotaForOrigin",
        {"origin": server, **({} if size is None else {"quotaSize": size})},
    )  # noqa: E731
    setup = """
        window.warnings = [];
        window.load = (options) =>
          ew.pipeline("text-generation", "/demo/model/", {
            dtype: "q4",
            progress_callback: (e) => e.status === "warning" && warnings.push(e.message),
            ...options,
          });
        const p = (window.p = await load({ training: { batch_size: 1, sequence_length: 32 } }));
        window.text = "The cat sat on the mat. ".repeat(60);
        await ew.fineTune(p, text, {
          max_steps: 4,
          name: "first",
          checkpoint: { name: "run", every: 2 },
        });
        await p.keepAdapter("first");
        return (await ew.checkpoints()).map((c) => c.step);
    """
    assert v.run(setup) == [4]
    room(1000)
    got = v.run("""
        const steps = [];
        const trainer = await ew.Trainer.create(p, text, {
          max_steps: 8,
          name: "second",
          checkpoint: { name: "run", every: 2 },
          onStep: (e) => steps.push(e.step),
        });
        const ran = await trainer.run().then(
          () => "done",
          (e) => `${e.name}: ${e.message}`,
        );
        const saved = await trainer.save().then(
          () => "saved",
          (e) => e.name,
        );
        await trainer.close();
        const kept = await p.keepAdapter("second").then(
          () => "kept",
          (e) => e.name,
        );
        const fresh = await load({
          cache_files: true,
          training: { batch_size: 1, sequence_length: 16 },
        });
        const written = (await fresh("Once", { max_new_tokens: 3 })).length;
        await fresh.dispose();
        return {
          ran,
          saved,
          kept,
          written,
          warnings,
          checkpoints: (await ew.checkpoints()).map((c) => c.step),
          adapters: (await p.keptAdapters()).map((a) => a.name),
        };
    """)
    assert "error" not in got, got
    assert (
        got["kept"] == "StorageError"
        and got["written"] == 1
        and any("full" in w for w in got["warnings"])
    ), got
    assert (
        got["saved"] == "StorageError"
        and got["checkpoints"] in ([4], [2])
        and got["adapters"] == ["first"]
    ), got
    room()
    after = v.run("""
        const trainer = await ew.Trainer.create(p, text, {
          max_steps: 4,
          name: "third",
          checkpoint: { name: "other", every: 2 },
        });
        await trainer.run();
        await trainer.close();
        await p.keepAdapter("third");
        await p.dispose();
        return (await ew.checkpoints()).map((c) => c.name).sort();
    """)
    assert after == ["other", "run"], after
