"""Rooms of the demo for visitors without camera, microphone or mouse: samples to press, the lesson
of a speaker's words, and the rules of axe-core.
"""

import shutil
from pathlib import Path

import pytest

from tests.seq2seq.words import whisper_texts
from tests.training.test_pairs import MODELS, clips

from .test_rooms import ROOMS, counted, open_room, save

AXE = Path(__file__).parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = {
    "desktop": {"viewport": {"width": 1200, "height": 900}},
    "phone": {"viewport": {"width": 375, "height": 667}},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
}
READY = "(document.getElementById('status')?.textContent ?? 'ready').includes('ready')"
PROBLEMS = """
    async () => {
      const { violations } = await axe.run(document, { resultTypes: ["violations"] });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html)}`);
    }
"""
SMALL = """
    () => [...document.querySelectorAll("a, button, summary, select, label:has(input)")]
      .filter((e) => e.checkVisibility() && !e.closest(".visually-hidden, .lead"))
      .map((e) => [e.id || e.textContent.trim(), e.getBoundingClientRect()])
      .filter(([, { width, height }]) => width < 24 || height < 24)
      .map(([name, { width, height }]) => `${name}: ${width} x ${height}`)
"""
# A second press, while the first one works.
TWICE = """
    () => {
      const button = document.getElementById("use-samples");
      button.focus();
      button.click();
      button.click();
    }
"""
VALUES = "all => all.map((e) => e.value)"
WITHOUT = ("chat", "together", "participant", "gpu-report")  # a model that the page loads at once
# What shows most of a room, by the keyboard.
SHOW = {"see": "#use-samples", "listen": "#spoken-sample", "who": "#use-samples"}


def check(page):
    """By axe-core, and sizes of what is pressed."""
    page.evaluate(AXE.read_text())
    assert page.evaluate(PROBLEMS) == []
    assert page.evaluate(SMALL) == []
    width = page.evaluate("innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("room", [*ROOMS, "participant"])
def test_everybody_can_use_a_room(browser, server, room):
    for view, options in VIEWS.items():
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(f"{server}/demo/{room}.html?write=0")
        if room not in WITHOUT:
            page.wait_for_function(READY)
        check(page)
        if view == "phone" and room in SHOW:
            page.focus(SHOW[room])
            page.keyboard.press("Enter")
            page.wait_for_selector(".thing canvas, .lessons li")
            check(page)
        context.close()


def test_writing_is_in_the_first_screen_of_a_phone(browser, server):
    context = browser.new_context(**VIEWS["phone"])
    page = context.new_page()
    page.goto(f"{server}/demo/index.html?write=0")
    page.wait_for_function(READY)
    assert page.evaluate("document.getElementById('generate').getBoundingClientRect().bottom") < 667
    story = page.locator("#story")
    story.evaluate("(e) => { e.textContent = 'line\\n'.repeat(40); }")
    box, line = story.evaluate(
        "(e) => [e.clientHeight, parseFloat(getComputedStyle(e).lineHeight)]"
    )
    assert box / line == pytest.approx(round(box / line), abs=0.05)  # no line is cut
    story.focus()
    page.keyboard.press("End")
    page.wait_for_function("document.getElementById('story').scrollTop > 0")
    context.close()


def test_sample_pictures(visit, server):
    page = open_room(visit, server, "see").page
    page.wait_for_selector("#use-samples:not([disabled])")
    page.fill(".thing >> nth=1 >> input[type=text]", "my keys")
    page.evaluate(TWICE)
    page.wait_for_selector("#samples:not([hidden])")
    page.wait_for_function("document.activeElement.parentElement?.id === 'samples'")
    assert page.inner_text("#figure-examples") == "15"
    names = []
    for i in range(3):
        page.locator("#samples button").nth(i).press("Enter")
        name = page.get_attribute(f"#samples button >> nth={i}", "aria-label").split(" of ")[1]
        page.wait_for_function(f"document.body.dataset.seen === '{name}'")
        names.append(name)
    assert names == ["a cup", "a key", "a leaf"]
    assert page.eval_on_selector_all(".thing > input", VALUES) == ["my keys", *names]
    assert page.is_hidden("#error")


def test_sample_voices(visit, server):
    page = open_room(visit, server, "who").page
    page.wait_for_selector("#use-samples:not([disabled])")
    page.fill(".thing >> nth=0 >> input[type=text]", "my sister")
    page.evaluate(TWICE)
    page.wait_for_function("document.activeElement.parentElement?.id === 'samples'")
    counted(page, "recordings", 6)
    assert page.eval_on_selector_all(".thing > input", VALUES) == ["my sister", "Anna", "Ben"]
    assert page.inner_text("#figure-eer") == "0 %"
    for i, name in enumerate(("Anna", "Ben", "")):  # the last one is a stranger
        page.locator("#samples button").nth(i).press("Enter")
        counted(page, "compared", i + 1)
        assert page.evaluate("document.body.dataset.who") == name


def test_sample_messages(visit, server):
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    for i, text in enumerate(("SOS", "CQ CQ DE EDGEWISE")):
        page.locator("#beep-samples button").nth(i).press("Enter")
        counted(page, "transcripts", i + 1)
        assert page.evaluate("document.body.dataset.heard") == text
    assert page.is_hidden("#samples")  # of speech, which this model does not know
    page.evaluate("document.getElementById('samples').hidden = false")
    page.click("#samples button")
    counted(page, "transcripts", 3)
    length = page.evaluate("document.getElementById('audio').duration")
    assert length == pytest.approx(11, abs=0.2)


def test_a_speakers_words(visit, server):
    """By the keyboard alone; what is held out shows what the lesson was good for."""
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    assert page.is_disabled("#spoken-teach") and page.is_disabled("#spoken-last")
    page.focus("#spoken-sample")
    page.keyboard.press("Enter")
    assert page.inner_text("#spoken-words") == "16 recordings, 8 held out"
    page.focus("#spoken-teach")
    page.keyboard.press("Enter")
    page.wait_for_selector("#spoken-stop:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "spoken-stop"
    counted(page, "taught", 1)
    assert page.evaluate("document.activeElement.id") == "spoken-teach"
    before, after = (int(page.inner_text(f"#spoken-{i}").split()[0]) for i in ("before", "after"))
    assert before > 60 and after < 20
    rows = page.locator("#spoken-rows tr").all_inner_texts()
    assert "hello\thello\thello" in rows and "thanks\ttnx\tthanks" in rows
    check(page)
    page.fill("#words", "TNX")
    page.press("#words", "Enter")
    counted(page, "transcripts", 1)
    assert page.evaluate("document.body.dataset.heard") == "thanks"
    # a lesson that is stopped at once leaves what was learned before
    page.focus("#spoken-teach")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'spoken-stop'")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'spoken-teach'")
    assert page.inner_text("#spoken-note") == "Stopped before it had learned anything new."
    page.fill("#words", "TNX")
    page.press("#words", "Enter")
    counted(page, "transcripts", 2)
    assert page.evaluate("document.body.dataset.heard") == "thanks"
    page.focus("#spoken-last")
    page.keyboard.press("Enter")
    assert page.inner_text("#spoken-words").startswith("17 recordings")
    assert page.evaluate("document.activeElement.value") == "thanks"
    page.uncheck("#spoken-use")
    page.press("#words", "Enter")
    counted(page, "transcripts", 3)
    assert page.evaluate("document.body.dataset.heard") == "tnx"
    with page.expect_download() as saved:
        page.click("#spoken-save")
    assert saved.value.suggested_filename.startswith("adapter_")
    page.click("#sample-again")
    page.wait_for_selector("#spoken-result", state="hidden")


def test_a_lesson_is_stopped(visit, server):
    """While it listens, while it learns, and by another model."""
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    page.click("#spoken-sample")
    idle = "document.getElementById('spoken-stop').hidden"
    listens = "document.getElementById('spoken-note').textContent.startsWith('Listening to')"
    learns = "document.getElementById('spoken-note').textContent.startsWith('Learning')"
    page.click("#spoken-teach")
    page.wait_for_function(listens)
    page.click("#spoken-stop")
    page.wait_for_function(idle)
    assert page.inner_text("#spoken-note") == "Stopped before it had learned anything."
    assert page.is_hidden("#spoken-use") and page.is_hidden("#error")
    page.click("#spoken-teach")
    page.wait_for_function(learns)
    page.click("#spoken-stop")
    counted(page, "taught", 1)  # so many steps
    page.wait_for_function(idle)
    assert page.is_checked("#spoken-use")
    page.click("#spoken-teach")
    page.wait_for_function(learns)
    page.click("#sample-again")
    page.wait_for_selector("#spoken-result", state="hidden")
    page.wait_for_function(idle)
    assert page.is_hidden("#error") and page.evaluate("document.body.dataset.taught") == "1"


def test_the_gpu_report_keeps_the_focus(visit, server):
    page = open_room(visit, server, "see").page
    page.click("footer a")
    page.wait_for_url("**/gpu-report.html")
    page.focus("#measure")
    page.evaluate(
        "document.addEventListener('focusin', (e) => (window.seen ??= []).push(e.target.id))"
    )
    page.keyboard.press("Enter")
    page.wait_for_function("window.seen")
    page.evaluate("document.getElementById('stop').click()")
    page.wait_for_function("seen.join() === 'stop,measure'")


def test_a_whisper_of_ones_own_learns(visit, server, files):
    """From its folder, which Python in the page compiles, and once more when it is to learn."""
    model = files / "own" / "whisper"
    shutil.copytree(MODELS / "whisper", model)
    whisper_texts(model)
    for clip, text in zip(clips(), ("w5 w9", "w33", "w90 w11")):
        save(files / "own" / f"{text}.wav", clip)
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    page.set_input_files("#folder", str(model))
    page.wait_for_function("document.getElementById('model-words').textContent.includes('In use')")
    assert page.is_hidden("#morse") and page.is_visible("#samples")
    sounds = sorted((files / "own").glob("*.wav"))
    page.set_input_files("#spoken-files", [str(path) for path in sounds])
    assert page.inner_text("#spoken-words") == "3 recordings, 1 held out"
    values = page.eval_on_selector_all("#spoken-list [type=text]", "all => all.map((e) => e.value)")
    assert values == [path.stem for path in sounds]
    page.click("details:has(#spoken-steps) summary")
    page.fill("#spoken-steps", "4")
    page.fill("#spoken-language", "en")
    page.click("#spoken-teach")
    counted(page, "taught", 1)
    assert "4 steps" in page.inner_text("#spoken-note")
    for when in ("before", "after"):
        assert page.inner_text(f"#spoken-{when}").endswith("%")
