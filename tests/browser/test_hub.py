"""Models of a hub: listing, verification, resumed downloads, the registry."""

import pytest
from tiers import slow_unless

from .conftest import greedy
from .hub import GRAPH, ID, Hub
from .loading import error

TREE = f"api/models/{ID}/tree/main"

LOAD = """
    ew.env.remoteHost = arg.host;
    const events = [];
    const p = await ew.pipeline("text-generation", arg.id, {
      ...arg.options,
      progress_callback: (e) => events.push(e),
    });
    const [{ generated_text: text }] = await p("Once", { max_new_tokens: 3, do_sample: false });
    const { info } = p;
    await p.dispose();
    return { text, info, events, kept: await ew.cacheBytes() };
"""


def load(v, hub, id=ID, **options):
    got = v.run(LOAD, {"host": hub.url, "id": id, "options": options})
    assert "error" not in got, got
    return got


def names(hub):
    return [path for path, _ in hub.asked]


def test_a_model_is_listed_verified_and_kept(visit, server, hub):
    hub.page = 3  # entries of a page of the listing
    v = visit(server)
    got = load(v, hub)
    texts = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    asked = names(hub)
    assert asked.count(TREE) == 3 and asked[:3] == [TREE] * 3, "the listing is read first"
    assert sorted(set(asked[3:])) == sorted(
        [f"{ID}/resolve/main/{name}" for name in [*texts, GRAPH]]
        + [
            f"cdn/{name}"
            for name, data in hub.files.items()
            if name in [*texts, GRAPH] and len(data) >= 50_000
        ]
    ), "nothing is tried that the hub does not have"
    assert got["info"]["dtype"] == "q4" and got["kept"]["files"] > len(hub.files[GRAPH])
    totals = [e for e in got["events"] if e["status"] == "progress_total"]
    whole = sum(len(hub.files[name]) for name in [*texts, GRAPH])
    assert {e["total"] for e in totals} == {whole}
    assert totals[-1]["loaded"] == whole and totals[-1]["progress"] == 100
    loaded = [e["loaded"] for e in totals]
    assert loaded == sorted(loaded)

    hub.forget()
    again = load(v, hub)
    assert again["text"] == got["text"] and hub.asked == [], "the second visit asks for nothing"

    # a new version of the model is found when something has to be fetched
    config = hub.files["config.json"]
    hub.files["config.json"] = config.replace(b"{", b'{"new": 1,', 1)
    hub.files["onnx/model.onnx"] = hub.files[GRAPH]
    load(v, hub, dtype="fp32")
    assert names(hub).count(f"{ID}/resolve/main/config.json") == 1
    assert f"{ID}/resolve/main/tokenizer_config.json" not in names(hub)
    assert "cdn/onnx/model.onnx" not in names(hub), "its content is stored already"


@pytest.mark.parametrize("name", slow_unless(lambda name: name == GRAPH, [GRAPH, "config.json"]))
def test_damaged_files_of_a_hub_are_refused(visit, server, hub, name):
    v = visit(server)
    good = hub.files[name]
    listed = Hub.__dict__["_list"]
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1

    def stale(request, query):
        hub.files[name] = good
        listed(hub, request, query)
        hub.files[name] = bytes(damaged)

    hub._list = stale
    got = v.run(LOAD, {"host": hub.url, "id": ID, "options": {}})
    error(got, "ModelError", "SHA-", name.split("/")[-1])
    hub._list, hub.files[name] = listed.__get__(hub), good
    load(v, hub)


def test_a_download_that_is_cut_four_times_fetches_no_byte_twice(visit, server, hub):
    hub.cuts, hub.cut_after = 4, 600_000
    v = visit(server)
    load(v, hub)
    assert hub.cuts == 0 and hub.preflights == 0
    large = [name for name, data in hub.files.items() if f"cdn/{name}" in names(hub)]
    assert GRAPH in large
    for name in large:
        assert hub.sent[name] == len(hub.files[name]), name


def test_without_a_listing(visit, server, hub):
    hub.listing = False
    v = visit(server)
    got = load(v, hub)
    asked = names(hub)
    assert got["info"]["dtype"] == "q4" and asked.count(TREE) == 1
    assert f"{ID}/resolve/main/onnx/model_quantized.onnx" in asked, "files are tried in turn"
    hub.forget()
    load(v, hub, dtype="q4")
    template = f"{ID}/resolve/main/chat_template.jinja"  # it may exist, and is not kept
    assert set(names(hub)) <= {TREE, template}


def test_the_registry(visit, server, hub):
    v = visit(server)
    assert v.run("return [await ew.models.list(), await ew.models.size()]") == [[], 0]
    before = v.run("return Date.now()")
    load(v, hub, dtype="q4")
    hub.files["onnx/model.onnx"] = hub.files[GRAPH]
    load(v, hub, dtype="fp32")
    greedy(v, "/demo/model/", {"dtype": "q4"})  # only its plans are kept
    listed = v.run("return await ew.models.list()")
    here, there = listed
    assert here["id"].endswith("/demo/model/") and here["files"] == [] and here["dtypes"] == []
    assert here["size_on_disk"] > 0
    assert there["id"] == ID and there["revision"] == "main"
    assert there["dtypes"] == ["fp32", "q4"]
    paths = {f["file"]: f for f in there["files"]}
    assert {GRAPH, "onnx/model.onnx", "config.json", "tokenizer.json"} <= set(paths)
    assert paths[GRAPH]["complete"] and paths[GRAPH]["size_on_disk"] == len(hub.files[GRAPH])
    times = v.run(
        "const [, m] = await ew.models.list(); return [m.last_accessed, ...m.files.map((f) =>"
        " f.last_modified)].map(Number)"
    )
    assert all(before <= t <= before + 600_000 for t in times)
    has = v.run(
        "const out = []; for (const [id, options] of arg) out.push(await ew.models.has(id,"
        " options)); return out",
        [
            [ID, {}],
            [ID, {"dtype": "q4", "revision": "main"}],
            [hub.resolved(""), {"dtype": "fp32"}],
            [ID, {"dtype": "q8"}],
            [ID, {"revision": "v2"}],
            ["someone/else", {}],
            ["/demo/model/", {}],
        ],
    )
    assert has == [True, True, True, False, False, False, False]
    sizes = v.run("return [await ew.models.size(), await ew.cacheBytes()]")
    stored_twice = len(hub.files[GRAPH])
    total = sum(m["size_on_disk"] for m in listed)
    assert sizes[0] == total - stored_twice, "equal files are stored once"

    # in use, here and in another tab
    got = v.run(
        "window.p = await ew.pipeline('text-generation', arg, {dtype: 'q4'}); return await"
        " ew.models.delete(arg)",
        ID,
    )
    error(got, "StorageError", "in use")
    w = visit(server)
    error(w.run("return await ew.models.delete(arg)", ID), "StorageError", "in use")
    freed = v.run("await p.dispose(); return await ew.models.delete(arg)", ID)
    assert freed == there["size_on_disk"] - stored_twice
    assert v.run("return await ew.models.has(arg)", ID) is False
    assert [m["id"] for m in v.run("return await ew.models.list()")] == [here["id"]]
    left = v.run(
        "await ew.models.delete('/demo/model/'); return [await ew.models.list(), await"
        " ew.models.size(), await ew.cacheBytes()]"
    )
    assert left == [[], 0, {"plans": 0, "files": 0}], "nothing is left over"


def test_files_of_the_own_origin_are_left_to_the_http_cache(visit, server, hub):
    v = visit(server)
    assert "error" not in greedy(v, "/files/model.edge")
    assert v.run("return (await ew.cacheBytes()).files") == 0
    greedy(v, f"{hub.url}{ID}/resolve/main/", {"cache_files": False})
    assert v.run("return (await ew.cacheBytes()).files") == 0
