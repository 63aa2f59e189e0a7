"""Bad networks, bad files, bad wishes, and changes of mind: an EdgewiseError that says what, where
and what to do; and what was there before still works.
"""

import base64
import hashlib
import json
import random
import shutil

import pytest

from .conftest import MODEL, edit_package, greedy

LOAD = (
    "const p = await ew.pipeline('text-generation', arg.model, arg.options ?? {}); const i ="
    " p.info; await p.dispose(); return {info: i};"
)


def load(visit, model, **options):
    return visit.run(LOAD, {"model": model, "options": options})


def error(got, name, *words):
    assert "error" in got, got
    e = got["error"]
    assert e["name"] == name and e["ours"] and e["own"], e
    for word in words:
        assert word in e["message"], (word, e["message"])
    return e


# Networks


def test_a_broken_connection_is_taken_up_again(visit, server):
    v = visit(server)
    assert greedy(v, "/files/model.edge?fault=cut-once:700000")["info"]["origin"] == "package"
    first, *more = [r for r in v.requests if "cut-once" in r.url]
    assert "range" not in first.all_headers() and len(more) == 1
    begin = int(more[0].all_headers()["range"].removeprefix("bytes=").rstrip("-"))
    assert (
        0 < begin <= 700_000
    )  # of what had left the server, the browser hands over what it got to before the end
    assert more[0].response().status == 206 and more[0].response().headers[
        "content-range"
    ].startswith(f"bytes {begin}-")
    # a server that does not know ranges sends all again
    assert "error" not in greedy(v, "/files/model.edge?fault=no-range")


def test_a_truncated_download(visit, server):
    v = visit(server)
    error(load(v, "/files/model.edge?fault=cut:700000"), "ModelError", "broke off", "model.edge")
    error(load(v, "/files/model.edge?fault=short:700000"), "PackageError", "cut off")
    error(load(v, "/files/model.edge?fault=short:10"), "PackageError", "cut off")
    error(
        load(v, "/demo/model/onnx/model_q4.onnx?fault=short:700000"), "ModelError", "model_q4.onnx"
    )
    assert "error" not in load(v, "/files/model.edge")


def test_statuses(visit, server):
    v = visit(server)
    error(load(v, "/files/nothing.edge"), "ModelError", "404", "nothing.edge")
    error(load(v, "/files/model.edge?fault=status:403"), "ModelError", "403")
    error(load(v, "/files/model.edge?fault=status:503"), "ModelError", "503")
    error(load(v, "http://localhost:9/model.edge"), "ModelError", "could not be fetched")


def test_kept_files_and_resuming_on_the_next_visit(visit, server):
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


def test_a_full_disk_loses_nothing(visit, server, context):
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


def test_disposed_pipelines_say_so(visit, server):
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


def test_a_failing_callback_fails_its_own_call_only(visit, server):
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


# Wrong files


def test_wrong_files(visit, server, files):
    v = visit(server)
    shutil.copy(MODEL / "tokenizer.json", files / "tokenizer.json")
    (files / "page.edge").write_text("<!doctype html>not found")
    (files / "page.onnx").write_text("<!doctype html>not found")
    (files / "empty.edge").write_bytes(b"")
    (files / "empty.onnx").write_bytes(b"")
    error(load(v, "/files/page.edge"), "PackageError", "not an Edgewise package", "edgewise build")
    error(load(v, "/files/empty.edge"), "PackageError", "not an Edgewise package")
    error(load(v, "/files/page.onnx"), "ModelError", "page.onnx")
    error(load(v, "/files/empty.onnx"), "ModelError", "empty.onnx")
    for blobs, name, words in (
        ([["notes.txt", "hello"]], "InputError", "no .onnx and no .edge"),
        ([["a.onnx", "x"], ["b.onnx", "y"]], "InputError", "2 .onnx files"),
        ([["model.edge", "hello, I am no package"]], "PackageError", "not an Edgewise package"),
    ):
        error(
            v.run(
                "await ew.pipeline('text-generation', arg.map(([n, t]) => new File([t], n)))", blobs
            ),
            name,
            words,
        )


def test_broken_tokenizers(visit, server, package):
    v = visit(server)
    whole = json.loads((MODEL / "tokenizer.json").read_text())
    for text, words in (
        ('{"version": "1.0", "model"', "broken JSON"),
        ("[]", "not a JSON object"),
        (json.dumps({**whole, "model": {"type": "Nonsense"}}), "not a valid tokenizer"),
        (None, "no tokenizer.json"),
    ):
        got = v.run(
            """
                const files = [
                  new File(
                    [await (await fetch("/demo/model/onnx/model_q4.onnx")).blob()],
                    "model.onnx",
                  ),
                  new File(
                    [await (await fetch("/demo/model/config.json")).blob()],
                    "config.json",
                  ),
                ];
                if (arg !== null) files.push(new File([arg], "tokenizer.json"));
                await ew.pipeline("text-generation", files);
            """,
            text,
        )
        error(got, "TokenizerError", words)


def test_an_unsupported_op(visit, server, files):
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["input_ids"], ["x"], name="/embed", to=TensorProto.FLOAT),
            helper.make_node(
                "Wiggle", ["x"], ["logits"], name="/layers.3/wiggle", domain="com.example"
            ),
        ],
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", 8])],
    )
    shutil.copy(MODEL / "tokenizer.json", files / "tokenizer.json")
    (files / "wiggle.onnx").write_bytes(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)],
        ).SerializeToString()
    )
    v = visit(server)
    e = error(load(v, "/files/wiggle.onnx"), "UnsupportedOp", "Wiggle", "/layers.3/wiggle")
    assert e["remedy"]


def test_wrong_wishes(visit, server):
    v = visit(server)
    error(load(v, "/files/model.edge", threads=0), "InputError", "threads")
    error(load(v, "/files/model.edge", flavour="fast"), "InputError", "flavour")
    error(load(v, "/files/model.edge", dtype="q3"), "InputError", "dtype")
    error(load(v, "/files/model.edge", colour="red"), "InputError", "colour")
    error(v.run("await ew.pipeline('painting', '/files/model.edge')"), "InputError", "painting")
    got = v.run(
        """
            const p = await ew.pipeline("text-generation", "/files/model.edge");
            const out = [];
            for (const [input, fields] of arg) {
              try {
                await p(input, fields);
                out.push("fine");
              } catch (e) {
                out.push(`${e.name}: ${e.message}`);
              }
            }
            let cloned;
            try {
              await p("a", { logits_processor: () => 0 });
            } catch (e) {
              cloned = e.name;
            }
            const after = await p("Once", { max_new_tokens: 2 });
            await p.dispose();
            return { out, cloned, after };
        """,
        [
            ["a", {"penalty_alpha": 0.6, "top_k": 4}],
            ["a", {"no_such_field": 1}],
            ["a", {"temperature": -1, "do_sample": True}],
            [[], {}],
            [[{"role": "user", "content": "hi"}], {}],
            ["word " * 2000, {}],
        ],
    )
    assert [line.split(":")[0] for line in got["out"][:2]] == [
        "UnsupportedField",
        "UnsupportedField",
    ], got["out"]
    assert (
        all(line != "fine" for line in got["out"])
        and "TokenizerError" in got["out"][4]
        and "InputError" in got["out"][5]
    ), got["out"]
    assert got["cloned"] == "InputError" and got["after"]


# Hostile packages


def mutations(package):
    """(what, edit): a number of a package replaced by every kind of nonsense, names that lead
    nowhere, and broken plans.
    """

    def at(*path):
        def change(value):
            def edit(m):
                here = m
                for key in path[:-1]:
                    here = here[key]
                here[path[-1]] = value

            return edit

        return change

    numbers = [-1, 1.5, 2**31, 2**32, 2**53, 1e300, "1", None, [], True]
    places = [
        ("format",),
        ("table_hash",),
        ("files", "weights", 0),
        ("files", "weights", 1),
        ("files", "plan/1", 0),
        ("files", "plan/1", 1),
        ("weights", 0, "offset"),
        ("weights", 0, "bytes"),
        ("decoder", "capacity"),
        ("decoder", "vocab_size"),
        ("decoder", "caches", 0, "bytes"),
        ("decoder", "plans", 0, "tokens"),
        ("decoder", "plans", 0, "registers", "past"),
        ("decoder", "plans", 0, "slots", 0, "bytes"),
        ("decoder", "plans", 1, "slots", 3, "bytes"),
    ]
    pick = random.Random(1)
    for place in places:
        for value in pick.sample(numbers, 2):
            yield f"{place} = {value!r}", at(*place)(value)
    for place, value in (
        (("weights", 0, "name"), "x"),
        (("weights", 0, "file"), "../../etc/passwd"),
        (("weights", 0, "file"), "tokenizer.json"),
        (("decoder", "plans", 0, "file"), "plan/99"),
        (("decoder", "plans"), []),
        (("decoder", "plans", 0, "slots"), []),
        (("decoder", "caches"), []),
        (("decoder",), None),
        (("weights",), {}),
        (("files",), []),
        (("task",), "text-to-image"),
        (("decoder", "plans", 0, "slots", 0, "kind"), "__proto__"),
        (("decoder", "logits_type"), "float64"),
        (("decoder", "cache_dtype"), "int8"),
        (("files", "plan/1"), [0, 10]),
    ):
        yield f"{place} = {value!r}", at(*place)(value)
    yield "a manifest of nothing", b"null"
    yield "a manifest that is not JSON", b"{" * 5000
    yield "a deep manifest", b"[" * 200_000
    yield "a manifest that is not UTF-8", b"\xff\xfe" * 50
    yield (
        "a manifest of 2^60 bytes",
        [[8 + i, byte] for i, byte in enumerate((2**60).to_bytes(8, "little"))],
    )
    length = int.from_bytes(package[8:16], "little")
    manifest, start = json.loads(package[16 : 16 + length]), -(-(16 + length) // 64) * 64
    for name in ("plan/1", "plan/16", "plan/128"):
        offset, size = manifest["files"][name]
        for _ in range(6):
            yield (
                f"bytes of {name}",
                (
                    name,
                    offset,
                    size,
                    [
                        [pick.randrange(size), pick.randrange(256)]
                        for _ in range(pick.choice([1, 1, 2, 8]))
                    ],
                ),
            )
    position = start + manifest["files"]["plan/1"][0] + 500
    yield "a plan that its checksum knows", [[position, package[position] ^ 255]]
    for _ in range(8):
        yield "cut off", pick.randrange(len(package))


def as_parts(package, edit):
    """What the page puts together: [head as numbers, where the rest begins, bytes to change, how
    long it is].
    """
    if isinstance(edit, list):
        return [[], 0, edit, len(package)]
    if isinstance(edit, int):
        return [[], 0, [], edit]
    if isinstance(
        edit, tuple
    ):  # bytes of a plan, with its checksum: whoever changes a plan can change that
        name, offset, size, changes = edit
        data = -(-(16 + int.from_bytes(package[8:16], "little")) // 64) * 64
        plan = bytearray(package[data + offset : data + offset + size])
        for at, byte in changes:
            plan[at] = byte
        head, origin, _, length = as_parts(
            package, lambda m: m["sha256"].update({name: hashlib.sha256(plan).hexdigest()})
        )
        return [head, origin, [[len(head) + offset + at, byte] for at, byte in changes], length]
    whole = edit_package(package, edit if callable(edit) else lambda m: edit)
    data = -(-(16 + int.from_bytes(package[8:16], "little")) // 64) * 64
    head = len(whole) - (len(package) - data)
    return [list(whole[:head]), data, [], len(whole)]


def test_hostile_packages(visit, server, package):
    """Refused with an EdgewiseError, or harmless; the pipeline that was there before goes on as if
    nothing had been.
    """
    v = visit(server)
    v.run(
        "window.p = await ew.pipeline('text-generation', '/files/model.edge'); window.before ="
        " (await p('Once', {max_new_tokens: 8, do_sample: false}))[0].generated_text;"
    )
    outcomes = {}
    v.page.evaluate(
        "(text) => { window.base = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); }",
        base64.b64encode(package).decode(),
    )
    for what, edit in mutations(package):
        got = v.page.evaluate(
            """
                async ([head, from, edits, length]) => {
                  const bytes = new Uint8Array(
                    await new Blob([new Uint8Array(head), base.slice(from)]).arrayBuffer(),
                  ).slice(0, length);
                  for (const [at, byte] of edits) bytes[at] = byte;
                  try {
                    const q = await ew.pipeline(
                      "text-generation",
                      new File([bytes], "hostile.edge"),
                      { threads: 1 },
                    );
                    try {
                      await q("Once", { max_new_tokens: 2, do_sample: false, max_time: 5 });
                      return "fine";
                    } finally {
                      await q.dispose();
                    }
                  } catch (e) {
                    return e instanceof ew.EdgewiseError && e.what && e.name !== "EdgewiseError"
                      ? e.name
                      : `not ours: ${e.name} ${e.message} ${e.stack}`;
                  }
                }
            """,
            as_parts(package, edit),
        )
        assert not got.startswith("not ours"), (what, got)
        if not what.startswith("bytes of"):
            assert got != "fine", what
        outcomes[got] = outcomes.get(got, 0) + 1
    print(outcomes)
    after = v.run(
        "const t = (await p('Once', {max_new_tokens: 8, do_sample: false}))[0].generated_text;"
        " await p.dispose(); return t === before"
    )
    assert after is True


# Damaged weights


def flipped(package, which):
    """A package with one bit of a weight flipped; and the weight's name."""
    length = int.from_bytes(package[8:16], "little")
    manifest, start = json.loads(package[16 : 16 + length]), -(-(16 + length) // 64) * 64
    weight = manifest["weights"][which]
    broken = bytearray(package)
    broken[start + manifest["files"]["weights"][0] + weight["offset"] + weight["bytes"] // 2] ^= 4
    return bytes(broken), weight["name"]


@pytest.mark.parametrize("keep", [False, True], ids=["fetched", "kept"])
def test_damaged_weights(visit, server, files, package, keep):
    """A bit of a weight is another one on the way: an error that names file and weight; nothing of
    it is kept, and the next load is whole.
    """
    (files / "passing.edge").write_bytes(package)
    v = visit(server)
    good = greedy(v, "/files/passing.edge")
    for which in (0, -1):
        broken, name = flipped(package, which)
        (files / "passing.edge").write_bytes(broken)
        got = greedy(v, "/files/passing.edge", {"cache_files": keep})
        error(got, "PackageError", name, "checksum", "passing.edge")
        assert v.run("return (await ew.cacheBytes()).files") == 0
        (files / "passing.edge").write_bytes(package)
        assert greedy(v, "/files/passing.edge", {"cache_files": keep})["ids"] == good["ids"]
        v.run("await ew.clearCache()")


def test_damaged_weights_that_are_kept(visit, server, files, package):
    """Damaged where the browser keeps them: found on the next visit, forgotten, and fetched
    again.
    """
    (files / "stored.edge").write_bytes(package)
    v = visit(server)
    good = greedy(v, "/files/stored.edge", {"cache_files": True})
    assert len(v.asked("stored.edge")) == 1
    assert v.run("""
        const dir = await (
          await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
        ).getDirectoryHandle("files");
        for await (const entry of dir.values()) {
          if (!entry.name.endsWith(".data")) continue;
          const bytes = new Uint8Array(await (await entry.getFile()).arrayBuffer());
          bytes[bytes.length - 5000] ^= 1;
          const out = await entry.createWritable();
          await out.write(bytes);
          await out.close();
          return bytes.length;
        }
    """) == len(package)
    w = visit(server)
    error(
        greedy(w, "/files/stored.edge", {"cache_files": True}),
        "PackageError",
        "checksum",
        "stored.edge",
    )
    assert greedy(w, "/files/stored.edge", {"cache_files": True})["ids"] == good["ids"]
    assert len(w.asked("stored.edge")) == 1, "it is fetched again"
