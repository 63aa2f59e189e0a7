"""automatic-speech-recognition with CTC models in a page, as in Python."""

import json

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from pipelines import tiny_audio
from pipelines.sounds.test_ctc import VOCABULARY, sound

MASKED = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}


@pytest.fixture(scope="module")
def folder(files):
    made = files / "ctc"
    for name, mask, config in (("group", False, {}), ("layer", True, MASKED), ("plain", False, {})):
        (made / name).mkdir(parents=True)
        tiny_audio.make_ctc(made / name, "Wav2Vec2", VOCABULARY, True, mask, **config)
        if name == "plain":  # the samples pass the processor unchanged
            file = made / name / "preprocessor_config.json"
            file.write_text(json.dumps({**json.loads(file.read_text()), "do_normalize": False}))
        model, package = str(made / name), str(made / f"{name}.edge")
        main(["build", "--task", "asr", model, "--max-length", "2", "-o", package])
    return made


def test_text_and_times(visit, server, folder):
    """One plan takes all lengths, so that nothing is padded."""
    cases = [
        ("group.edge", 1, 17321, {"return_timestamps": "word"}),
        ("layer.edge", 2, 16000, {"return_timestamps": "char"}),
        ("layer.edge", 3, 9001, {}),
        ("layer.edge", 4, 37777, {"chunk_length_s": 1, "return_timestamps": "word"}),
        ("layer.edge", 5, 30000, {"chunk_length_s": 1, "stride_length_s": [0.3, 0.1]}),
        ("group/", 6, 9001, {}),  # is compiled in the page
        ("plain.edge", 7, 31998, {"return_timestamps": "word"}),
    ]
    for i, (_, seed, count, _) in enumerate(cases):
        (folder / f"{i}.f32").write_bytes(sound(seed, count).tobytes())
    found = visit(server).run(
        f"""
            const results = [];
            const cases = {json.dumps([[name, options] for name, _, _, options in cases])};
            for (const [i, [name, options]] of cases.entries()) {{
              const listen = await ew.pipeline("asr", `/files/ctc/${{name}}`);
              const bytes = await (await fetch(`/files/ctc/${{i}}.f32`)).arrayBuffer();
              results.push(await listen(new Float32Array(bytes), options));
              if (i === 4) {{
                // longer than the package's plans: is divided
                const long = new Float32Array(100_000).map((_, j) => Math.sin(j * j * 1e-5));
                const seen = [];
                const {{ text }} = await listen(long, {{ onProgress: (x) => seen.push(x) }});
                results.push([text.length > 0, seen.length > 2, seen.at(-1)]);
                const stream = listen.stream({{ interval: 0.5 }});
                const events = [];
                for (let at = 0; at < 24_000; at += 3000)
                  events.push(...(await stream.feed(long.slice(at, at + 3000))));
                results.push([...events, ...(await stream.end())]);
                for (const wrong of [{{ return_timestamps: true }}, {{ language: "fr" }}])
                  results.push(await listen(long, wrong).catch((e) => e.message));
              }}
              await listen.dispose();
            }}
            return results;
        """
    )
    assert "error" not in found, found
    long, events, times, language = found[5:9]
    assert long == [True, True, 1]
    assert 'Give false, "char" or "word"' in times and "no option 'language'" in language
    del found[5:9]
    stream = pipeline("asr", folder / "layer").stream(interval=0.5)
    i = np.arange(24_000, dtype=np.float64)
    wanted = stream.feed(np.sin(i * i * 1e-5).astype("f")) + stream.end()
    assert len(wanted) > 1
    for got, want in zip(events, wanted, strict=True):
        assert (got["committed"], got["partial"]) == (want["committed"], want["partial"])
    for (name, seed, count, options), got in zip(cases, found, strict=True):
        ours = pipeline("asr", folder / name.removesuffix(".edge"))
        expected = ours(sound(seed, count), **options)
        assert got["text"] == expected["text"] and len(got["text"]) > 5
        for one, two in zip(got.get("chunks", []), expected.get("chunks", []), strict=True):
            assert (one["text"], tuple(one["timestamp"])) == (two["text"], two["timestamp"])
