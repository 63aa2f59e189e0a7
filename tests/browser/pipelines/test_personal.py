"""personalize in a page: the heads are those of Python, and Python reads them."""

import base64
import json

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from edgewise import personalize, pipeline  # noqa: E402
from edgewise.cli import main  # noqa: E402
from edgewise.errors import InputError  # noqa: E402
from edgewise.host.heads.fit import fit  # noqa: E402
from edgewise.host.pipelines.personal.files import read_head  # noqa: E402

from tests.pipelines import tiny, tiny_audio, tiny_images  # noqa: E402

TEXTS = {"fox": tiny.TEXTS[:1] + ["a lazy dog"], "phone": [tiny.TEXTS[2], "a broken phone"]}
COUNT = 5
SHADES = {
    label: [
        np.clip(
            np.random.default_rng([c, i]).normal(100 + 30 * np.eye(3)[c], 60, (40, 40, 3)), 0, 255
        ).astype(np.uint8)
        for i in range(8)
    ]
    for c, label in enumerate(("warm", "cool"))
}
LORA = {"rank": 4, "steps": 9, "learning_rate": 1e-2, "evaluate_every": 3}


@pytest.fixture(scope="module")
def folder(files):
    """A tiny ViT and a tiny BERT, their packages, and pictures of three colors."""
    root = files / "personal"
    root.mkdir()
    tiny_images.make(root / "vit", "vit")
    tiny.as_sentence_transformer(
        tiny.make(root / "bert", "bert", "base"), {"pooling_mode_mean_tokens": True}
    )
    tiny.make(root / "sequence", "bert", "sequence")
    for name, task in (("vit", "image-classification"), ("bert", "feature-extraction")):
        main(["build", "--task", task, "--personalize", str(root / name), "-o"]
             + [str(root / f"{name}.edge")])  # fmt: skip
    main(["build", "--task", "image-classification", str(root / "vit"), "-o"]
         + [str(root / "plain.edge")])  # fmt: skip
    rng = np.random.default_rng(0)
    for c, color in enumerate(("red", "green", "blue")):
        for i in range(COUNT):
            pixels = rng.normal(70, 40, (48, 48, 3)) + np.eye(3)[c] * 120
            picture = np.clip(pixels, 0, 255).astype(np.uint8)
            Image.fromarray(picture).save(root / f"{color}{i}.png")
    return root


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


START = """
    const at = (color, ...ids) => ids.map((i) => `/files/personal/${color}${i}.png`);
    const text = async (blob) => {
      const bytes = new Uint8Array(await blob.arrayBuffer());
      return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
    };
"""


def test_the_one_file_teaches_with_the_part_beside_it(page):
    page.page.evaluate("async () => void (window.ew = await import('/edgewise.inline.js'))")
    found = page.run(
        START
        + """
        const see = await ew.pipeline("image-classification", "/files/personal/vit.edge");
        const mine = await ew.personalize(see, { red: at("red", 0, 1), blue: at("blue", 0, 1) });
        const [{ label }] = await mine(at("blue", 3)[0]);
        await see.dispose();
        return [label, mine.info.labels];
        """
    )
    assert found == ["blue", {"red": 2, "blue": 2}]
    assert len(page.asked("part-heads.js")) == 1


# long: one page does what a user of the room does, and each result is compared
def test_pictures(page, folder):
    found = page.run(
        START
        + """
        const see = await ew.pipeline("image-classification", "/files/personal/vit.edge");
        const before = await see(at("red", 4)[0]);
        const mine = await ew.personalize(
          see,
          { red: at("red", 0, 1, 2), green: at("green", 0, 1, 2, 3) },
          { other: at("blue", 0, 1), validation_split: 0.4, seed: 5, name: "colors" },
        );
        const out = { info: mine.info, file: await text(await mine.save()) };
        out.one = await mine(at("green", 4)[0]);
        out.two = await mine(at("red", 3, 4), { top_k: 1, function_to_apply: "none" });
        async function* all() { yield* at("blue", 3); }
        for await (const labels of mine(all(), { top_k: 1 })) out.streamed = labels;
        out.measures = await mine.evaluate({ red: at("red", 3, 4), blue: at("blue", 3, 4) });
        await mine.teach({ warm: at("red", 0), cold: at("blue", 0) }, { name: "warmth" });
        out.warm = [mine.info.name, mine.info.heads, await mine(at("blue", 1)[0])];
        await mine.use("colors");
        await mine.add("black", { data: new Uint8Array(300), width: 10, height: 10, channels: 3 });
        out.added = mine.info.labels;
        await mine.remove("black");
        out.again = await mine(at("green", 4)[0]);
        out.same = JSON.stringify(before) === JSON.stringify(await see(at("red", 4)[0]));
        return out;
        """
    )
    assert found["info"]["name"] == "colors" and found["same"]
    assert found["info"]["labels"] == {"red": 3, "green": 4, "other": 2}
    assert found["info"]["losses"][-1] < found["info"]["losses"][0] / 5
    data = base64.b64decode(found["file"])
    saved = read_head(data)
    own = fit(saved.examples, saved.fields)  # by Python, of the page's features
    for ours, theirs in ((own.weight, saved.head.weight), (own.bias, saved.head.bias)):
        ours, theirs = np.frombuffer(ours, "f"), np.frombuffer(theirs, "f")
        assert np.abs(ours - theirs).max() < 2e-4 * max(1, np.abs(ours).max())
    mine = personalize(pipeline("image-classification", folder / "vit"), data)
    path = str(folder / "green4.png")
    assert [x["label"] for x in found["one"]] == [x["label"] for x in mine(path)]
    for got, want in zip(found["one"], mine(path)):
        assert got["score"] == pytest.approx(want["score"], abs=1e-4)
    [[two], _] = found["two"]
    want = mine(str(folder / "red3.png"), top_k=1, function_to_apply="none")[0]
    assert two["label"] == want["label"]
    assert two["score"] == pytest.approx(want["score"], abs=1e-3)
    held = {"red": [str(folder / f"red{i}.png") for i in (3, 4)],
            "blue": [str(folder / f"blue{i}.png") for i in (3, 4)]}  # fmt: skip
    measured = mine.evaluate(held)
    assert found["measures"]["confusion"] == measured["confusion"]
    assert found["measures"]["accuracy"] == measured["accuracy"]
    rates = found["measures"]["equal_error_rates"]
    assert {k: v["rate"] for k, v in rates.items()} == {
        k: v["rate"] for k, v in measured["equal_error_rates"].items()
    }
    examples = {c: [str(folder / f"{c}{i}.png") for i in range(n)]
                for c, n in (("red", 3), ("green", 4))}  # fmt: skip
    blue = [str(folder / f"blue{i}.png") for i in range(2)]
    pipe = mine.backbone.pipe
    taught = personalize(pipe, examples, other=blue, validation_split=0.4, seed=5)
    assert found["info"]["validation"]["confusion"] == taught.validation["confusion"]
    assert found["warm"][0] == "warmth" and found["warm"][1] == ["colors", "warmth"]
    assert found["warm"][2][0]["label"] == "cold"
    assert found["added"] == {"red": 3, "green": 4, "other": 2, "black": 1}
    for got, want in zip(found["again"], found["one"]):
        assert got["label"] == want["label"]
        assert got["score"] == pytest.approx(want["score"], abs=1e-5)
    assert found["streamed"][0]["label"] in ("red", "green", "other")


def test_embeddings_and_a_head_of_python(page, folder):
    pipe = pipeline("feature-extraction", folder / "bert")
    mine = personalize(pipe, TEXTS, c=2.0)
    near = personalize(pipe, TEXTS, method="knn", neighbors=3)
    given = {
        "texts": TEXTS,
        "file": base64.b64encode(mine.save(None)).decode(),
        "near": base64.b64encode(near.save(None)).decode(),
    }
    found = page.run(
        """
        const embed = await ew.pipeline("feature-extraction", "/files/personal/bert.edge");
        const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const mine = await ew.personalize(embed, arg.texts, { c: 2 });
        const out = { own: await mine("The fox."), many: await mine(["The fox.", "My phone!"]) };
        await mine.load(new Blob([bytes(arg.file)]), "python");
        out.python = await mine("The fox.", { top_k: null });
        await mine.use("default");
        const near = await ew.personalize(embed, new Blob([bytes(arg.near)]));
        out.near = await near("The fox.", { top_k: 2 });
        out.python = await mine("The fox.", { top_k: null }); // they do not know of each other
        const damaged = bytes(arg.file);
        damaged[400] ^= 99;
        out.errors = [];
        for (const attempt of [
          () => mine.load(new Blob([damaged.slice(0, -3)])),
          () => mine.use("x"),
          () => mine.remove("x"),
          () => mine("x", { k: 1 }),
          () => near("x", { function_to_apply: "none" }),
          () => ew.personalize(embed, {}, { method: "svm" }),
          () => ew.personalize(embed, {}, { color: 1 }),
          () => ew.personalize(embed, { a: [] }),
          () => ew.personalize(embed, { a: [3] }),
          () => ew.personalize({}, {}),
          async () => (await ew.personalize(embed, { a: "only" }))("x"),
        ])
          out.errors.push(await attempt().then(() => "none", (e) => `${e.name} ${e.message}`));
        return out;
        """,
        given,
    )
    assert "own" in found, found
    for name, pipe in (("own", mine), ("python", mine), ("near", near)):
        want = pipe("The fox.", top_k=len(found[name]))
        assert [x["label"] for x in found[name]] == [x["label"] for x in want]
        for got, wanted in zip(found[name], want):
            assert got["score"] == pytest.approx(wanted["score"], abs=1e-4)
    assert [len(x) for x in found["many"]] == [1, 1]
    kinds = [text.split(" ")[0] for text in found["errors"]]
    assert kinds == ["ModelError"] + ["InputError"] * 10, json.dumps(found["errors"], indent=1)
    assert "alone" in found["errors"][-1]


def test_options_and_the_life_of_a_head(page, folder):
    """Each option is checked; a head with one label so far is kept, in Python, too."""
    found = page.run(
        """
        const embed = await ew.pipeline("feature-extraction", "/files/personal/bert.edge");
        const text = async (blob) => {
          const bytes = new Uint8Array(await blob.arrayBuffer());
          return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
        };
        const mine = await ew.personalize(embed, {}, { name: "topics", c: 2 });
        await mine.add("fox", arg.fox);
        const file = await mine.save();
        const out = { name: mine.info.name, alone: await text(file) };
        const again = await ew.personalize(embed, file);
        out.names = [again.info.name, again.info.labels];
        await again.add("phone", arg.phone);
        await mine.add("phone", arg.phone);
        out.same = [await mine("The fox."), await again("The fox.")];
        out.errors = [];
        const controller = new AbortController();
        controller.abort();
        for (const attempt of [
          () => ew.personalize(embed, file, { c: 3 }),
          () => ew.personalize(embed, file, { other: ["x"] }),
          () => ew.personalize(embed, arg, { other: "x" }),
          () => mine.teach(arg, { seed: 0.5 }),
          () => mine.teach(arg, { validation_split: 2 }),
          () => mine.teach(arg, { name: "" }),
          () => mine.teach(arg, { c: 3 }),
          () => mine.load("file"),
          () => mine.load(file, "x", { signal: controller.signal }),
        ])
          out.errors.push(await attempt().then(() => "none", (e) => `${e.name} ${e.message}`));
        await mine.dispose();
        out.gone = await mine("The fox.").catch((e) => e.message);
        out.still = (await again("The fox."))[0].label;
        return out;
        """,
        TEXTS,
    )
    assert "name" in found, found
    assert found["name"] == "topics" and found["names"] == ["topics", {"fox": 2}]
    assert found["same"][0] == found["same"][1] and found["still"] == found["same"][0][0]["label"]
    assert "disposed" in found["gone"]
    kinds = [text.split(" ")[0] for text in found["errors"]]
    assert kinds == ["InputError"] * 8 + ["Aborted"], json.dumps(found["errors"], indent=1)
    assert "no effect" in found["errors"][0] and "options.seed" in found["errors"][3]
    mine = personalize(pipeline("feature-extraction", folder / "bert"),
                       base64.b64decode(found["alone"]))  # fmt: skip
    with pytest.raises(InputError, match="'fox' alone"):
        mine("The fox.")
    with pytest.raises(InputError, match="'fox' alone"):
        mine.export("fox.onnx")
    mine.add("phone", TEXTS["phone"])
    got = mine("The fox.", top_k=1)[0]
    assert got["label"] == found["still"]
    assert got["score"] == pytest.approx(found["same"][0][0]["score"], abs=1e-4)


def test_adapters_are_those_of_python(page, folder):
    main(["build", "--task", "image-classification", "--personalize", "--train", "lora"]
         + ["--lora-r", "4", str(folder / "vit"), "-o", str(folder / "lora.edge")])  # fmt: skip
    made = tiny.with_embedding(tiny.make(folder / "embedding", "bert", "base"))
    tiny.as_sentence_transformer(made, {"pooling_mode_mean_tokens": True})
    main(["build", "--task", "feature-extraction", str(made), "-o", f"{made}.edge"])
    for label, pixels in SHADES.items():
        for i, picture in enumerate(pixels):
            Image.fromarray(picture).save(folder / f"{label}{i}.png")
    found = page.run(
        START
        + """
        const see = await ew.pipeline("image-classification", "/files/personal/lora.edge");
        const ids = [0, 1, 2, 3, 4, 5, 6, 7];
        const data = { warm: at("warm", ...ids), cool: at("cool", ...ids) };
        const mine = await ew.personalize(see, data, { lora: arg, seed: 1 });
        const out = { lora: mine.info.lora, file: await text(await mine.save()) };
        out.labels = await mine(at("red", 4)[0]);
        await mine.teach(data, { name: "plain" });
        out.plain = mine.info.lora;
        await mine.use("default");
        out.again = [mine.info.lora.kept, await mine(at("red", 4)[0])];
        await mine.add("warm", at("red", 4));
        const errors = [{ rank: 8 }, { step: 1 }, { patience: 0 }, 3].map((lora) =>
          mine.teach(data, { lora }).catch((e) => `${e.name}: ${e.message}`),
        );
        out.errors = await Promise.all(errors);
        const plain = await ew.pipeline("image-classification", "/files/personal/vit.edge");
        out.errors.push(await ew.personalize(plain, data, { lora: true }).catch((e) => e.message));
        const embed = await ew.pipeline("feature-extraction", "/files/personal/embedding.edge");
        const vectors = [await embed("the fox"), await embed("the fox", { pooling: "mean" })];
        out.vectors = vectors.map(({ data }) => [...data]);
        return out;
        """,
        LORA,
    )
    embed = pipeline("feature-extraction", folder / "embedding")
    for got, options in zip(found["vectors"], ({}, {"pooling": "mean"})):  # of the graph, and not
        assert got == pytest.approx(embed("the fox", **options), abs=1e-4)
    data = base64.b64decode(found["file"])
    pipe = pipeline("image-classification", folder / "vit")
    own = personalize(pipe, SHADES, lora=LORA, seed=1)
    assert found["lora"]["kept"] is own.lora["kept"] is True and found["plain"] is None
    for name in ("losses", "held_out_losses"):
        assert found["lora"][name] == pytest.approx(own.lora[name], rel=1e-3, abs=1e-5)
    ours, theirs = read_head(own.save(None)).adapters, read_head(data).adapters
    assert ours.layout == theirs.layout
    ours, theirs = (np.frombuffer(x.data, "f") for x in (ours, theirs))
    assert np.abs(ours - theirs).max() < 1e-3 * np.abs(ours).max()
    mine, path = personalize(pipe, data), str(folder / "red4.png")
    for got, want in zip(found["labels"], mine(path)):
        assert got["label"] == want["label"]
        assert got["score"] == pytest.approx(want["score"], abs=1e-4)
    assert found["again"] == [True, found["labels"]]
    for text, what in zip(
        found["errors"], ("rank 4", "There are", "positive", "no set", "--train")
    ):
        assert what in text, text


# long: Python starts four times in the page, to compile two models and to export them
def test_models_that_the_page_compiles_and_exports(page, folder):
    found = page.run(
        """
        const text = async (blob) => {
          const bytes = new Uint8Array(await blob.arrayBuffer());
          return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
        };
        const personal = { personalize: true, dtype: "fp32" };
        const at = "/files/personal/";
        const classify = await ew.pipeline("text-classification", `${at}sequence/`, personal);
        const mine = await ew.personalize(classify, arg);
        const out = { mine: await mine("The fox.", { top_k: 2 }) };
        const file = new File([await mine.export("edge")], "mine.edge");
        const opened = await ew.pipeline("text-classification", file);
        out.opened = await opened("The fox.", { top_k: 2 });
        const embed = await ew.pipeline("feature-extraction", `${at}bert/`, personal);
        const topics = await ew.personalize(embed, arg);
        out.topics = await topics("The lazy phone.", { top_k: 2 });
        out.onnx = await text(await topics.export("onnx"));
        const plain = await ew.pipeline("image-classification", `${at}plain.edge`);
        const ready = await ew.pipeline("feature-extraction", `${at}bert.edge`);
        const near = await ew.personalize(embed, arg, { method: "knn" });
        const one = await ew.personalize(embed, { fox: arg.fox });
        const abort = AbortSignal.abort();
        const attempts = [
          () => ew.personalize(plain, {}),
          async () => (await ew.personalize(ready, arg)).export("onnx"),
          () => near.export("edge"),
          () => one.export("onnx"),
          () => topics.export("safetensors"),
          () => topics.export("onnx", { signal: abort }),
        ];
        out.errors = [];
        for (const attempt of attempts)
          out.errors.push(await attempt().then(() => "none", (e) => `${e.name} ${e.message}`));
        return out;
        """,
        TEXTS,
    )
    mine = personalize(pipeline("text-classification", folder / "sequence"), TEXTS)
    for got, want in zip(found["mine"], mine("The fox.", top_k=2)):
        assert got["label"] == want["label"]
        assert got["score"] == pytest.approx(want["score"], abs=1e-3)
    assert len(found["opened"]) == 2
    for got, want in zip(found["opened"], found["mine"]):
        assert got == {"label": want["label"], "score": pytest.approx(want["score"], abs=1e-5)}
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(
        base64.b64decode(found["onnx"]), providers=["CPUExecutionProvider"]
    )
    tokenizer = pipeline("feature-extraction", folder / "bert").tokenizer
    ids = np.array([tokenizer.encodings("The lazy phone.")[0].ids])
    every = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
    feeds = {i.name: every[i.name] for i in session.get_inputs()}
    (logits,) = session.run(["logits"], feeds)[0]
    scores = np.exp(logits) / np.exp(logits).sum()
    labels = json.loads(session.get_modelmeta().custom_metadata_map["id2label"])
    got = {labels[str(i)]: float(score) for i, score in enumerate(scores)}
    assert got == pytest.approx({x["label"]: x["score"] for x in found["topics"]}, abs=1e-5)
    kinds = [text.split(" ")[0] for text in found["errors"]]
    assert kinds == ["InputError"] * 5 + ["Aborted"], json.dumps(found["errors"], indent=1)
    words = ["--personalize", "from a package", "no head", "'fox' alone", "format"]
    assert all(word in text for word, text in zip(words, found["errors"])), found["errors"]


def test_sounds(page, folder):
    tiny_audio.make(folder / "ast", "AST")
    main(["build", "--task", "audio-classification", "--personalize", str(folder / "ast"), "-o"]
         + [str(folder / "ast.edge")])  # fmt: skip
    tiny_audio.make_voices(folder / "voice", "Wav2Vec2")
    main(["build", "--task", "speaker-verification", "--personalize", "--train", "lora"]
         + ["--lora-r", "4", "--max-length", "1", str(folder / "voice"), "-o"]
         + [str(folder / "voice.edge")])  # fmt: skip
    rng = np.random.default_rng(0)
    time = np.arange(8000) / 16000
    sounds = {
        name: [
            (0.3 * np.sin(2 * np.pi * pitch * time + rng.uniform(0, 6))).astype("f").tolist()
            for _ in range(3)
        ]
        for name, pitch in (("low", 200), ("high", 1500))
    }
    found = page.run(
        """
        const hear = await ew.pipeline("audio-classification", "/files/personal/ast.edge");
        const of = (list) => list.map((samples) => Float32Array.from(samples));
        const mine = await ew.personalize(hear, {
          low: of(arg.low.slice(0, 2)),
          high: of(arg.high.slice(0, 2)),
        });
        const labels = [await mine(of(arg.low)[2]), await mine(of(arg.high)[2])];
        const who = await ew.pipeline("speaker-verification", "/files/personal/voice.edge");
        const voices = { low: of(arg.low), high: of(arg.high) };
        const lora = { steps: 3, learning_rate: 1e-2, evaluate_every: 1 };
        const adapted = await ew.personalize(who, voices, { lora, seed: 2 });
        const heard = await adapted(voices.low[0]);
        voices.high.push(new Float32Array(24000).fill(0.1));
        const long = await adapted.teach(voices, { lora }).catch((e) => e.message);
        return [...labels, adapted.info.lora, heard, long];
        """,
        sounds,
    )
    *found, lora, heard, long = found
    assert "reads an example in parts" in long
    pipe = pipeline("speaker-verification", folder / "voice")
    options = {"rank": 4, "steps": 3, "learning_rate": 1e-2, "evaluate_every": 1}
    mine = personalize(pipe, {n: [np.array(x, "f") for x in s] for n, s in sounds.items()},
                       lora=options, seed=2)  # fmt: skip
    assert lora["kept"] == mine.lora["kept"]
    for name in ("losses", "held_out_losses"):
        assert lora[name] == pytest.approx(mine.lora[name], rel=1e-2, abs=1e-4)
    rates = lora["before"]["equal_error_rates"]
    wanted = mine.lora["before"]["equal_error_rates"]
    assert {n: x["rate"] for n, x in rates.items()} == {n: x["rate"] for n, x in wanted.items()}
    for got, want in zip(heard, mine(np.array(sounds["low"][0], "f"))):
        assert got["label"] == want["label"]
        assert got["score"] == pytest.approx(want["score"], abs=1e-2)
    pipe = pipeline("audio-classification", folder / "ast")
    arrays = {name: [np.array(x, "f") for x in given] for name, given in sounds.items()}
    mine = personalize(pipe, {name: given[:2] for name, given in arrays.items()})
    for got, given in zip(found, arrays.values()):
        want = mine(given[2])
        assert [x["label"] for x in got] == [x["label"] for x in want]
        assert got[0]["score"] == pytest.approx(want[0]["score"], abs=2e-3)


def test_the_room_of_the_demo(visit, server, folder):
    """Teaches two things by files and tries another picture; saves, and reads what it knows."""
    v = visit(server)
    v.page.goto(f"{server}/demo/see.html")
    v.page.wait_for_function("!document.getElementById('camera').disabled")
    for i, color in enumerate(("red", "green")):
        thing = v.page.locator(".thing").nth(i)
        thing.locator("input[type=text]").fill(color)
        pictures = [str(folder / f"{color}{k}.png") for k in range(4)]
        thing.locator("input[type=file]").set_input_files(pictures)
    v.page.wait_for_function("document.getElementById('figure-examples').textContent === '8'")
    v.page.wait_for_function("!document.getElementById('save').disabled")
    v.page.set_input_files("#try", str(folder / "green4.png"))
    v.page.wait_for_function("document.body.dataset.seen === 'green'")
    assert v.page.locator("#scores tr").count() == 2
    with v.page.expect_download() as download:
        v.page.click("#save")
    saved = read_head(download.value.path())
    assert saved.examples.labels == ["red", "green"] and len(saved.examples) == 8
    v.page.reload()
    v.page.wait_for_function("!document.getElementById('camera').disabled")
    v.page.set_input_files("#open", download.value.path())
    v.page.wait_for_function("document.getElementById('note').textContent.includes('green')")
    v.page.set_input_files("#try", str(folder / "red4.png"))
    v.page.wait_for_function("document.body.dataset.seen === 'red'")
    v.page.set_input_files("#try", str(folder / "vit.edge"))
    v.page.wait_for_function("!document.getElementById('error').hidden")
    assert "no picture" in v.page.inner_text("#error-what")
