"""Chats and files as training data in a page: the tokens and losses are those of Python."""

import json

import edgewise
import pytest

from tests.conformance.vectors import vectors

from ..conftest import MODEL
from .harness import SEQUENCE, train

VECTORS = vectors("training_chats")
TEXTS = ["The owl sat on the roof.", "A robot <went> home to the big house. " * 8]
RECORDS = [{"messages": chat} for chat in VECTORS["chats"].values()]


@pytest.fixture(scope="module")
def in_python():
    """A Trainer whose tokenizer has the chat template of the page's model."""
    from edgewise.text import Tokenizer

    files = {p.name: p.read_bytes() for p in MODEL.glob("*.json")}
    files["chat_template.jinja"] = VECTORS["templates"]["marked"].encode()
    trainer = edgewise.Trainer(
        str(MODEL),
        adapters={"r": 4},
        batch_size=2,
        sequence_length=SEQUENCE,
        tokenizer=Tokenizer.from_files(files.get, str(MODEL)),
    )
    yield trainer
    trainer.free()


def test_chats_are_learned_as_in_python(visit, server, trainable, in_python):
    got = train(
        visit(server),
        """
            const records = await ew.readData(arg.lines);
            const seen = await ew.previewData(p, records, { count: 2 });
            const errors = [];
            for (const wrong of [[], [{ messages: [] }], [{ messages: [{ role: "robot" }] }], [1]])
              try {
                await ew.fineTune(p, wrong, { max_steps: 1 });
              } catch (e) {
                errors.push(e.name + ": " + e.message);
              }
            const trainer = await ew.Trainer.create(p, records, {
              max_steps: 2,
              evaluation: records,
              learning_rate: 1e-2,
            });
            const { losses, evaluations } = await trainer.run();
            const { info } = trainer;
            await trainer.close();
            await p.dispose();
            return { records, seen, errors, losses, evaluations, info };
        """,
        lines="\n".join(map(json.dumps, RECORDS)),
    )
    assert got["records"] == RECORDS
    cases = {c["chat"]: c for c in VECTORS["cases"] if c["template"] == "marked"}
    for tokens, chat in zip(got["seen"], VECTORS["chats"], strict=True):
        [example] = cases[chat]["examples"]
        assert [t["learned"] for t in tokens] == [
            bool(c) and i < SEQUENCE for i, c in enumerate(example["counts"])
        ]
        assert [t["fits"] for t in tokens] == [i < SEQUENCE for i in range(len(tokens))]
    assert [[vars(t) for t in tokens] for tokens in in_python.preview(RECORDS, 2)] == got["seen"]
    assert [e.split(":")[0] for e in got["errors"]] == ["InputError"] * 4
    assert "its role is" in got["errors"][2]
    report = got["info"]["report"]
    assert report["examples"] == report["truncated"] == 2
    fit = [c for c in cases.values() if any(c["examples"][0]["counts"][1:SEQUENCE])]
    assert report["dropped"] == 2 - len(fit) == 1
    assert report["lost"] == sum(
        sum(cases[chat]["examples"][0]["counts"][SEQUENCE:]) for chat in VECTORS["chats"]
    )
    assert got["evaluations"][0][1] == pytest.approx(in_python.evaluate(RECORDS), abs=1e-4)
    assert got["evaluations"][1][1] < got["evaluations"][0][1]
    history = in_python.fit(RECORDS, max_steps=1, progress=False)
    assert vars(history.report) == report


def test_texts_are_previewed_as_in_python(visit, server, trainable, in_python):
    got = train(
        visit(server),
        """
            const texts = await ew.previewData(p, arg.texts, { count: 2 });
            await p.dispose();
            return { texts, shown: [ew.previewHTML(texts), ew.previewText(texts)] };
        """,
        texts=TEXTS,
    )
    rows = in_python.preview(TEXTS, 2)
    assert [[vars(t) for t in tokens] for tokens in rows] == got["texts"]
    assert got["shown"] == [rows._repr_html_(), str(rows)]
    # texts form one stream, whose rows repeat the last token of the row before
    in_rows = ["".join(t.text for t in tokens) for tokens in rows]
    assert len(rows) == 2 and in_rows[0] + in_rows[1].removeprefix(rows[0][-1].text) == (
        in_python.tokenizer.decode(
            [i for t in TEXTS for i in [*in_python.tokenizer.encode(t), in_python.model.end]][
                : 2 * SEQUENCE - 1
            ]
        )
    )


PAIRS = [
    {
        "prompt": "Once upon a time",
        "chosen": " there was a cat.",
        "rejected": " it rained all day.",
    },
    {"prompt": "The robot said", "chosen": " hello.", "rejected": " nothing at all to the queen."},
    {"prompt": "A boat", "chosen": " went home to the moon.", "rejected": " sank."},
]
# a batch has one comparison, and KTO needs two in an update
MORE = {"kto": {"gradient_accumulation_steps": 2}}


def test_preferences_are_learned_as_in_python(visit, server, trainable):
    got = train(
        visit(server),
        """
            const made = {};
            for (const loss of ["dpo", "orpo", "kto", "simpo"]) {
              const more = arg.more[loss];
              const options = { loss, max_steps: 3, learning_rate: 1e-2, seed: 1, ...more };
              const trainer = await ew.Trainer.create(p, arg.pairs, {
                ...options,
                evaluation: arg.pairs,
              });
              const { losses, evaluations } = await trainer.run();
              await trainer.close();
              const checkpoint = { name: loss, every: 1 };
              const part = await ew.Trainer.create(p, arg.pairs, { ...options, checkpoint });
              await part.step();
              await part.close();
              const rest = { ...options, checkpoint, resume: true };
              const again = await ew.fineTune(p, arg.pairs, rest);
              made[loss] = { losses, evaluations, again: again.losses };
              await ew.deleteCheckpoint(loss);
            }
            const errors = [];
            const wrong = [
              ["text", { loss: "dpo" }],
              [arg.pairs, { loss: "ppo" }],
              [arg.pairs, { loss: "dpo", beta: 0 }],
              ["text", { beta: 1 }],
              [arg.pairs, { loss: "kto" }],
            ];
            for (const [data, options] of wrong)
              await ew.fineTune(p, data, options).catch((e) => errors.push(e.name + e.message));
            await p.dispose();
            return { made, errors };
        """,
        pairs=PAIRS,
        more=MORE,
    )
    assert [e.startswith("InputError") for e in got["errors"]] == [True] * 5, got["errors"]
    for name, result in got["made"].items():
        trainer = edgewise.Trainer(
            str(MODEL),
            name,
            adapters={"r": 4},
            batch_size=2,
            sequence_length=SEQUENCE,
            **MORE.get(name, {}),
        )
        assert result["evaluations"][0][1] == pytest.approx(trainer.evaluate(PAIRS), rel=1e-4)
        trainer.free()
        assert result["evaluations"][-1][1] < result["evaluations"][0][1]
        assert result["again"] == result["losses"]
