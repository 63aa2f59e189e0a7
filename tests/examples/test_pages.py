"""The example pages, in Chromium. `visit` fails the test where a page throws."""

from __future__ import annotations

import json
import re
from pathlib import Path

import edgewise
import pytest

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
    import numpy as np
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


def test_documents(visit, example_server: str, tmp_path: Path) -> None:
    """Files are added, the passage is found and an answer is written; a later visit has them."""
    from browser.pipelines import models

    models.save(tmp_path / "embed", "feature-extraction")
    (tmp_path / "embed" / "1_Pooling").mkdir()
    (tmp_path / "embed" / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_mean_tokens": true}'
    )
    module = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (tmp_path / "embed" / "modules.json").write_text(json.dumps([module]))
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    config = {**json.loads((DEMO / "tokenizer_config.json").read_text()), "chat_template": template}

    def embed(route) -> None:
        file = tmp_path / "embed" / route.request.url.rpartition("/resolve/main/")[2]
        if file.is_file():
            route.fulfill(path=file)
        else:
            route.fulfill(status=404)

    names = "?host=/hub/&embed=demo/embed&write=demo/storyteller"
    v = visit(example_server, f"/examples/documents/{names}", start=False)
    v.page.route(
        "**/storyteller/**/tokenizer_config.json", lambda route: route.fulfill(json=config)
    )
    v.page.route("**/demo/embed/**", embed)
    v.page.reload()
    wait(v.page, "document.querySelector('#status').textContent === 'Add text files'")
    texts = {"fox.txt": models.TEXTS[0], "long.txt": " ".join(models.TEXTS * 12)}
    v.page.set_input_files(
        "#files",
        [{"name": n, "mimeType": "text/plain", "buffer": t.encode()} for n, t in texts.items()],
    )
    wait(v.page, "!document.querySelector('#ask').disabled")
    count = int(v.page.inner_text("#status").split()[0])
    assert count > 2
    v.page.fill("#question", models.TEXTS[0])
    v.page.click("#ask")
    wait(v.page, "document.querySelector('#status').textContent.includes('answered in')")
    assert "fox.txt" in v.page.inner_text("#passages") and v.page.inner_text("#answer")
    v.page.reload()
    wait(v.page, f"document.querySelector('#status').textContent === '{count} passages'")
