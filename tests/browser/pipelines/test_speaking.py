"""text-to-speech in a page, as in Python: VITS, Piper and Kokoro with one plan for all lengths."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from pipelines.sounds import tiny_voices

REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere"))
TEXTS = ("some words", "a longer text, which has more of them than the first", "no", "yes it is so")


@pytest.fixture(scope="module")
def folder(files):
    made = files / "voices"
    for name, make in (
        ("vits", tiny_voices.make_vits),
        ("piper", tiny_voices.make_piper),
        ("kokoro", tiny_voices.make_kokoro),
    ):
        (made / name).mkdir(parents=True)
        make(made / name)
        if name == "vits":  # as hubs have it
            (made / name / "onnx").mkdir()
            (made / name / "model.onnx").rename(made / name / "onnx" / "model.onnx")
        command = ["build", "--task", "text-to-speech", str(made / name)]
        main([*command, "-o", str(made / f"{name}.edge")])
    return made


def speak(visit, server, cases):
    """[{audio, sampling_rate}, or an error's message] of [address, text, options]."""
    return visit(server).run(
        f"""
            const results = [];
            let [last, voice] = ["", undefined];
            for (const [address, text, options] of {json.dumps(cases)}) {{
              if (address !== last) {{
                await voice?.dispose();
                voice = await ew.pipeline("text-to-speech", address);
                last = address;
              }}
              const phonemizer = options.plain ? undefined : (text) => text;
              const given = {{ phonemizer, ...options }};
              delete given.plain;
              try {{
                const {{ audio, sampling_rate }} = await voice(text, given);
                results.push({{ audio: [...audio], sampling_rate }});
              }} catch (e) {{
                results.push(e.message);
              }}
            }}
            await voice.dispose();
            return results;
        """
    )


@pytest.mark.family("VITS", exporter="torch")
def test_vits(visit, server, folder):
    cases = [["/files/voices/vits.edge", text, {"plain": True}] for text in TEXTS]
    cases.append(["/files/voices/vits/", TEXTS[1], {"plain": True}])  # is compiled in the page
    cases.append(["/files/voices/vits/", "%%", {"plain": True}])
    cases.append(["/files/voices/vits/", "a", {"plain": True, "speed": 2}])
    found = speak(visit, server, cases)
    assert "error" not in found, found
    assert "no characters that the model knows" in found[-2] and "this option" in found[-1]
    ours = pipeline("text-to-speech", folder / "vits")
    for (_, text, _), got in zip(cases[:-2], found):
        expected = ours(text)
        assert got["sampling_rate"] == expected["sampling_rate"]
        np.testing.assert_allclose(got["audio"], expected["audio"][0], atol=1e-4)


def test_what_the_others_are_fed(visit, server, folder):
    piper, kokoro = "/files/voices/piper.edge", "/files/voices/kokoro.edge"
    options = {"speaker": "bob", "speed": 2, "noise_scale": 0, "noise_w": 1.0}
    cases = [
        [piper, "ab.", {}],
        [piper, "a. b.", {}],
        [piper, "axb.", options],
        [kokoro, "ab.", {}],
        [kokoro, "xa", {"voice": "bm_tiny", "speed": 0.5}],
        [kokoro, "a" * 300 + ", " + "b" * 300, {}],
        ["/files/voices/piper/en_tiny.onnx", "ab.", {}],  # its settings are found beside it
        [piper, "a", {"plain": True}],
        [kokoro, "a", {"voice": "x"}],
        [piper, "a", {"speaker": 7}],
        [piper, "a", {"speed": 0}],
    ]
    found = speak(visit, server, cases)
    assert "error" not in found, found
    for (address, text, given), got in zip(cases[:6], found):
        ours = pipeline("text-to-speech", folder / address.split("/")[-1].removesuffix(".edge"))
        expected = ours(text, phonemizer=str, **given)
        np.testing.assert_allclose(got["audio"], expected["audio"][0], atol=1e-4)
    assert found[6] == found[0]
    phonemes, voice, speaker, speed = found[7:]
    assert "reads phonemes" in phonemes and "no voice 'x'" in voice
    assert "no speaker 7" in speaker and "from 0.01 to 100" in speed


def test_sentences_as_they_arrive(visit, server, folder):
    found = visit(server).run(
        """
            const voice = await ew.pipeline("text-to-speech", "/files/voices/piper.edge");
            const phonemizer = async (text) => [text];
            const spoken = [];
            async function* pieces() {
              for (const piece of ["A fi", "rst. A sec", "ond.\\nMr. X"]) yield piece;
            }
            for await (const part of voice.stream(pieces(), { phonemizer }))
              spoken.push([part.text, part.audio.length > 0]);
            const { toBlob } = await voice("ab", { phonemizer });
            const head = new Uint8Array(await toBlob().arrayBuffer());
            await voice.dispose();
            return [spoken, String.fromCharCode(...head.slice(0, 4)), head.length];
        """
    )
    assert found[0] == [["A first.", True], ["A second.", True], ["Mr. X", True]]
    assert found[1] == "RIFF" and found[2] > 44


@pytest.mark.skipif(not REAL.exists(), reason="needs EDGEWISE_REAL")
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("piper-en-joe", "həlˈoʊ wˈɜːld, ðɪs ɪz ɐ tˈɛst.", {"seed": 3}),
        ("kokoro-82m", "konnichiwa sekai.", {"voice": "jf_alpha"}),
    ],
)
def test_real_voices_equal_python(visit, server, files, name, text, options):
    package = files / f"{name}.edge"
    main(["build", "--task", "text-to-speech", str(REAL / name), "-o", str(package)])
    (found,) = speak(visit, server, [[f"/files/{name}.edge", text, options]])
    assert "audio" in found, found
    expected = pipeline("text-to-speech", REAL / name)(text, phonemizer=str, **options)
    package.unlink()
    if name == "piper-en-joe":
        np.testing.assert_allclose(found["audio"], expected["audio"][0], atol=1e-4)
        return
    # Kokoro in int8 amplifies roundings: a change of 3e-7 in the voice changes samples by 0.4.
    assert len(found["audio"]) == len(expected["audio"][0])
    loud = [
        np.square(np.reshape(sound, (-1, 600))).mean(1) ** 0.5
        for sound in (found["audio"], expected["audio"][0])
    ]
    assert np.corrcoef(*loud)[0, 1] > 0.98
