"""Mixtures of experts of which memory holds some: the others are read from the stored package when
tokens need them. The texts are those of all in memory.
"""

import shutil

import pytest
from edgewise.host.session.decoder import open_package

from tests.bench.large import make

from .conftest import WEB, edit_package, greedy
from .loading import error

SIZES = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 32}
EXPERTS, CHOSEN = 8, 2
LAYOUTS = {"bits": False, "floats": True}  # of QMoE, and of MoE
# bytes of all experts: of each weight, an expert begins at a multiple of 64
ALL = {
    "bits": 2 * EXPERTS * (2 * 32 * 64 + 64 * 32) * 5 // 8,
    "floats": 2 * EXPERTS * 2 * 32 * 64 * 4,
}


@pytest.fixture(scope="module")
def mixtures(files):
    """Packages /files/mixture-LAYOUT.edge."""
    for layout, floats in LAYOUTS.items():
        folder = files / f"mixture-{layout}"
        make(folder, **SIZES, vocab=4096, experts=EXPERTS, chosen=CHOSEN, floats=floats)
        with open(f"{folder}.edge", "wb") as file:
            open_package(folder, "q4").write(file)
    return files


def url(layout):
    return f"/files/mixture-{layout}.edge"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_same_text(visit, server, mixtures, layout, threads):
    """With one expert of each layer, some and all; the second visit reads the stored package."""
    v = visit(server)
    asked = {"threads": threads, "cache_files": True}
    all_in = greedy(v, url(layout), asked)
    assert len(set(all_in["ids"])) > 6, all_in["ids"]
    weights = all_in["info"]["memory"]["weights"]
    for share in (0, 1 / EXPERTS, 0.5, 1):
        some = greedy(v, url(layout), {**asked, "expert_bytes": round(share * ALL[layout])})
        assert some["ids"] == all_in["ids"]
        kept = max(1, int(EXPERTS * share))
        held = some["info"]["memory"]["weights"]
        assert held == weights - ALL[layout] * (EXPERTS - kept) // EXPERTS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flavours(visit, server, mixtures, layout):
    """With 64-bit addresses, and in a file that the user chose."""
    got = visit(server).run(
        """
            const blob = await (await fetch(arg.url)).blob();
            const file = new File([blob], "chosen.edge");
            const texts = [];
            for (const flavour of ["relaxed-threads", "relaxed-threads-64"])
              for (const more of [{}, { expert_bytes: 0 }]) {
                const p = await ew.pipeline("text-generation", file, { flavour, ...more });
                const fields = { max_new_tokens: 9, do_sample: false };
                texts.push((await p("Once", fields))[0].generated_text);
                await p.dispose();
              }
            return texts;
        """,
        {"url": url(layout)},
    )
    assert len(got) == 4 and len(set(got)) == 1, got


@pytest.mark.parametrize("layout", LAYOUTS)
def test_onnx(visit, server, mixtures, layout):
    """A folder with an .onnx file and its weights beside it, which the page compiles, and in the
    second visit reads from the storage: the texts of the package, without all experts in memory.
    """
    v = visit(server)
    whole = greedy(v, url(layout))
    weights = whole["info"]["memory"]["weights"]
    folder, asked = f"/files/mixture-{layout}", {"dtype": "q4", "cache_files": True}
    for some in ({"expert_bytes": 0}, {"expert_bytes": ALL[layout] // 2}, {}, {"expert_bytes": 0}):
        got = greedy(v, folder, {**asked, **some})
        assert got["ids"] == whole["ids"]
        kept = {0: 1, ALL[layout] // 2: EXPERTS // 2}.get(some.get("expert_bytes"), EXPERTS)
        held = got["info"]["memory"]["weights"]
        assert held == weights - ALL[layout] * (EXPERTS - kept) // EXPERTS, (some, got["info"])


TRY = """
    const options = { expert_bytes: 0, cache_files: true, ...arg.options };
    const p = await ew.pipeline("text-generation", arg.url, options);
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle("edgewise")).getDirectoryHandle("files");
    for await (const [name, handle] of folder.entries()) {
      if (!name.endsWith(".data")) continue;
      if (arg.deed === "removed") await folder.removeEntry(name);
      if (arg.deed !== "shortened") continue;
      const out = await handle.createWritable({ keepExistingData: true });
      await out.truncate(5000);
      await out.close();
    }
    const found = [];
    for (let i = 0; i < 2; i++)
      await p("Once", { max_new_tokens: 9, do_sample: false }).then(
        () => found.push("a text"),
        (e) => found.push(`${e.name}: ${e.message}`),
      );
    await p.dispose();
    return found;
"""


@pytest.mark.parametrize("deed", ["shortened", "removed"])
@pytest.mark.parametrize("kind", ["edge", "onnx"])
def test_storage_that_changes(visit, server, mixtures, kind, deed):
    """One error in words, also for the next call; a new pipeline downloads the file again."""
    v = visit(server)
    model = url("bits") if kind == "edge" else "/files/mixture-bits"
    options = {} if kind == "edge" else {"dtype": "q4"}
    asked = {"expert_bytes": 0, "cache_files": True, **options}
    if kind == "onnx":  # a first visit reads its own copy
        greedy(v, model, asked)
    got = v.run(TRY, {"url": model, "deed": deed, "options": options})
    assert len(got) == 2 and got[0] == got[1], got
    name = "mixture-bits.edge" if kind == "edge" else "model_q4.onnx"
    for part in ("ModelError", name, "expert could not be read", "load the model"):
        assert part in got[0], got[0]
    again = greedy(v, model, asked)
    assert again["ids"] == greedy(v, url("bits"))["ids"]


@pytest.fixture(scope="module")
def large(mixtures):
    """A package of experts of 17 MB, and scripts of workers that are in the page's way."""
    folder = mixtures / "large"
    sizes = {**SIZES, "inner": 2048}
    make(folder, **sizes, vocab=4096, experts=EXPERTS, chosen=CHOSEN, floats=True)
    with open(mixtures / "large.edge", "wb") as file:
        open_package(folder, "q4").write(file)
    for name, script in OTHERS.items():
        shutil.copytree(WEB / "dist", mixtures / name, ignore=shutil.ignore_patterns("*.wasm"))
        (mixtures / name / "first.js").write_text(script)
        (mixtures / name / "worker.js").write_text('import "./first.js"; import "/worker.js";')
    return 2 * EXPERTS * 2 * 2048 * 64 * 4


OTHERS = {
    # a browser that gives less memory than it has promised
    "tight": """
        const PAGES = 256;
        const { Memory } = WebAssembly;
        WebAssembly.Memory = class extends Memory {
          constructor(limits) {
            super({ ...limits, maximum: Math.min(limits.maximum, PAGES) });
          }
        };
    """,
    # a file that is shortened while its second piece is read
    "shortening": """
        const { arrayBuffer } = Blob.prototype;
        let pieces = 0;
        const shorten = async () => {
          const root = await navigator.storage.getDirectory();
          const edgewise = await root.getDirectoryHandle("edgewise");
          const folder = await edgewise.getDirectoryHandle("files");
          for await (const [name, handle] of folder.entries()) {
            if (!name.endsWith(".data")) continue;
            const out = await handle.createWritable({ keepExistingData: true });
            await out.truncate(5 << 20);
            await out.close();
          }
        };
        Blob.prototype.arrayBuffer = async function () {
          if (this.size > 1 << 20 && ++pieces === 2) await shorten();
          return arrayBuffer.call(this);
        };
    """,
}


def test_memory_that_is_refused(visit, server, large):
    """Memory that the engine expected, and the browser does not give: one expert of each layer is
    then held, without a word from the page, and the text is the same.
    """
    v = visit(server)
    asked = {"threads": 1, "cache_files": True}
    whole = greedy(v, "/files/large.edge", asked)
    few = greedy(v, "/files/large.edge", {**asked, "expert_bytes": 0})
    assert few["ids"] == whole["ids"]
    weights = whole["info"]["memory"]["weights"]
    assert few["info"]["memory"]["weights"] == weights - large * (EXPERTS - 1) // EXPERTS
    v.run("ew.env.workerUrl = '/files/tight/worker.js';")
    tight = greedy(v, "/files/large.edge", asked)
    assert tight["ids"] == whole["ids"]
    assert tight["info"]["memory"]["weights"] == few["info"]["memory"]["weights"]


def test_storage_that_is_shortened_while_weights_are_read(visit, server, large):
    """One error in words; what is loaded then is the whole file again."""
    v = visit(server)
    asked = {"threads": 1, "cache_files": True}
    whole = greedy(v, "/files/large.edge", asked)
    v.run("window.before = ew.env.workerUrl; ew.env.workerUrl = '/files/shortening/worker.js';")
    got = v.run("await ew.pipeline('text-generation', '/files/large.edge', arg);", asked)
    error(got, "ModelError", "could not be read", "large.edge")
    v.run("ew.env.workerUrl = window.before;")
    assert greedy(v, "/files/large.edge", asked)["ids"] == whole["ids"]


def test_no_room(visit, server, context, mixtures):
    """Where the browser has no room for the file, one error in words, and no storage is left."""
    context.new_cdp_session(visit(server).page).send(
        "Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": 1000}
    )
    got = visit(server).run(
        """
            const options = { expert_bytes: 0, cache_files: true };
            const error = await ew.pipeline("text-generation", arg, options).catch(String);
            const root = await navigator.storage.getDirectory();
            const folder = await root.getDirectoryHandle("edgewise", { create: true });
            const files = await folder.getDirectoryHandle("files", { create: true });
            const sizes = [];
            for await (const handle of files.values()) sizes.push((await handle.getFile()).size);
            return { error, largest: Math.max(0, ...sizes) };
        """,
        url("bits"),
    )
    for part in ("OutOfMemory", "mixture-bits.edge", "not in the browser's storage", "room for"):
        assert part in got["error"], got
    assert got["largest"] < 1000, got


def test_damaged(visit, server, mixtures):
    """A wrong bit in each expert: found when the first one is read."""
    data = bytearray((mixtures / "mixture-bits.edge").read_bytes())
    found = []
    edit_package(bytes(data), lambda manifest: found.append(manifest))
    (manifest,) = found
    start = len(data) - manifest["files"]["weights"][1]
    for weight in manifest["weights"]:
        if weight.get("experts"):
            part = weight["bytes"] // EXPERTS
            for i in range(EXPERTS):
                data[start + weight["offset"] + i * part + 5] ^= 4
    (mixtures / "damaged.edge").write_bytes(data)
    got = visit(server).run(TRY, {"url": "/files/damaged.edge"})
    for text in got:
        assert "PackageError" in text and "damaged.edge" in text and "layers.0" in text, got
