"""Downloads that break, end early or fail; stored files; full storage."""

import base64

from .conftest import greedy
from .loading import error, load

# Downloads


def test_a_broken_download_is_resumed(visit, server):
    v = visit(server)
    assert greedy(v, "/files/model.edge?fault=cut-once:700000")["info"]["origin"] == "package"
    first, *more = [r for r in v.requests if "cut-once" in r.url]
    assert "range" not in first.all_headers() and len(more) == 1
    begin = int(more[0].all_headers()["range"].removeprefix("bytes=").rstrip("-"))
    assert (
        0 < begin <= 700_000
    )  # the browser delivers only a part of what the server sent before the connection ended
    assert more[0].response().status == 206 and more[0].response().headers[
        "content-range"
    ].startswith(f"bytes {begin}-")
    # a server without support for ranges sends the whole file again
    assert "error" not in greedy(v, "/files/model.edge?fault=no-range")


def test_a_truncated_download(visit, server):
    v = visit(server)
    error(load(v, "/files/model.edge?fault=cut:700000"), "ModelError", "broke off", "model.edge")
    error(load(v, "/files/model.edge?fault=short:700000"), "PackageError", "truncated")
    error(load(v, "/files/model.edge?fault=short:10"), "PackageError", "truncated")
    error(
        load(v, "/demo/model/onnx/model_q4.onnx?fault=short:700000"), "ModelError", "model_q4.onnx"
    )
    assert "error" not in load(v, "/files/model.edge")


def test_http_error_statuses(visit, server):
    v = visit(server)
    error(load(v, "/files/nothing.edge"), "ModelError", "404", "nothing.edge")
    error(load(v, "/files/model.edge?fault=status:403"), "ModelError", "403")
    error(load(v, "/files/model.edge?fault=status:503"), "ModelError", "503")
    error(load(v, "http://localhost:9/model.edge"), "ModelError", "could not be fetched")


def test_stored_files_and_resuming_on_the_next_visit(visit, server):
    v = visit(server)
    url = "/files/model.edge?fault=cut:900000"
    error(load(v, url, cache_files=True), "ModelError", "broke off")
    kept = v.run("return await ew.cacheBytes()")
    assert kept["files"] >= 800_000
    assert "error" not in load(v, "/files/model.edge", cache_files=True)
    before = len(v.asked("model.edge"))
    assert "error" not in load(v, "/files/model.edge", cache_files=True)
    assert len(v.asked("model.edge")) == before, "a complete file is not asked for again"
    assert v.run("await ew.clearCache(); return await ew.cacheBytes()") == {"plans": 0, "files": 0}


def test_integrity(visit, server, package):
    import hashlib

    v = visit(server)
    digest = hashlib.sha256(package)
    assert "error" not in load(v, "/files/model.edge", integrity=digest.hexdigest())
    assert "error" not in load(
        v, "/files/model.edge", integrity="sha256-" + base64.b64encode(digest.digest()).decode()
    )
    error(load(v, "/files/model.edge", integrity="0" * 64), "ModelError", "SHA-256")
    error(load(v, "/files/model.edge", integrity="nonsense"), "InputError", "integrity")


def test_an_open_session_survives_failing_loads(visit, server, context):
    """Offline, a file of a hub with another hash, and a missing engine: each load fails with one
    error that says what to do, and the pipeline that was open generates the same text.
    """
    v = visit(server)
    write = """
        const [{ generated_text }] = await p("Once", { max_new_tokens: 5, do_sample: false });
        return generated_text;
    """
    text = v.run(f"window.p = await ew.pipeline('text-generation', '/files/model.edge'); {write}")

    def failing(model, *words, **options):
        failed = error(load(v, model, **options), *words)
        assert failed["remedy"] and failed["where"], failed
        assert v.run(write) == text
        return failed

    v.run("ew.env.remoteHost = arg", server + "/files/hub/")
    hub = {"dtype": "q4", "integrity": {"tokenizer.json": "0" * 64}}
    failed = failing("someone/tiny", "ModelError", "SHA-256", "Fetch it again", **hub)
    assert "tokenizer.json" in failed["where"], failed
    context.set_offline(True)
    failing("/files/model.edge", "EngineError", "worker", "offline: connect it")
    context.set_offline(False)
    v.run("window.was = ew.env.engineUrl; ew.env.engineUrl = '/files/no-engine/';")
    failing("/files/model.edge", "EngineError", "env.engineUrl")
    v.run("ew.env.engineUrl = was;")
    assert "error" not in load(v, "/files/model.edge")
    v.run("await p.dispose()")


def test_full_storage_loses_nothing(visit, server, context):
    v = visit(server)
    context.new_cdp_session(v.page).send(
        "Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": 1000}
    )
    got = v.run("""
        const warnings = [];
        const p = await ew.pipeline("text-generation", "/demo/model/", {
          dtype: "q4",
          cache_files: true,
          progress_callback: (e) => e.status === "warning" && warnings.push(e.message),
        });
        const out = await p("Once", { max_new_tokens: 3 });
        await p.dispose();
        return { warnings, out, origin: p.info.origin };
    """)
    assert "error" not in got, got
    assert got["origin"] == "compiled" and any(
        "full" in w and "Nothing is lost" in w for w in got["warnings"]
    ), got["warnings"]
