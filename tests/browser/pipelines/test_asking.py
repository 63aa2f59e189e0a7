"""image-text-to-text in a page, beside transformers: from a package, and compiled in the page."""

import json
import re
import shutil

import pytest
from edgewise.cli import main

from tests.multimodal.asking import answered, messages, pictures, with_bytes
from tests.multimodal.tiny import MODELS

MODEL = "idefics3"
ASK = """
    const options = arg.options ?? {};
    const p = await ew.pipeline("image-text-to-text", arg.model, options);
    const greedy = { max_new_tokens: 10, do_sample: false };
    const found = [];
    for (const count of [0, 1, 2]) {
      const parts = Array.from({ length: count }, (_, i) => ({
        type: "image", image: `/files/asking/${i}.png`,
      }));
      const text = { type: "text", text: "what is in this picture ?" };
      const chat = [{ role: "user", content: [...parts, text] }];
      const [one] = await p(chat, { ...greedy, return_tensors: true });
      found.push(one.generated_token_ids);
    }
    const { origin } = p.info;
    await p.dispose();
    return { found, origin };
"""


@pytest.fixture(scope="module")
def model(files, tmp_path_factory):
    """A tiny model, with its folder and package among the files, and pictures."""
    made = MODELS[MODEL](tmp_path_factory.mktemp(MODEL))
    target = files / "asking"
    shutil.copytree(made.root, target / MODEL)
    with_bytes(target / MODEL)
    package = str(target / f"{MODEL}.edge")
    main(["build", "--task", "image-text-to-text", str(target / MODEL), "-o", package])
    for i, picture in enumerate(pictures(2)):
        picture.save(target / f"{i}.png")
    return made


@pytest.fixture
def page(visit, server, model):
    return visit(server)


def wanted(model):
    return [answered(model, messages(n), pictures(n), 10) for n in (0, 1, 2)]


@pytest.mark.family("Idefics3", exporter="torch")
def test_a_package_answers_as_transformers(page, model):
    found = page.run(ASK, {"model": f"/files/asking/{MODEL}.edge"})
    assert "error" not in found, found
    assert found == {"found": wanted(model), "origin": "package"}


def test_a_folder_is_compiled(page, model):
    found = page.run(ASK, {"model": f"/files/asking/{MODEL}/", "options": {"dtype": "fp32"}})
    assert "error" not in found, found
    assert found == {"found": wanted(model), "origin": "compiled"}


def test_a_template_may_be_an_object(page, files, model):
    root = files / "asking/object"
    shutil.copytree(model.root, root)
    template = (root / "chat_template.jinja").read_text()
    (root / "chat_template.jinja").unlink()
    (root / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    config = json.loads((root / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (root / "tokenizer_config.json").write_text(json.dumps(config))
    found = page.run(ASK, {"model": "/files/asking/object/", "options": {"dtype": "fp32"}})
    assert "error" not in found, found
    assert found == {"found": wanted(model), "origin": "compiled"}


# long: a script of a page
def test_forms_streams_and_errors(page, model):
    found = page.run(
        """
            const p = await ew.pipeline("image-text-to-text", arg);
            const greedy = { max_new_tokens: 6, do_sample: false };
            const url = "/files/asking/0.png";
            const file = await (await fetch(url)).blob();
            const bitmap = await createImageBitmap(file);
            const text = { type: "text", text: "what is in this picture ?" };
            const chat = (image) => [
              { role: "user", content: [{ type: "image", image }, text] },
            ];
            const streamed = [];
            const streamer = (piece) => streamed.push(piece);
            const [first] = await p(chat(file), { ...greedy, streamer });
            const last = first.generated_text.at(-1);
            const [only] = await p(chat(bitmap), { ...greedy, return_full_text: false });
            const open = [{ role: "user", content: [{ type: "image" }, text] }];
            const [filled] = await p(open, { ...greedy, images: url, return_full_text: false });
            const two = await p([chat(url), chat(url)], greedy);
            const [plain] = await p({ images: [url], text: "<image> a cat" }, greedy);
            const errors = [];
            for (const [input, options] of [
              [open, {}],
              [open, { images: [url, url] }],
              [{ text: "<image><image>", images: url }, {}],
              [chat(new Blob(["no picture"])), {}],
              [chat(7), {}],
              [7, {}],
              [chat(url), { picture: 1 }],
              [[{ role: "user", content: Array(100).fill({ type: "image", image: url }) }], {}],
            ])
              errors.push(await p(input, { ...greedy, ...options }).then(
                () => "",
                (e) => `${e.name}: ${e.message}`,
              ));
            const stop = new AbortController();
            stop.abort();
            errors.push(await p(chat(url), { signal: stop.signal }).catch((e) => e.name));
            const [again] = await p(chat(url), greedy);
            await p.dispose();
            return {
              same: first.input_text[0].content[0].image === file,
              texts: [last.content, only.generated_text, filled.generated_text,
                streamed.join(""), two[1][0].generated_text.at(-1).content,
                again.generated_text.at(-1).content],
              plain: plain.generated_text.startsWith("<image> a cat"),
              errors,
            };
        """,
        f"/files/asking/{MODEL}.edge",
    )
    assert "error" not in found, found
    assert found["same"]
    assert found["plain"]
    assert len(set(found["texts"])) == 1, found["texts"]
    assert found["texts"][0]
    for error, words in zip(
        found["errors"],
        [
            "a part of a message has no picture",
            "1 of the pictures have no place",
            "2 placeholders '<image>', and 1 pictures",
            "the picture cannot be decoded",
            "the input is no picture",
            "neither text nor chat messages",
            "no option 'picture'",
            "a sequence has at most",
            "Aborted",
        ],
        strict=True,
    ):
        assert words in error


def test_questions(page, model):
    """visual-question-answering with a model that writes its answers."""
    found = page.run(
        """
            const p = await ew.pipeline("visual-question-answering", arg);
            const greedy = { max_new_tokens: 10, do_sample: false };
            const question = "what is in this picture ?";
            const urls = [0, 1].map((i) => `/files/asking/${i}.png`);
            const one = await p(urls[0], question, greedy);
            const whole = await p({ image: urls[1], question }, greedy);
            const all = await p(urls, [question], greedy);
            const errors = [];
            for (const given of [
              [urls[0], ""],
              [urls[0]],
              [urls[0], question, { return_full_text: true }],
              [new Blob(["no picture"]), question],
            ])
              errors.push(await p(...given).then(() => "", (e) => `${e.name}: ${e.message}`));
            const again = await p(urls[0], question, greedy);
            const { task, info: { origin } } = p;
            await p.dispose();
            return { one, whole, all, again, task, origin, errors };
        """,
        f"/files/asking/{MODEL}.edge",
    )
    assert "error" not in found, found
    answers = []
    for picture in pictures(2):
        ids = answered(model, messages(1), [picture], 10)
        text = model.processor.tokenizer.decode(ids[-10:], skip_special_tokens=True)
        answers.append([{"answer": text.strip()}])
    assert answers[0] != answers[1]
    assert [found["one"], found["whole"]] == answers
    assert found["all"] == answers
    assert found["again"] == answers[0]
    assert (found["task"], found["origin"]) == ("visual-question-answering", "package")
    words = ["the question is no text", "the question is no text", "no such option", "decoded"]
    for error, wanted_words in zip(found["errors"], words, strict=True):
        assert error.startswith("InputError") and wanted_words in error


@pytest.mark.parametrize("form", ["package", "compiled"])
def test_documents_are_asked_about(page, model, form):
    """document-question-answering with a model that writes its answers."""
    found = page.run(
        """
            const p = await ew.pipeline("document-question-answering", arg.model, arg.options);
            const greedy = { max_new_tokens: 10, do_sample: false };
            const question = "what is in this picture ?";
            const urls = [0, 1].map((i) => `/files/asking/${i}.png`);
            const all = await p(urls, question, greedy);
            let streamed = "";
            const streamer = (piece) => { streamed += piece; };
            const one = await p(urls[0], question, { ...greedy, streamer });
            const errors = [];
            for (const given of [
              [urls[0], ""],
              [urls[0]],
              [urls[0], question, { return_full_text: true }],
              [urls[0], question, { prompt: "x" }],
              [new Blob(["no picture"]), question],
            ])
              errors.push(await p(...given).then(() => "", (e) => `${e.name}: ${e.message}`));
            const again = await p(urls[1], question, greedy);
            const { task, info: { origin } } = p;
            await p.dispose();
            return { all, one, streamed, again, task, origin, errors };
        """,
        {"model": f"/files/asking/{MODEL}.edge"}
        if form == "package"
        else {"model": f"/files/asking/{MODEL}/", "options": {"dtype": "fp32"}},
    )
    assert "error" not in found, found
    answers = []
    for picture in pictures(2):
        ids = answered(model, messages(1), [picture], 10)
        text = model.processor.tokenizer.decode(ids[-10:], skip_special_tokens=True)
        answers.append([{"answer": text.strip()}])
    assert answers[0] != answers[1]
    assert found["all"] == answers
    assert [found["one"], found["again"]] == answers
    assert found["streamed"].strip() == answers[0][0]["answer"]
    assert (found["task"], found["origin"]) == ("document-question-answering", form)
    words = ["question is no text", "question is no text", "no such option", "prompt", "decoded"]
    for error, wanted_words in zip(found["errors"], words, strict=True):
        assert error.startswith("InputError") and wanted_words in error


# long: a script of a page
def test_the_prompt_api_takes_pictures(page, model):
    """Sessions of edgewise/prompt-api on this pipeline: answers and tokens are transformers'."""
    found = page.run(
        """
            const { createLanguageModel } = await import("/prompt-api.js");
            const p = await ew.pipeline("image-text-to-text", arg.model);
            const greedy = { max_new_tokens: 10, do_sample: false };
            const LanguageModel = createLanguageModel(p, greedy);
            const expectedInputs = [{ type: "image", languages: ["en"] }];
            const file = await (await fetch("/files/asking/0.png")).blob();
            const bitmap = await createImageBitmap(file);
            const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
            canvas.getContext("2d").drawImage(bitmap, 0, 0);
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const padded = new Uint8Array(8 + file.size);
            padded.set(new Uint8Array(await file.arrayBuffer()), 8);
            const text = { type: "text", value: "what is in this picture ?" };
            const chat = (value) => [{ role: "user", content: [{ type: "image", value }, text] }];
            const create = (options) => LanguageModel.create({ expectedInputs, ...options });
            const values = [file, bitmap, canvas, pixels, padded.subarray(8)];
            const answers = [];
            for (const value of values) answers.push(await (await create()).prompt(chat(value)));
            const session = await create();
            const measured = await session.measureContextUsage(chat(file));
            await session.append(chat(canvas));
            canvas.getContext("2d").fillRect(0, 0, 9, 9); // the session has its own
            const usage = session.contextUsage;
            const copy = await session.clone();
            const streamed = [];
            for await (const piece of session.promptStreaming([])) streamed.push(piece);
            const later = [await copy.prompt([]), copy.contextUsage === session.contextUsage];
            const begun = await create({ initialPrompts: chat(file) });
            const beginning = begun.contextUsage;
            const constraint = { responseConstraint: /[1-9]{3}/ };
            const shaped = await begun.prompt(text.value, constraint);
            const failures = [];
            for (const work of [
              async () => (await LanguageModel.create()).prompt(chat(file)),
              () => session.prompt([{ role: "assistant", content: chat(file)[0].content }]),
              () => session.prompt(chat(padded)),
              () => session.prompt(chat("no picture")),
              () => create({ expectedInputs: [{ type: "audio" }] }),
              () => create({ expectedOutputs: [{ type: "tool-call" }] }),
              () => session.append(chat(file).concat(Array(99).fill(chat(file)[0]))),
            ])
              failures.push(await work().then(() => "", (e) => e.name));
            const available = [await LanguageModel.availability({ expectedInputs }),
              await LanguageModel.availability(), session.contextWindow === p.info.capacity];
            await p.dispose();
            return { answers, measured, usage, streamed: streamed.join(""), later, shaped,
              begun: beginning, failures, available };
        """,
        {"model": f"/files/asking/{MODEL}.edge"},
    )
    assert "error" not in found, found
    ids = answered(model, messages(1), pictures(1), 10)
    decode = model.processor.tokenizer.decode
    answer = decode(ids, skip_special_tokens=True)[
        len(decode(ids[:-10], skip_special_tokens=True)) :
    ]
    assert found["answers"] == [answer] * 5
    text = model.processor.apply_chat_template(messages(1), add_generation_prompt=False)
    count = len(model.processor(text=text, images=pictures(1))["input_ids"][0])
    assert found["measured"] == found["usage"] == found["begun"] == count
    assert re.fullmatch("[1-9]{3}", found["shaped"])
    assert found["streamed"] == found["later"][0] and found["later"][1]
    assert found["failures"] == [
        "NotSupportedError",
        "NotSupportedError",
        "InvalidStateError",
        "TypeError",
        "NotSupportedError",
        "NotSupportedError",
        "QuotaExceededError",
    ]
    assert found["available"] == ["available", "available", True]
