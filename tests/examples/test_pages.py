"""The example pages, in Chromium. `visit` fails the test where a page throws."""

from __future__ import annotations

import json
import re
import shutil
import wave
from pathlib import Path

import edgewise
import numpy as np
import pytest
from browser.chromium import CHROMIUM, FLAGS
from browser.hub import git_oid

from .conftest import served

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES.parent / "web" / "demo" / "model"


def wait(page, expression: str) -> None:
    """Waits until a JavaScript expression is true, or the page shows an error."""
    shown = "document.querySelector('#error').textContent"
    page.wait_for_function(f"{shown} || ({expression})", polling=100)
    assert page.inner_text("#error") == ""


def test_page_generate(visit, example_server: str) -> None:
    """A story, and one that is stopped."""
    v = visit(example_server, "/examples/page-generate/", start=False)
    wait(v.page, "!document.querySelector('#write').disabled")
    v.page.fill("#prompt", "The old fisherman")
    v.page.click("#write")
    wait(v.page, "document.querySelector('#status').textContent.includes('per second')")
    story = v.page.inner_text("#story")
    assert story.startswith("The old fisherman") and len(story) > 60
    assert not v.asked("pyodide")
    v.page.evaluate("""() => {  // presses Stop once there is some text: the story may be short
        const story = document.querySelector("#story");
        new MutationObserver((_, o) => { o.disconnect(); document.querySelector("#stop").click(); })
          .observe(story, {childList: true, characterData: true, subtree: true});
        document.querySelector("#write").click();
    }""")
    wait(
        v.page,
        "document.querySelector('#stop').disabled && !document.querySelector('#write').disabled",
    )


def test_hybrid(visit, example_server: str) -> None:
    """Nobody answers at the cloud's address: the text comes from the device all the same."""
    v = visit(example_server, "/examples/hybrid/", start=False)
    assert v.page.inner_text("#origin") == example_server
    v.page.fill("#address", "http://localhost:1/v1")
    sent = "document.querySelectorAll('#ledger li').length"
    for private in (False, True):
        v.page.set_checked("#private", private)
        v.page.fill("#prompt", "The old fisherman")
        v.page.evaluate("document.querySelector('#status').textContent = ''")
        v.page.click("#write")
        wait(v.page, f"document.querySelector('#status').textContent && {sent} === 1")
        story = v.page.inner_text("#story")
        assert story.startswith("The old fisherman") and len(story) > 40
        status = v.page.inner_text("#status")
        assert "On the device" in status and ("private" in status) == private


def test_page_finetune(visit, example_server: str) -> None:
    v = visit(example_server, "/examples/page-finetune/", start=False)
    wait(v.page, "!document.querySelector('#teach').disabled")
    v.page.click("#teach")
    wait(v.page, "document.querySelectorAll('#files a').length")
    first, last = map(
        float, re.search(r"loss ([\d.]+) to ([\d.]+)", v.page.inner_text("#status")).groups()
    )
    assert last < first / 2
    before, after = v.page.inner_text("#before"), v.page.inner_text("#after")
    assert before != after and after.lower().count(" stop") > before.lower().count(" stop") + 2
    names = [a.inner_text() for a in v.page.query_selector_all("#files a")]
    assert sorted(names) == ["adapter_config.json", "adapter_model.safetensors"]


@pytest.mark.slow("test_page_finetune")
def test_smollm2(visit, example_server: str, tmp_path: Path) -> None:
    """The page of the larger model, with a small one in its place: from the hub's addresses through
    the compiler to the adapter's files, which Python merges into the model.
    """
    v = visit(example_server, "/examples/smollm2/?host=/hub/&model=demo/storyteller", start=False)
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    config = {**json.loads((DEMO / "tokenizer_config.json").read_text()), "chat_template": template}
    v.page.route("**/tokenizer_config.json", lambda route: route.fulfill(json=config))
    v.page.click("#load")
    wait(v.page, "document.querySelector('#status').textContent.startsWith('Ready')")
    v.page.click("#ask")
    wait(v.page, "document.querySelector('#status').textContent.includes('tokens/s')")
    v.page.fill("#steps", "8")
    v.page.click("#teach")
    wait(v.page, "document.querySelectorAll('#files a').length")
    status = v.page.inner_text("#status")
    first, last = map(float, re.search(r"Loss ([\d.]+) to ([\d.]+), ", status).groups())
    assert last < first and "for 8 steps" in status
    assert v.page.inner_text("#before") != v.page.inner_text("#after")
    for link in v.page.query_selector_all("#files a"):
        with v.page.expect_download() as download:
            link.click()
        download.value.save_as(tmp_path / link.inner_text())
    before = (DEMO / "onnx" / "model_q4.onnx").stat().st_size
    assert len(edgewise.merge_adapter(DEMO, tmp_path, dtype="q4")) > before


def test_onnx_session(visit, example_server: str) -> None:
    v = visit(example_server, "/examples/onnx-session/", start=False)
    wait(v.page, "document.querySelector('#status').textContent.includes('points in')")
    share = int(re.search(r"(\d+) % are", v.page.inner_text("#status"))[1])
    assert 30 < share < 70
    pixel = (
        "(x, y) => [...document.querySelector('#picture').getContext('2d')"
        ".getImageData(x, y, 1, 1).data]"
    )
    import onnxruntime

    session = onnxruntime.InferenceSession(EXAMPLES / "onnx-session" / "spirals.onnx")
    for x, y in ((10, 80), (80, 20), (120, 100), (40, 60)):
        point = np.array([[2 * x / 159 - 1, 2 * y / 159 - 1]], np.float32)
        [[[a, b]]] = session.run(None, {"points": point})
        red, _, blue, _ = v.page.evaluate(f"([x, y]) => ({pixel})(x, y)", [x, y])
        chance = 1 / (1 + np.exp(b - a))
        assert abs(red - 255 * chance) <= 1.01 and abs(blue - 255 * (1 - chance)) <= 1.01


def test_keyboard(visit, example_server: str) -> None:
    v = visit(example_server, "/examples/keyboard/", start=False)
    wait(v.page, "!document.querySelector('#send').disabled")
    v.page.fill("#text", "Once upon a time there was a")
    wait(v.page, "document.querySelectorAll('#words button').length >= 2")
    word = v.page.inner_text("#words button:nth-child(1)")
    v.page.keyboard.press("Alt+1")
    assert v.page.input_value("#text") == f"Once upon a time there was a {word} "
    for i in (1, 2):
        v.page.fill("#text", "The robot zebra met the robot zebra. The robot zebra sang.")
        v.page.click("#send")
        sent = f"document.querySelectorAll('#sent br').length === {i}"
        wait(v.page, f"{sent} && !document.querySelector('#send').disabled")
    first, last = map(
        float, re.search(r"loss ([\d.]+) to ([\d.]+)", v.page.inner_text("#status")).groups()
    )
    assert last < first
    v.page.fill("#text", "Then the robot")
    wait(v.page, "document.querySelector('#words').dataset.of === 'Then the robot'")
    assert "zebra" in v.page.inner_text("#words")


def test_chat(visit, example_server: str) -> None:
    """An answer that is stopped, and one to the next message, which knows the first ones."""
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    config = {**json.loads((DEMO / "tokenizer_config.json").read_text()), "chat_template": template}
    address = "/examples/chat/?host=/hub/&model=demo/storyteller"
    v = visit(example_server, address, start=False)
    v.page.route("**/tokenizer_config.json", lambda route: route.fulfill(json=config))
    v.page.reload()
    wait(v.page, "!document.querySelector('#send').disabled")
    v.page.fill("#message", "Once upon a time")
    answered = "!document.querySelector('#send').disabled"
    v.page.evaluate("""() => {  // presses Stop once there is some text
        const lines = document.querySelector("#conversation");
        new MutationObserver((_, o) => {
          if (!lines.querySelector(".assistant")?.textContent) return;
          o.disconnect();
          document.querySelector("#stop").click();
        }).observe(lines, {childList: true, characterData: true, subtree: true});
        document.querySelector("#send").click();
    }""")
    wait(v.page, answered)
    v.page.fill("#message", "The old fisherman")
    v.page.click("#send")
    wait(v.page, f"document.querySelectorAll('.assistant').length === 2 && {answered}")
    first, second = (one.inner_text() for one in v.page.query_selector_all(".assistant"))
    assert first and len(second) > len(first)
    assert [one.inner_text() for one in v.page.query_selector_all(".user")] == [
        "Once upon a time",
        "The old fisherman",
    ]
    assert re.search(r"after \d+ ms, \d+ tokens per second", v.page.inner_text("#status"))


def beeps(path: Path, code: str, unit: float = 0.08, rate: int = 16000) -> None:
    """Writes tones of a Morse code with silence around them."""
    parts = [np.zeros(int(0.5 * rate))]
    for sign in code:
        length = {".": 1, "-": 3, " ": 0}[sign] * unit
        time = np.arange(int(length * rate)) / rate
        rest = 2 if sign == " " else 1
        parts += [0.4 * np.sin(2 * np.pi * 700 * time), np.zeros(int(rest * unit * rate))]
    samples = np.concatenate([*parts, np.zeros(int(0.5 * rate))])
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def test_voice(playwright, example_server: str, tmp_path: Path) -> None:
    """The demo's small model, which reads Morse code, hears a file and a microphone."""
    beeps(tmp_path / "sos.wav", "... --- ...")
    beeps(tmp_path / "tea.wav", "- . .-")
    flags = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    flags += [f"--use-file-for-fake-audio-capture={tmp_path / 'sos.wav'}"]
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
    try:
        page = browser.new_page()
        page.goto(f"{example_server}/examples/voice/?model=/demo/morse.edge")
        wait(page, "!document.querySelector('#speak').disabled")
        page.set_input_files("#file", tmp_path / "tea.wav")
        wait(page, "document.querySelector('#status').textContent.startsWith('Written in')")
        assert page.inner_text("#text").strip() == "TEA"
        page.click("#speak")
        wait(page, "document.querySelector('output').textContent.includes('SOS')")
        page.click("#stop")
        wait(page, "document.querySelector('#status').textContent === 'Ready'")
        assert "SOS" in page.inner_text("#text") and page.inner_text("#partial") == ""
    finally:
        browser.close()


# A camera that sees stripes; `stripes(across)` turns them.
CAMERA = """
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [320, 240];
    const pen = canvas.getContext("2d");
    let across = false;
    window.stripes = (now) => { across = now; };
    setInterval(() => {
      const shift = Math.floor(16 * Math.random());  // a hand is never still
      pen.fillStyle = "white";
      pen.fillRect(0, 0, 320, 240);
      pen.fillStyle = "black";
      for (let at = shift - 40; at < 320; at += 40)
        across ? pen.fillRect(0, at, 320, 20) : pen.fillRect(at, 0, 20, 240);
    }, 50);
    navigator.mediaDevices.getUserMedia = async () => canvas.captureStream(20);
"""


def test_camera(context, visit, example_server: str) -> None:
    """Two patterns are learned, and told apart."""
    context.add_init_script(CAMERA)
    v = visit(example_server, "/examples/camera/", start=False)
    wait(v.page, "!document.querySelector('#start').disabled")
    v.page.click("#start")
    for known, (name, across) in enumerate([("pillars", False), ("ladder", True)], 1):
        wait(v.page, "!document.querySelector('#learn').disabled")
        v.page.evaluate(f"stripes({str(across).lower()})")
        v.page.wait_for_timeout(300)
        v.page.fill("#name", name)
        v.page.click("#learn")
        words = "document.querySelector('#status').textContent.split(' and ').length"
        wait(
            v.page,
            f"document.querySelector('#status').textContent !== 'Ready' && {words} === {known}",
        )
    for name, across in (("pillars", False), ("ladder", True), ("pillars", False)):
        v.page.evaluate(f"stripes({str(across).lower()})")
        wait(v.page, f"document.querySelector('#seen').textContent.startsWith('{name}')")


def hub_of(folder: Path, work: Path) -> dict[str, Path]:
    """The mounts of a model of a hub: its files, and their list as huggingface.co gives it."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    entries = [
        {"type": "file", "path": name, "size": p.stat().st_size, "oid": git_oid(p.read_bytes())}
        for name, p in files.items()
    ]
    tree = work / "tree" / folder.name
    tree.mkdir(parents=True)
    (tree / "main").write_text(json.dumps(entries))
    name = f"demo/{folder.name}"
    return {f"/hub/{name}/resolve/main": folder, f"/hub/api/models/{name}/tree": tree}


def test_documents(built, context, tmp_path: Path) -> None:
    """Files are added, the passage is found and an answer is written; a later visit has them,
    without the server.
    """
    from browser.pipelines import models

    embed, write = tmp_path / "embed", tmp_path / "write"
    models.save(embed, "feature-extraction")
    (embed / "onnx" / "model.onnx").rename(embed / "onnx" / "model_quantized.onnx")
    (embed / "1_Pooling").mkdir()
    (embed / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    module = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (embed / "modules.json").write_text(json.dumps([module]))
    shutil.copytree(DEMO, write)
    settings = write / "tokenizer_config.json"
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "chat_template": template}))
    mounts = hub_of(embed, tmp_path) | hub_of(write, tmp_path)
    texts = {"fox.txt": models.TEXTS[0], "long.txt": " ".join(models.TEXTS * 12)}
    added = [{"name": n, "mimeType": "text/plain", "buffer": t.encode()} for n, t in texts.items()]
    with served(**mounts) as (address, server):
        page = context.new_page()
        page.goto(f"{address}/examples/documents/?host=/hub/&embed=demo/embed&write=demo/write")
        wait(page, "document.querySelector('#status').textContent === 'Add text files'")
        page.set_input_files("#files", added)
        wait(page, "!document.querySelector('#ask').disabled")
        count = int(page.inner_text("#status").split()[0])
        assert count > 2
        for offline in (False, True):
            page.fill("#question", models.TEXTS[0])
            page.click("#ask")
            wait(page, "document.querySelector('#status').textContent.includes('answered in')")
            assert "fox.txt" in page.inner_text("#passages") and page.inner_text("#answer")
            if not offline:
                server.terminate()
                server.wait()
                page.reload()
                wait(page, f"document.querySelector('#status').textContent === '{count} passages'")
