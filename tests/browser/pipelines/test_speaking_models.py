"""text-to-speech in a page by language models, SpeechT5 and Supertonic, as in Python."""

import json

import numpy as np
import pytest
from edgewise import pipeline
from pipelines.sounds import tiny_codecs, tiny_graph_speech, tiny_speakers
from pipelines.sounds.packed import packed


@pytest.fixture(scope="module")
def folder(files):
    made = files / "speakers"
    tokens, follows, _ = tiny_speakers.orpheus(9)
    tiny_speakers.make_bigrams(made / "orpheus", tokens, follows, "<|begin_of_text|>")
    tiny_codecs.make_snac(made / "snac", 4096)
    for name in ("speecht5", "supertonic"):
        (made / name).mkdir()
    tiny_graph_speech.make_speecht5(made / "speecht5", True)
    tiny_graph_speech.make_supertonic(made / "supertonic")
    for name in ("speecht5", "supertonic"):
        packed(made / name, "text-to-speech")
    return made


def test_language_models(visit, server, folder):
    found = visit(server).run(
        """
            const speak = await ew.pipeline("text-to-speech", "/files/speakers/orpheus/", {
              codec: "/files/speakers/snac/",
            });
            const options = { voice: "tara", generate_kwargs: { do_sample: false } };
            const whole = await speak("hello there", options);
            const parts = [];
            for await (const part of speak.stream("hello there.", options))
              parts.push([part.text, [...part.audio]]);
            const messages = [];
            for (const wrong of [{ voice: 3 }, { speed: 2 }])
              await speak("a", wrong).catch((e) => messages.push(e.message));
            await speak.dispose();
            return { audio: [...whole.audio], rate: whole.sampling_rate, parts, messages };
        """
    )
    assert "error" not in found, found
    ours = pipeline("text-to-speech", folder / "orpheus", codec=folder / "snac")
    expected = ours("hello there", voice="tara", generate_kwargs={"do_sample": False})["audio"][0]
    assert found["rate"] == 800
    np.testing.assert_allclose(found["audio"], expected, atol=1e-4)
    assert len(found["parts"]) > 1 and {text for text, _ in found["parts"]} == {"hello there."}
    joined = [x for _, audio in found["parts"] for x in audio]
    np.testing.assert_allclose(joined, expected, atol=1e-4)
    assert "no name" in found["messages"][0] and "no option 'speed'" in found["messages"][1]


@pytest.mark.family("Supertonic", exporter="torch")
@pytest.mark.family("SpeechT5", exporter="torch")
def test_models_of_several_graphs(visit, server, folder):
    rng = np.random.default_rng(3)
    style, vector = (rng.standard_normal(n).astype("f4") for n in (20, 4))
    cases = {
        "supertonic": [style.tolist(), {"num_inference_steps": 3, "speed": 0.8, "seed": 4}],
        "speecht5": [vector.tolist(), {"threshold": 1, "maxlenratio": 4}],
    }
    found = visit(server).run(
        f"""
            const results = {{}};
            const cases = Object.entries({json.dumps(cases)}).flatMap(([name, of]) =>
              ["/", ".edge"].map((end) => [`${{name}}${{end}}`, of]));
            for (const [name, [voice, options]] of cases) {{
              const speak = await ew.pipeline("text-to-speech", `/files/speakers/${{name}}`);
              const speaker_embeddings = Float32Array.from(voice);
              const made = await speak("hello", {{ ...options, speaker_embeddings }});
              const message = await speak("hello", options).catch((e) => e.message);
              results[name] = [[...made.audio], made.sampling_rate, message];
              await speak.dispose();
            }}
            return results;
        """
    )
    assert "error" not in found, found
    for name, (voice, options) in cases.items():
        ours = pipeline("text-to-speech", folder / name)
        expected = ours("hello", speaker_embeddings=np.float32(voice), **options)["audio"][0]
        for audio, rate, message in (found[f"{name}/"], found[f"{name}.edge"]):
            assert rate == 800 and "needs a voice" in message
            np.testing.assert_allclose(audio, expected, atol=1e-4)
