"""Plans that an InferenceSession compiled in a page are stored: the next visit needs no Python and
gives the same outputs; changed models and damaged entries are compiled again.
"""

import base64
import shutil

import edgewise
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tiers import slow_unless

from ..loading import error
from ..test_pages import no_python
from .damage import DAMAGE, OF_FILES
from .test_inference_session import FEED, image, models, same  # noqa: F401

# Runs the model with images of these sizes; `arg.open`: the argument of `create`.
RUN = (
    FEED
    + """
        const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const model = arg.data === undefined ? arg.url : bytes(arg.data);
        const externalData = Object.entries(arg.external ?? {}).map(([path, text]) => ({
          path,
          data: bytes(text),
        }));
        const s = await ew.InferenceSession.create(model, { externalData, ...arg.options });
        const names = [s.inputMetadata, s.outputMetadata],
          out = [];
        for (const [size, fetches] of arg.sizes)
          out.push(plain(await s.run({ x: x(...size) }, fetches ?? undefined)));
        await s.release();
        return { names, out };
    """
)
ONE, TWO = [[1, 8, 8], None], [[3, 5, 7], ["probs"]]
# Reads or changes the only entry of the cache; returns its previous content.
ENTRY = """
    const dir = await (
      await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
    ).getDirectoryHandle("plans");
    const kept = [];
    for await (const entry of dir.values()) kept.push(entry);
    if (kept.length !== 1) throw new Error(`there are ${kept.length} entries`);
    const before = new Uint8Array(await (await kept[0].getFile()).arrayBuffer());
    if (arg) {
      const out = await kept[0].createWritable();
      await out.write(Uint8Array.from(atob(arg), (c) => c.charCodeAt(0)));
      await out.close();
    }
    let text = "";
    for (let i = 0; i < before.length; i += 32768)
      text += String.fromCharCode(...before.subarray(i, i + 32768));
    return btoa(text);
"""


def encoded(data):
    return base64.b64encode(data).decode()


def entry(visit, instead=None):
    return base64.b64decode(visit.run(ENTRY, instead and encoded(instead)))


def run(visit, sizes=(ONE,), **what):
    got = visit.run(RUN, {"sizes": list(sizes), **what})
    assert "error" not in got, got
    return got


def given(how, models):  # noqa: F811
    if how == "bytes":
        return {"data": encoded((models / "cnn.onnx").read_bytes())}
    if how == "bytes with data beside":
        return {
            "data": encoded((models / "outside.onnx").read_bytes()),
            "external": {"outside.onnx.data": encoded((models / "outside.onnx.data").read_bytes())},
        }
    return {"url": f"/files/models/{how}"}


HOWS = ["cnn.onnx", "cnn.onnx?fault=no-range", "outside.onnx", "bytes", "bytes with data beside"]


@pytest.mark.parametrize(
    "how", slow_unless(lambda how: how in ("cnn.onnx", "bytes with data beside"), HOWS)
)
def test_the_next_visit_needs_no_python(visit, server, models, how):  # noqa: F811
    v = visit(server)
    first = run(v, [ONE, TWO], **given(how, models))
    assert not no_python(v)
    w = visit(server)
    again = run(w, [TWO, ONE, TWO], **given(how, models))
    assert (
        no_python(w)
        and again["names"] == first["names"]
        and again["out"] == [first["out"][i] for i in (1, 0, 1)]
    )
    session = edgewise.InferenceSession(str(models / "cnn.onnx"))
    same(again["out"][1], session, {"x": image(1, 8, 8)})
    if "onnx" in how and "fault" not in how:
        assert len(w.asked(".onnx")) == (2 if how == "outside.onnx" else 1), (
            "the model is fetched once"
        )
    if how not in ("cnn.onnx", "bytes"):
        return
    # new shapes start Python; their plans are stored with the others and share their weights
    other = run(w, [ONE, [[2, 4, 4], None]], **given(how, models))
    assert not no_python(w) and other["out"][0] == first["out"][0]
    same(other["out"][1], session, {"x": image(2, 4, 4)})
    z = visit(server)
    assert run(z, [[[2, 4, 4], None], TWO, ONE], **given(how, models))["out"] == [
        other["out"][1],
        *reversed(first["out"]),
    ] and no_python(z)


def test_weights_stay_in_the_model(visit, server, models):  # noqa: F811
    v = visit(server)
    run(v, [ONE], **given("cnn.onnx", models))
    raw = numpy_helper.to_array(
        next(t for t in onnx.load(models / "cnn.onnx").graph.initializer if t.name == "w")
    ).tobytes()
    assert raw in (models / "cnn.onnx").read_bytes() and raw not in entry(v)
    assert v.run(
        "const before = await ew.cacheBytes(); await ew.clearCache(); return [before, await"
        " ew.cacheBytes()]"
    )[1] == {"plans": 0, "files": 0}
    w = visit(server)
    run(w, [ONE], **given("cnn.onnx", models))
    assert not no_python(w)


def test_constants_and_packed_weights(visit, server, models):  # noqa: F811
    """Values that shapes depend on are part of a stored plan's key; a weight that was packed is
    read again for a plan that uses it unpacked.
    """
    body = (
        FEED
        + """
            const s = await ew.InferenceSession.create("/files/models/resize.onnx");
            const dims = [];
            for (const shape of arg.shapes)
              dims.push(
                plain(
                  await s.run({
                    x: new ew.Tensor(Float32Array.from({ length: 24 }, (_, i) => i)),
                    shape: new ew.Tensor("int64", shape),
                  }),
                ).y[1],
              );
            await s.release();
            const p = await ew.InferenceSession.create("/files/models/packed.onnx");
            const feeds = (n) => ({
              x: new ew.Tensor(
                "float32",
                Float32Array.from({ length: n * 256 }, (_, i) => Math.sin(i)),
                [n, 256],
              ),
              i: new ew.Tensor("int64", BigInt64Array.of(7n), [1]),
            });
            const all = [];
            for (const [n, names] of arg.runs) all.push([n, plain(await p.run(feeds(n), names))]);
            await p.release();
            return { dims, all };
        """
    )
    v = visit(server)
    first = v.run(body, {"shapes": [[2, 12], [24]], "runs": [[1, ["y"]]]})
    w = visit(server)
    again = w.run(body, {"shapes": [[24], [2, 12]], "runs": [[1, ["y"]]]})
    assert (
        first["dims"] == [[2, 12], [24]]
        and again["dims"] == [[24], [2, 12]]
        and again["all"] == first["all"]
        and no_python(w)
    )
    more = w.run(body, {"shapes": [[4, 6]], "runs": [[1, ["y"]], [1, ["row"]], [2, ["y", "row"]]]})
    assert more["dims"] == [[4, 6]] and not no_python(w)
    session = edgewise.InferenceSession(str(models / "packed.onnx"))
    for n, out in more["all"]:
        same(
            out,
            session,
            {
                "x": np.sin(np.arange(n * 256)).astype(np.float32).reshape(n, 256),
                "i": np.array([7]),
            },
        )
    z = visit(server)
    last = z.run(
        body, {"shapes": [[4, 6], [2, 12]], "runs": [[2, ["y", "row"]], [1, ["row"]], [1, ["y"]]]}
    )
    assert last["dims"] == [[4, 6], [2, 12]] and last["all"] == more["all"][::-1] and no_python(z)


@pytest.mark.parametrize(
    "how", slow_unless(lambda how: how == "outside.onnx", ["cnn.onnx", "outside.onnx", "bytes"])
)
def test_a_changed_model_is_compiled_again(visit, server, models, how):  # noqa: F811
    """A model of the same size, which differs only in the server's ETag or in its bytes."""
    name = "outside.onnx" if how == "outside.onnx" else "cnn.onnx"
    was = {f: (models / f).read_bytes() for f in (name, name + ".data") if (models / f).exists()}
    try:
        first = run(visit(server), [ONE], **given(how, models))
        if name == "outside.onnx":
            data = np.frombuffer(was[name + ".data"], np.float32)
            (models / (name + ".data")).write_bytes((data * 2).tobytes())
        else:
            model = onnx.load(models / name)
            model.graph.node[1].op_type = "Tanh"  # as long as "Relu"
            for t in model.graph.initializer:
                t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) * 2, t.name))
            onnx.save_model(model, models / name)
            assert (models / name).stat().st_size == len(was[name])
        want = edgewise.InferenceSession(str(models / name))
        w = visit(server)
        changed = run(w, [ONE], **given(how, models))
        assert not no_python(w) and changed["out"] != first["out"]
        same(changed["out"][0], want, {"x": image(1, 8, 8)})
        z = visit(server)
        assert run(z, [ONE], **given(how, models))["out"] == changed["out"] and no_python(z)
    finally:
        for f, data in was.items():
            (models / f).write_bytes(data)


def test_a_model_that_changes_while_a_session_uses_it(visit, server, models):  # noqa: F811
    """A session with stored plans fetches the model again for new shapes: if the model has changed
    since, that is an error, and the existing plans still work.
    """
    shutil.copy(models / "cnn.onnx", models / "moving.onnx")
    first = run(visit(server), [ONE], url="/files/models/moving.onnx")
    v = visit(server)
    opened = v.run(
        FEED
        + "window.s = await ew.InferenceSession.create('/files/models/moving.onnx'); window.image ="
        " x; window.plain = plain; return plain(await s.run({x: x(1, 8, 8)}));"
    )
    assert opened == first["out"][0]
    (models / "moving.onnx").write_bytes((models / "cnn.onnx").read_bytes() + b"\0")
    assert (
        "changed on the server"
        in error(v.run("await s.run({x: image(2, 8, 8)})"), "ModelError")["message"]
    )
    assert v.run("return plain(await s.run({x: image(1, 8, 8)}))") == opened


FEW = ["cut off", "a mark of a file elsewhere"]
MORE = [how for how in OF_FILES if how not in FEW]


@pytest.mark.parametrize("hows", slow_unless(lambda hows: hows is FEW, [FEW, MORE]))
def test_a_damaged_entry_is_made_again(visit, server, models, hows):  # noqa: F811
    """What depends on files and requests; tests/session/test_page_session.py tests all damage."""
    v = visit(server)
    first = run(v, [ONE], **given("cnn.onnx", models))
    good = entry(v)
    for how in hows:
        bad = DAMAGE[how](good)
        assert bad != good, how
        entry(v, bad)
        w = visit(server)
        assert run(w, [ONE], **given("cnn.onnx", models))["out"] == first["out"] and not no_python(
            w
        ), how
        assert not [r.url for r in w.requests if not r.url.startswith((server, "data:"))], how
        assert entry(w) == good, how
        w.close()
    z = visit(server)
    assert run(z, [ONE], **given("cnn.onnx", models))["out"] == first["out"] and no_python(z)


def test_the_latest_plans_are_stored(visit, server, models):  # noqa: F811
    v = visit(server)
    # two lengths that grow differently: a plan for a range of lengths would serve a single one
    shapes = {n: [[n, 2 * n + 2, 4], None] for n in range(1, 18)}
    run(v, [shapes[n] for n in range(1, 18)], **given("cnn.onnx", models))
    w = visit(server)
    run(w, [shapes[n] for n in range(2, 18)], **given("cnn.onnx", models))
    assert no_python(w)
    run(w, [shapes[1]], **given("cnn.onnx", models))
    assert not no_python(w)


def test_programs_with_loops_are_stored(visit, server, models):  # noqa: F811
    body = (
        "const s = await ew.InferenceSession.create('/files/models/loop.onnx'); const {y} = await"
        " s.run({n: new ew.Tensor('int64', [3], []), x: new ew.Tensor('float32', [1, 2], [2])});"
        " await s.release(); return [...y.data];"
    )
    for again in (False, True):
        v = visit(server)
        assert v.run(body) == [8, 16] and no_python(v) == again


def test_works_without_storage(visit, server, models, context):  # noqa: F811
    """If the browser has no storage or no space, or the page disables storage, each visit works
    like the first one.
    """
    v = visit(server)
    run(v, [ONE], options={"cache": False}, **given("cnn.onnx", models))
    assert v.run("return await ew.cacheBytes()") == {"plans": 0, "files": 0}
    w = visit(server)
    w.run("ew.env.cachePlans = false")
    run(w, [ONE], **given("cnn.onnx", models))
    assert not no_python(w)
    assert v.run("ew.env.cachePlans = true; return await ew.cacheBytes()") == {
        "plans": 0,
        "files": 0,
    }
    said = []
    v.page.on("console", lambda m: said.append(m.text))
    context.new_cdp_session(v.page).send(
        "Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": 1000}
    )
    got = run(v, [ONE, TWO], **given("cnn.onnx", models))
    same(got["out"][0], edgewise.InferenceSession(str(models / "cnn.onnx")), {"x": image(1, 8, 8)})
    assert any("full" in text and "Nothing is lost" in text for text in said), said


def test_stored_files(visit, server, models):  # noqa: F811
    """With `cache_files` the model is stored too: the next visit requests neither the model nor
    Python.
    """
    v = visit(server)
    first = run(v, [ONE], options={"cache_files": True}, **given("outside.onnx", models))
    w = visit(server)
    again = run(w, [ONE], options={"cache_files": True}, **given("outside.onnx", models))
    assert again["out"] == first["out"] and no_python(w) and not w.asked(".onnx")


def test_damaged_stored_files(visit, server, models):  # noqa: F811
    """Damage in the browser's storage is detected, and the file is fetched again within the same
    load.
    """
    v = visit(server)
    first = run(v, [ONE], options={"cache_files": True}, **given("outside.onnx", models))
    assert (
        v.run("""
            const dir = await (
              await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
            ).getDirectoryHandle("files");
            let damaged = 0;
            for await (const entry of dir.values()) {
              if (!entry.name.endsWith(".data")) continue;
              const bytes = new Uint8Array(await (await entry.getFile()).arrayBuffer());
              bytes[bytes.length - 9] ^= 64;
              const out = await entry.createWritable();
              await out.write(bytes);
              await out.close();
              damaged++;
            }
            return damaged;
        """)
        >= 1
    )
    for asked in (True, False):
        w = visit(server)
        again = run(w, [ONE], options={"cache_files": True}, **given("outside.onnx", models))
        assert again["out"] == first["out"] and bool(w.asked("/outside.")) == asked, w.asked("")


def test_profiles_name_the_nodes_of_stored_plans(visit, server, models):  # noqa: F811
    body = (
        FEED
        + """
            const s = await ew.InferenceSession.create("/files/models/cnn.onnx");
            const of = [];
            for (const n of arg)
              of.push(
                (await s.profile({ x: x(n, 8, 8) }, { runs: 1 }))
                  .byNode()
                  .map((r) => [r.node, r.op, r.operations])
                  .sort(),
              );
            await s.release();
            return of;
        """
    )
    first = visit(server).run(body, [1, 2])
    w = visit(server)
    assert (
        w.run(body, [2, 1]) == first[::-1]
        and no_python(w)
        and "Conv" in str(first[0])
        and first[0] != first[1]
    )
