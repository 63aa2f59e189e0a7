"""`fineTune` of a model that sees in a page: the run is that of Python
(tests/training/test_picture_pairs.py), which is PyTorch's.
"""

import base64
import io

import edgewise
import numpy as np
import pytest
from edgewise.cli import main

from tests.multimodal.asking import pictures
from tests.multimodal.conftest import tiny  # noqa: F401 (a fixture)
from tests.training.test_picture_pairs import ASKED, GREEDY, TASK, chat, learn, pairs

SAME = {"batch_size": 4, "sequence_length": 192, "adapters": {"r": 4, "lora_alpha": 8}}


@pytest.fixture(scope="module")
def folders(files, tiny):  # noqa: F811
    """The folders of models, packages that train, and pictures."""
    target = files / "picture-pairs"
    target.mkdir()
    options = ["--train", "lora", "--lora-r", "4", "--lora-alpha", "8"]
    options += ["--sequence-length", "192"]
    for name in ("smolvlm", "gemma3"):
        root = str(tiny(name).root)
        main(["build", "--task", TASK, root, *options, "-o", str(target / f"{name}.edge")])
    for i, picture in enumerate(pictures(3)):
        data = io.BytesIO()
        picture.save(data, "PNG")
        (target / f"{i}.png").write_bytes(data.getvalue())
    return {name: tiny(name).root for name in ("smolvlm", "gemma3")}


LEARN = """
    const vlm = await ew.pipeline("image-text-to-text", `/files/picture-pairs/${arg.name}.edge`);
    const image = (i) => `/files/picture-pairs/${i}.png`;
    const pairs = arg.asked.map(([prompt, answer], i) => ({ image: image(i), prompt, answer }));
    const options = { max_steps: arg.steps, learning_rate: arg.rate };
    const answers = async () => {
      const made = [];
      for (const [i, { prompt }] of pairs.entries()) {
        const text = { type: "text", text: prompt };
        const content = [{ type: "image", image: image(i) }, text];
        const chat = [{ role: "user", content }];
        const [one] = await vlm(chat, { ...arg.greedy, return_tensors: true });
        made.push(one.generated_token_ids);
      }
      return made;
    };
    const before = await answers();
    const result = await ew.fineTune(vlm, pairs, { ...options, evaluation: pairs.slice(0, 1) });
    const after = await answers();
    const saved = await vlm.saveAdapter("adapter");
    const files = await Promise.all(
      saved.map(async (file) => {
        const bytes = new Uint8Array(await file.arrayBuffer());
        return [file.name, btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""))];
      }),
    );
    await vlm.setAdapter(null);
    const without = await answers();
    await vlm.loadAdapter("again", saved);
    await vlm.setAdapter("again");
    const again = await answers();
    const errors = [];
    const bad = [
      [[], {}],
      [["one"], {}],
      [[pairs[0], { ...pairs[0], image: new Blob(["no picture"]) }], {}],
      [[{ ...pairs[0], images: [], image: null }], {}],
      [[{ ...pairs[0], answer: " " }], {}],
      [[{ image: image(0), text: "a cat" }], {}],
      [[{ ...pairs[0], answer: "<image> <start_of_image>" }], {}],
      [[{ ...pairs[0], prompt: "a cat ".repeat(200) }], {}],
      [pairs, { call_options: { language: "en" } }],
      [pairs, { loss: "dpo" }],
      [pairs, { evaluation: [{ prompt: "a" }] }],
    ];
    for (const [given, more] of arg.bad ? bad : [])
      errors.push(await ew.fineTune(vlm, given, { ...options, ...more }).then(() => "", String));
    const whole = await ew.fineTune(vlm, pairs, { ...options, name: "other", max_steps: 4 });
    const stop = new AbortController();
    const onStep = ({ step }) => step === 2 && stop.abort();
    const run = { ...options, name: "other", checkpoint: `pictures ${arg.name}`, max_steps: 4 };
    const aborted = await ew
      .fineTune(vlm, pairs, { ...run, onStep, signal: stop.signal })
      .then(() => "", (e) => e.name);
    const rest = await ew.fineTune(vlm, pairs, { ...run, resume: true });
    const bitmap = await createImageBitmap(await (await fetch(image(0))).blob());
    const estimate = await ew.Trainer.estimate(vlm, [{ ...pairs[0], image: bitmap }], options);
    const list = vlm.adapters.map(({ name, active }) => [name, active]);
    await vlm.dispose();
    return {
      before, after, without, again, result, files, errors, aborted, list,
      whole: whole.losses, rest: rest.losses, fits: estimate.fits, took: estimate.seconds,
    };
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("smolvlm", marks=pytest.mark.family("SmolVLM", exporter="torch")),
        pytest.param("gemma3", marks=pytest.mark.family("Gemma 3 with pictures", exporter="torch")),
    ],
)
def test_answers_are_learned_as_in_python(visit, server, folders, tmp_path, name):
    given = {"asked": ASKED, "steps": 6, "rate": 3e-3, "name": name, "greedy": GREEDY}
    found = visit(server).run(LEARN, {**given, "bad": name == "smolvlm"})
    assert "error" not in found, found
    with edgewise.pipeline(TASK, folders[name]) as pipe:
        mine = learn(pipe, pairs(), **SAME, evaluation=pairs()[:1])
        np.testing.assert_allclose(found["result"]["losses"], mine.losses, atol=1e-3)
        ended = found["result"]["evaluations"][-1][1]
        assert ended == pytest.approx(mine.evaluations[-1][1], abs=1e-3)
        for file, data in found["files"]:
            (tmp_path / file).write_bytes(base64.b64decode(data))
        pipe.load_adapter(tmp_path, "page")
        pipe.set_adapter("page")
        after = [
            pipe([picture], chat(prompt), return_tensors=True, **GREEDY)[0]["generated_token_ids"]
            for picture, (prompt, _) in zip(pictures(3), ASKED)
        ]
    assert found["after"] == after
    assert found["before"] == found["without"] != found["after"] == found["again"]
    assert found["aborted"] == "Aborted" and found["rest"] == found["whole"]
    assert found["fits"] and found["took"] > 0
    assert ["again", False] in found["list"] and ["other", True] in found["list"]
    parts = (
        "pairs: there are no pairs",
        'pairs, record 1: "one" is not a pair',
        "pairs, record 2: ",
        "pairs, record 1: it has no picture",
        "pairs, record 1: answer is empty",
        "pairs, record 1: it has no answer",
        "pairs, record 1: ",
        "the first 192 tokens are all prompt",
        "language",
        "options.loss: pairs have no preferences",
        "options.evaluation, record 1: it has no image",
    )
    for error, part in zip(found["errors"], parts, strict=name == "smolvlm"):
        assert error.startswith("InputError") and part in error
