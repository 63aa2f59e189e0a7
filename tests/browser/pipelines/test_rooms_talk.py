"""The room Talk with small models: a tiny detector of loud sound, the reader of Morse code as ears,
the storyteller, and the voice made by rules.
"""

import json

import numpy as np
import onnx
import pytest
from edgewise.cli import main

from .test_rooms import SHOWN, beeps, save
from .test_rooms_real import listed
from .test_rooms_samples import VIEWS, check


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
LATEST_ENDS = """
    [...document.querySelectorAll(".assistant .said")].at(-1).textContent.endsWith("…")
"""
# A microphone that hears what `say` plays.
MICROPHONE = """
    navigator.mediaDevices.getUserMedia = async () => {
      window.room = new AudioContext().createMediaStreamDestination();
      return room.stream;
    };
    window.say = async (name) => {
      while (window.room?.stream.getTracks()[0].readyState !== "live")
        await new Promise(requestAnimationFrame);
      const { context } = room;
      const file = await fetch(`/files/talk/${name}`);
      const buffer = await context.decodeAudioData(await file.arrayBuffer());
      const source = new AudioBufferSourceNode(context, { buffer });
      source.connect(room);
      source.start();
      await new Promise((done) => { source.onended = done; });
    };
"""
KEPT = """
    async () => {
      for (const name of ["models.json", "english.txt"])
        while (!(await caches.match(`real/${name}`))) await new Promise(requestAnimationFrame);
    }
"""
MADE = {
    "vad": "../../files/talk/loud.edge",
    "speak": "../speak.edge",
    "listen": "../morse.edge",
    "chat": "../model.edge",
}


@pytest.fixture(scope="module")
def folder(files):
    """A model that detects loud sound, SOS, and a short sound."""
    target = files / "talk"
    target.mkdir()
    onnx.save(loudness(), str(target / "loud.onnx"))
    vad = ["--task", "voice-activity-detection", str(target / "loud.onnx")]
    main(["build", *vad, "-o", str(target / "loud.edge")])
    save(target / "sos.wav", beeps("... --- ..."))
    save(target / "click.wav", 0.5 * np.sin(np.arange(1600) / 4))
    return target


def open_talk(page, server, real=True, more=None):
    entry = {"name": "it", "title": "It", "licence": "MIT", "bytes": 1_000_000}
    files = {**MADE, **(more or {})}
    listed(page, [{**entry, "room": room, "file": file} for room, file in files.items()])
    page.goto(f"{server}/demo/talk.html")
    page.wait_for_selector("#say:not([disabled])")
    page.evaluate(STATES)
    if real:
        page.click("#real")
        page.wait_for_function(f"document.body.dataset.real || {SHOWN}")
        assert not page.is_visible("#error"), page.inner_text("#error")


def reached(page, *states):
    """Waits until it was in these states, in this order; forgets them."""
    order = ".*".join(states)
    page.wait_for_function("order => new RegExp(order).test(states.join())", arg=order)
    page.evaluate("states.length = 0")


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
    reached(page, "speaking")
    assert said(page, "user") == ["Once upon a time"] and page.input_value("#words") == ""
    assert page.inner_text("#figure-sound") != "–"
    page.fill("#words", "The owl")  # while it speaks
    page.press("#words", "Enter")
    page.wait_for_function("document.querySelectorAll('#messages .user').length === 2")
    assert said(page, "assistant")[0].endswith("…")
    reached(page, "speaking")
    page.focus("#stop")
    page.keyboard.press("Enter")
    page.wait_for_function(LATEST_ENDS)
    assert page.evaluate("document.activeElement.id") == "stop"
    assert page.get_attribute("#stop", "aria-disabled") == "true"
    page.click("#clear")
    assert page.locator("#messages li").count() == 0 and not page.is_visible("#error")


def test_somebody_speaks_and_interrupts(visit, server, folder):
    page = visit(server).page
    page.add_init_script(MICROPHONE)
    open_talk(page, server)
    page.click("#microphone")
    page.evaluate("say('click.wav')")
    reached(page, "hearing", "listening")  # too short to be speech
    page.evaluate("say('sos.wav')")
    reached(page, "hearing", "thinking", "speaking")
    page.evaluate("say('sos.wav')")
    reached(page, "hearing")
    assert "SOS" in said(page, "user")[0]
    assert float(page.inner_text("#figure-pause").split()[0]) >= 300
    page.wait_for_function("document.querySelector('.assistant .said').textContent.endsWith('…')")
    page.click("#microphone")
    assert page.inner_text("#microphone") == "Talk to it"
    page.wait_for_function("document.getElementById('doing').dataset.state === 'ready'")
    page.click("#samples button >> nth=0")
    reached(page, "speaking")
    page.goto(f"{server}/demo/see.html")  # while it speaks
    page.wait_for_function("document.getElementById('status').textContent.includes('ready')")
    assert not page.is_visible("#error")


def test_a_button_is_held(visit, server, folder):
    """By the mouse, the space bar and Enter; other keys and places leave the microphone off."""
    page = visit(server).page
    page.add_init_script(MICROPHONE)
    open_talk(page, server)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    page.click("#hold")  # too short
    page.wait_for_function("document.getElementById('hold').ariaPressed === 'false'")
    page.evaluate("states.length = 0")
    for down, up in (
        (page.mouse.down, page.mouse.up),
        (lambda: page.keyboard.down("Space"), lambda: page.keyboard.up("Space")),
        (lambda: page.keyboard.press("Enter"), lambda: page.keyboard.press("Enter")),
    ):
        page.evaluate("room = undefined")
        page.hover("#hold")
        page.focus("#hold")
        down()
        page.evaluate("say('sos.wav')")
        assert page.get_attribute("#hold", "aria-pressed") == "true"
        up()
        reached(page, "hearing", "thinking", "speaking")
        assert "SOS" in said(page, "user")[-1]
        assert page.get_attribute("#hold", "aria-pressed") == "false"
    assert not page.is_visible("#error")


def test_two_presses_turn_it_off(visit, server, folder):
    page = visit(server).page
    page.add_init_script(MICROPHONE)
    open_talk(page, server)
    button = "document.getElementById('microphone')"
    page.evaluate(f"{button}.click(), setTimeout(() => {button}.click())")
    page.wait_for_timeout(700)  # a player waits for 500 ms
    assert page.get_attribute("#microphone", "aria-pressed") == "false"
    assert page.inner_text("#microphone") == "Talk to it" and not page.is_visible("#error")


def test_without_a_microphone(visit, server, folder):
    """An error says so, for both buttons, and the rest goes on."""
    page = visit(server).page
    open_talk(page, server)
    for press in ("#microphone", "#hold"):
        page.hover(press)
        page.mouse.down()
        if press == "#microphone":
            page.mouse.up()
        page.wait_for_function(SHOWN)
        page.mouse.up()
        assert "microphone" in page.inner_text("#error-where")
        assert page.get_attribute(press, "aria-pressed") == "false"
        page.click("#error-close")
    page.evaluate("states.length = 0")
    page.click("#samples button >> nth=-1")  # a recording, which is no Morse code
    reached(page, "thinking", "ready")
    page.click("#samples button >> nth=0")
    reached(page, "speaking")
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
    reached(page, "speaking")


def test_the_list_and_the_lexicon_are_kept(visit, server, folder):
    """For visits without a network; where there is no lexicon, the page says so."""
    page = visit(server).page
    open_talk(page, server)
    assert "There is no lexicon" in page.inner_text("#model-words")
    page.route("**/demo/real/english.txt", lambda r: r.fulfill(body="owl\tˈaʊl\n"))
    open_talk(page, server, more={"lexicon": "english.txt"})
    assert page.inner_text("#model-words") == "In use: the real ones."
    page.evaluate(KEPT)
    for name in ("models.json", "english.txt"):
        page.route(f"**/demo/real/{name}", lambda r: r.abort())
    page.reload()
    page.wait_for_selector("#say:not([disabled])")
    page.click("#real")
    page.wait_for_function("document.body.dataset.real")
    assert page.inner_text("#model-words") == "In use: the real ones."


@pytest.mark.parametrize("view", VIEWS)
def test_everybody_can_use_it(browser, server, folder, view):
    """After a turn with models that hear; the focus is where the button was."""
    context = browser.new_context(**VIEWS[view])
    page = context.new_page()
    open_talk(page, server)
    assert page.evaluate("document.activeElement.id") == "microphone"
    page.click("#samples button >> nth=0")
    reached(page, "speaking")
    page.keyboard.press("Escape")
    page.wait_for_function(LATEST_ENDS)
    check(page)
    context.close()


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
