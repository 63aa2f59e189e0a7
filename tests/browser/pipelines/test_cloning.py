"""text-to-speech in the voice of a reference in a page, as in Python and by loops of torch."""

import json

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.logic.speech.flow import normal_numbers
from pipelines.sounds import tiny_cloning
from pipelines.sounds.packed import packed

SOUNDS = [(np.random.default_rng(n).standard_normal(n) / 3).astype("f4") for n in (700, 400)]
MODELS = {"chatterbox": tiny_cloning.Chatterbox, "pocket": tiny_cloning.Pocket}
KINDS = {
    "chatterbox": {"exaggeration": 0.8, "generate_kwargs": {"max_new_tokens": 12}},
    "pocket": {"num_inference_steps": 2, "temperature": 0.3, "seed": 9},
}


@pytest.fixture(scope="module")
def folder(files):
    made = files / "cloning"
    for name, model in MODELS.items():
        packed(model().save(made / name), "text-to-speech")
    return made


def by_torch(kind: str, ids: list[int]) -> np.ndarray:
    model = MODELS[kind]()
    if kind == "chatterbox":
        return model.speak(ids, SOUNDS[0], KINDS[kind]["exaggeration"])[0]
    return model.speak(ids, SOUNDS[0], normal_numbers(9), 0.3, 2)[0]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("chatterbox", marks=pytest.mark.family("Chatterbox", exporter="torch")),
        pytest.param("pocket", marks=pytest.mark.family("Pocket TTS", exporter="torch")),
    ],
)
def test_the_voice_of_a_reference(visit, server, folder, kind):
    """Two calls at once, lists, a voice that is kept, streams, and wrong calls among them."""
    found = visit(server).run(
        f"""
            const speak = await ew.pipeline("text-to-speech", "/files/cloning/{kind}/");
            const options = {json.dumps(KINDS[kind])};
            const [one, other] = arg.map((list) => Float32Array.from(list));
            const made = {{ messages: [] }};
            const [first, second] = await Promise.all([
              speak("hello there", {{ ...options, audio_values: one }}),
              speak(["hi", "a b c"], {{ ...options, audio_values: other }}),
            ]);
            made.first = [...first.audio];
            made.second = second.map(({{ audio }}) => [...audio]);
            made.rate = first.sampling_rate;
            const speaker_embeddings = await speak.encode_speech(one);
            for (const wrong of [
              {{}},
              {{ audio_values: one, speaker_embeddings }},
              {{ speaker_embeddings: {{ a: speaker_embeddings.audio_features }} }},
              {{ audio_values: new Float32Array() }},
              {{ audio_values: one, exaggeration: 11, temperature: 11 }},
              {{ audio_values: one, loud: 1 }},
              {{ audio_values: one, signal: AbortSignal.abort() }},
            ]) await speak("hi", wrong).catch((e) => made.messages.push(e.message));
            const streamed = {{ ...options, speaker_embeddings }};
            made.again = [...(await speak("hello there", streamed)).audio];
            const package_ = await ew.pipeline("text-to-speech", "/files/cloning/{kind}.edge");
            made.packed = [...(await package_("hello there", streamed)).audio];
            await package_.dispose();
            made.parts = [];
            for await (const {{ text, audio }} of speak.stream("hi. hi.", streamed))
              made.parts.push([text, audio.length]);
            await speak.dispose();
            return made;
        """,
        [sound.tolist() for sound in SOUNDS],
    )
    assert "error" not in found, found
    ours = pipeline("text-to-speech", folder / kind, **KINDS[kind])
    expected = by_torch(kind, ours.tokenizer.encode("hello there"))[0]
    assert found["rate"] == tiny_cloning.RATE and len(expected) > 50
    np.testing.assert_allclose(found["first"], expected, atol=1e-4)
    np.testing.assert_allclose(found["again"], expected, atol=1e-4)
    np.testing.assert_allclose(found["packed"], expected, atol=1e-4)
    for text, audio in zip(("hi", "a b c"), found["second"], strict=True):
        one = ours(text, audio_values=SOUNDS[1])["audio"][0]
        np.testing.assert_allclose(audio, one, atol=1e-4)
    assert [text for text, _ in found["parts"]] == ["hi.", "hi."]
    words = ("needs a voice", "two voices", "none of a voice", "no samples", "does not have this")
    words += ("no option 'loud'", "stopped")
    for part, message in zip(words, found["messages"], strict=True):
        assert part in message, found["messages"]
