"""automatic-speech-recognition with transducers and CTC of pieces of words in a page, as in
Python.
"""

import json

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from pipelines.sounds import tiny_hearing
from pipelines.sounds.test_hearing import MAKERS

from .. import on_gpu
from ..hub import ID

COUNTS = (16000, 40001)
ALL = {**MAKERS, "canary": lambda folder: tiny_hearing.canary(folder, 6)}


@pytest.fixture(scope="module")
def folder(files):
    made = files / "hearing"
    for kind, make in ALL.items():
        make(made / kind)
        main(["build", "--task", "asr", str(made / kind), "-o", str(made / f"{kind}.edge")])
    for i, count in enumerate(COUNTS):
        (made / f"{i}.f32").write_bytes(tiny_hearing.sound(count, i).tobytes())
    return made


@pytest.mark.family("Parakeet TDT", exporter="torch")
@pytest.mark.family("Parakeet CTC", exporter="torch")
@pytest.mark.family("RNN-T", exporter="torch")
@pytest.mark.family("FastConformer with caches", exporter="torch")
def test_text_and_times(visit, server, folder):
    cases = [
        ("tdt.edge", 0, {"return_timestamps": "word"}),
        ("tdt.edge", 1, {"return_timestamps": True, "num_beams": 3}),
        ("rnnt.edge", 0, {"return_timestamps": "char"}),
        ("k2.edge", 1, {"return_timestamps": "word", "chunk_length_s": 1}),
        ("k2_stream.edge", 1, {"return_timestamps": "char"}),
        ("cache_aware.edge", 1, {"return_timestamps": "char"}),
        ("gigaam.edge", 1, {"return_timestamps": "char", "num_beams": 2}),
        ("ctc.edge", 1, {"return_timestamps": True}),
        ("canary.edge", 1, {"language": "german", "task": "translate", "pnc": False}),
        ("canary.edge", 0, {"return_timestamps": "word"}),
        ("canary.edge", 1, {"chunk_length_s": 1}),
        ("tdt/", 1, {"return_timestamps": "char"}),  # is compiled in the page
    ]
    if on_gpu.WANTED:  # packages for a GPU have no loops
        cases = [case for case in cases if case[0] != "k2_stream.edge"]
    found = visit(server).run(
        f"""
            const results = [];
            for (const [name, i, options] of {json.dumps(cases)}) {{
              const listen = await ew.pipeline("asr", `/files/hearing/${{name}}`);
              const bytes = await (await fetch(`/files/hearing/${{i}}.f32`)).arrayBuffer();
              results.push(await listen(new Float32Array(bytes), options));
              await listen.dispose();
            }}
            const listen = await ew.pipeline("asr", "/files/hearing/tdt.edge");
            const long = new Float32Array(16000 * 40).map((_, j) => Math.sin(j * j * 1e-5));
            const seen = [];
            await listen(long, {{ onProgress: (x) => seen.push(x) }});
            const errors = [];
            for (const options of [
              {{ return_timestamps: "line" }}, {{ num_beams: 0 }}, {{ language: "de" }},
            ])
              errors.push(await listen(long, options).then((x) => x.text, (e) => e.message));
            errors.push(await listen(new Float32Array(100)).then((x) => x.text, (e) => e.message));
            const stream = listen.stream({{ interval: 0.5 }});
            const bytes = await (await fetch("/files/hearing/1.f32")).arrayBuffer();
            const sound = new Float32Array(bytes);
            const events = [...(await stream.feed(sound)), ...(await stream.end())];
            await listen.dispose();
            return {{ results, seen, errors, events }};
        """
    )
    assert "error" not in found, found
    for (name, i, options), result in zip(cases, found["results"], strict=True):
        sound = np.fromfile(folder / f"{i}.f32", np.float32)
        with pipeline("asr", folder / name.rstrip("/")) as listen:
            expected = listen(sound, **options)
        assert result["text"] == expected["text"] and result["text"]
        chunks = result.get("chunks", []), expected.get("chunks", [])
        for ours, theirs in zip(*chunks, strict=True):
            assert ours["text"] == theirs["text"]
            assert ours["timestamp"] == pytest.approx(theirs["timestamp"])
    assert len(found["seen"]) > 1 and found["seen"][-1] == 1
    times, beams, language, short = found["errors"]
    assert "no times of kind 'line'" in times.replace('"', "'") and "num_beams" in beams
    assert "language" in language and "100 samples" in short
    assert "".join(event["committed"] for event in found["events"])


def test_files_of_a_hub_may_have_more_words_in_their_names(visit, server, hub, folder):
    """As releases of sherpa-onnx: files of several types in one folder, of which a mix is wanted.
    Files of the other type are damaged.
    """
    hub.files = {"tokens.txt": (folder / "k2" / "tokens.txt").read_bytes()}
    for part, wanted, other in (
        ("encoder", ".int8", ""), ("decoder", "", ".int8"), ("joiner", ".int8", "")
    ):  # fmt: skip
        [file] = (folder / "k2").glob(f"{part}*.onnx")
        hub.files[f"{part}-epoch-99-avg-1{wanted}.onnx"] = file.read_bytes()
        hub.files[f"{part}-epoch-99-avg-1{other}.onnx"] = b"damaged"
    mixed = {"encoder": "int8", "decoder": "fp32", "joiner": "int8"}
    found = visit(server).run(
        """
            ew.env.remoteHost = arg.host;
            const bytes = await (await fetch("/files/hearing/1.f32")).arrayBuffer();
            const results = [];
            for (const keep of [1, 2]) {
              const listen = await ew.pipeline("asr", arg.id, { dtype: arg.dtype });
              const { text } = await listen(new Float32Array(bytes));
              results.push([text, listen.info.dtype, listen.info.origin]);
              await listen.dispose();
            }
            return results;
        """,
        {"host": hub.url, "id": ID, "dtype": mixed},
    )
    with pipeline("asr", folder / "k2") as listen:
        text = listen(np.fromfile(folder / "1.f32", np.float32))["text"]
    dtype = "encoder: int8, predictor: fp32, joiner: int8"
    assert found == [[text, dtype, "compiled"], [text, dtype, "cache"]]
