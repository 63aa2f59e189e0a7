"""Codecs in a page: the codes and the sound that Python makes."""

import json

import numpy as np
import pytest
from edgewise import Codec
from pipelines.sounds import tiny_codecs
from pipelines.sounds.packed import packed


@pytest.fixture(scope="module")
def folder(files):
    made = files / "codecs"
    for name in ("snac", "mimi", "dac"):
        getattr(tiny_codecs, f"make_{name}")(made / name)
    tiny_codecs.make_encodec(made / "encodec", frames=True)
    for name in ("snac", "mimi", "dac", "encodec"):
        packed(made / name, "codec")
    return made


@pytest.mark.family("Mimi", exporter="torch")
@pytest.mark.family("EnCodec", exporter="torch")
@pytest.mark.family("DAC", exporter="torch")
@pytest.mark.family("SNAC", exporter="torch")
def test_codecs(visit, server, folder):
    rng = np.random.default_rng(6)
    names = ["snac", "mimi", "dac", "encodec"]
    sounds = {n: 0.3 * rng.standard_normal((2 if n == "encodec" else 1, 913)) for n in names}
    given = {n: np.float32(x).tolist() for n, x in sounds.items()}
    found = visit(server).run(
        f"""
            const results = {{}};
            const named = Object.entries({json.dumps(given)});
            const places = named.flatMap(([name, given]) =>
              ["/", ".edge"].map((end) => [`${{name}}${{end}}`, given]));
            for (const [name, channels] of places) {{
              const codec = await ew.codec(`/files/codecs/${{name}}`);
              const array = channels.map((x) => Float32Array.from(x));
              const codes = await codec.encode({{ array, sampling_rate: 800 }});
              const again = await codec.decode(codes);
              const list = [codes.audio_codes].flat();
              const {{ sampling_rate, num_codebooks, codebook_size }} = codec;
              let message;
              try {{
                await codec.decode([[99], [99]]);
              }} catch (e) {{
                message = e.message;
              }}
              results[name] = {{
                codes: list.map(({{ data, dims }}) => [dims, Array.from(data, Number)]),
                scales: codes.audio_scales && [...codes.audio_scales.data],
                audio: again.channels.map((x) => [...x]),
                about: [sampling_rate, again.sampling_rate, num_codebooks, codebook_size],
                type: list[0].type, size: (await again.toBlob()).size, message,
              }};
              await codec.dispose();
            }}
            return results;
        """
    )
    assert "error" not in found, found
    for name in names:
        with Codec(folder / name) as codec:
            codes = codec.encode(np.float32(sounds[name]))
            many = codes.audio_codes if name == "snac" else [codes.audio_codes]
            audio = codec.decode(codes)["audio"]
            for got in (found[f"{name}/"], found[f"{name}.edge"]):
                for (dims, data), expected in zip(got["codes"], many, strict=True):
                    assert dims == list(expected.shape) and data == expected.reshape(-1).tolist()
                np.testing.assert_allclose(got["audio"], audio, atol=1e-4 * np.abs(audio).max())
                assert got["about"] == [800, 800, codec.num_codebooks, 32]
                assert got["type"] == "int64" and got["size"] == 44 + 2 * 913
                assert ("3 tensors" if name == "snac" else "a code 99") in got["message"]
                if name == "encodec":
                    np.testing.assert_allclose(got["scales"], codes.audio_scales.reshape(-1), 1e-4)
