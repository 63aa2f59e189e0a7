"""The room Talk with small models: a tiny detector of loud sound, the reader of Morse code as ears,
the storyteller, and the voice made by rules.
"""

import json
import wave

import numpy as np
import onnx
import pytest
from edgewise.cli import main

from ..chromium import CHROMIUM, FLAGS
from .test_rooms import SHOWN, beeps, counted
from .test_rooms_real import listed


def loudness():
    """A model with Silero VAD's inputs and outputs: the loudness of a window. It has no rare
    kernel: a page takes the engine that resamples because of its task.
    """
    info, op = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    number = onnx.numpy_helper.from_array
    graph = onnx.helper.make_graph(
        [
            op("ReduceL2", ["input"], ["loud"], axes=[1], keepdims=1),
            op("Sub", ["loud", "most"], ["above"]),
            op("Sigmoid", ["above"], ["output"]),
            op("Identity", ["state"], ["stateN"]),
        ],
        "vad",
        [info("input", 1, [1, "samples"]), info("state", 1, [2, 1, 128])],
        [info("output", 1, [1, 1]), info("stateN", 1, [2, 1, 128])],
        [number(np.float32([1]), "most")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])


STATES = """
    const doing = document.getElementById("doing");
    const states = (window.states = []);
    new MutationObserver(() => {
      if (states.at(-1) !== doing.dataset.state) states.push(doing.dataset.state);
    }).observe(doing, { attributes: true });
"""
SPEAKING = "document.getElementById('doing').dataset.state === 'speaking'"
MADE = {
    "vad": "../../files/talk/loud.edge",
    "speak": "../speak.edge",
    "listen": "../morse.edge",
    "chat": "../model.edge",
}


@pytest.fixture(scope="module")
def folder(files):
    """A model that detects loud sound, and SOS with a long silence after it."""
    target = files / "talk"
    target.mkdir()
    onnx.save(loudness(), str(target / "loud.onnx"))
    vad = ["--task", "voice-activity-detection", str(target / "loud.onnx")]
    main(["build", *vad, "-o", str(target / "loud.edge")])
    sound = np.concatenate([beeps("... --- ..."), np.zeros(9 * 16000)])
    with wave.open(str(target / "sos.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    return target


def open_talk(page, server, real=True):
    entry = {"name": "it", "title": "It", "licence": "MIT", "bytes": 1_000_000}
    listed(page, [{**entry, "room": room, "file": file} for room, file in MADE.items()])
    page.goto(f"{server}/demo/talk.html")
    page.wait_for_selector("#say:not([disabled])")
    if real:
        page.click("#real")
        page.wait_for_function(f"document.body.dataset.real || {SHOWN}")
        assert not page.is_visible("#error"), page.inner_text("#error")


def said(page, role):
    return page.locator(f"#messages .{role} .said").all_inner_texts()


def test_with_the_models_of_the_page(visit, server, folder):
    """Words are written, the answer is heard, and stopped; there is no microphone to press."""
    page = visit(server).page
    open_talk(page, server, real=False)
    assert page.is_hidden("#microphone") and page.is_hidden("#hold")
    assert "4.0 MB" in page.inner_text("#real")
    page.fill("#words", "Once upon a time")
    page.press("#words", "Enter")
    page.wait_for_function(SPEAKING)
    assert said(page, "user") == ["Once upon a time"] and page.input_value("#words") == ""
    assert page.inner_text("#figure-sound") != "–"
    page.fill("#words", "The owl")  # while it speaks
    page.press("#words", "Enter")
    page.wait_for_function("document.querySelectorAll('#messages .user').length === 2")
    page.wait_for_function(SPEAKING)
    assert said(page, "assistant")[0].endswith("…")
    page.keyboard.press("Escape")
    page.wait_for_function("document.getElementById('doing').dataset.state === 'ready'")
    page.wait_for_function(
        "[...document.querySelectorAll('.assistant .said')].at(-1).textContent.endsWith('…')"
    )
    page.click("#clear")
    assert page.locator("#messages li").count() == 0 and not page.is_visible("#error")


def test_somebody_speaks_and_interrupts(playwright, built, server, folder):
    """By a microphone whose sound begins anew while the answer is heard."""
    flags = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    flags += [f"--use-file-for-fake-audio-capture={folder / 'sos.wav'}"]
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
    page = browser.new_page()
    open_talk(page, server)
    page.evaluate(STATES)
    page.click("#microphone")
    page.wait_for_function("states.join().includes('hearing,thinking,speaking,hearing')")
    assert "SOS" in said(page, "user")[0]
    assert float(page.inner_text("#figure-pause").split()[0]) >= 300
    page.wait_for_function("document.querySelector('.assistant .said').textContent.endsWith('…')")
    page.click("#microphone")
    assert page.inner_text("#microphone") == "Talk to it"
    page.wait_for_function("document.getElementById('doing').dataset.state === 'ready'")
    page.evaluate("states.length = 0")
    page.hover("#hold")
    page.mouse.down()
    page.wait_for_timeout(3000)
    page.mouse.up()
    page.wait_for_function("states.includes('thinking')")
    page.click("#samples button >> nth=0")
    page.wait_for_function(SPEAKING)
    page.goto(f"{server}/demo/see.html")  # while it speaks
    page.wait_for_function("document.getElementById('status').textContent.includes('ready')")
    assert not page.is_visible("#error")
    browser.close()


def test_without_a_microphone(visit, server, folder):
    """An error says so, for both buttons, and the rest goes on."""
    page = visit(server).page
    open_talk(page, server)
    for press in ("#microphone", "#hold"):
        page.click(press)
        page.wait_for_function(SHOWN)
        assert "microphone" in page.inner_text("#error-where")
        assert page.get_attribute("#microphone", "aria-pressed") == "false"
        page.click("#error-close")
    page.click("#samples button >> nth=-1")  # a recording, which is no Morse code
    page.wait_for_function("document.getElementById('doing').dataset.state === 'thinking'")
    page.wait_for_function("document.getElementById('doing').dataset.state === 'ready'")
    page.click("#samples button >> nth=0")
    page.wait_for_function(SPEAKING)
    page.click("#stop")
    page.wait_for_function("document.getElementById('doing').dataset.state === 'ready'")


def test_a_model_that_cannot_be_loaded(visit, server, folder):
    """The small ones stay in use."""
    page = visit(server).page
    page.route("**/talk/loud.edge", lambda route: route.fulfill(status=404))
    open_talk(page, server, real=False)
    page.click("#real")
    page.wait_for_function(SHOWN)
    page.click("#error-close")
    assert page.is_visible("#real") and page.is_hidden("#microphone")
    page.click("#samples button >> nth=0")
    counted(page, "speaking", 1)


def test_the_list_names_licences(visit, server):
    page = visit(server).page
    page.route(
        "**/demo/real/models.json",
        lambda r: r.fulfill(body=json.dumps([]), content_type="application/json"),
    )
    page.goto(f"{server}/demo/talk.html")
    page.wait_for_selector("#real-list li")
    lines = page.locator("#real-list li").all_inner_texts()
    assert len(lines) == 4 and all("from the hub (" in line for line in lines)
