"""The rooms of the demo, with the models that come with it."""

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest
from edgewise.cli import main

from ..chromium import CHROMIUM, FLAGS
from .models import TEXTS
from .models import save as save_model

ROOMS = ("index", "chat", "see", "listen", "speak", "who", "draw", "together", "gpu-report")
RATE = 16000
DIST = Path(__file__).parents[3] / "web" / "dist" / "demo"
SHOWN = "!document.getElementById('error').hidden"


@pytest.fixture(scope="module")
def folder(files):
    """Sounds, and models of other tasks."""
    root = files / "rooms"
    root.mkdir()
    for name, pitch, formants in (("anna", 210, (850, 1700)), ("ben", 110, (500, 1100))):
        for i in range(4):
            save(root / f"{name}{i}.wav", voice(pitch * (1 + 0.03 * i), formants, i))
    save(root / "sos.wav", beeps("... --- ..."))
    save(root / "tea.wav", beeps("- . .-"))
    (root / "damaged.wav").write_bytes((root / "sos.wav").read_bytes()[:30])
    (root / "damaged.edge").write_bytes(b"EDGEWISE" + bytes(100))
    return root


def save(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def voice(pitch, formants, seed):
    """Two seconds of vowels: pulses through resonances, in syllables."""
    rng = np.random.default_rng(seed)
    time = np.arange(2 * RATE) / RATE
    phase = np.cumsum(pitch * (1 + 0.05 * np.sin(2 * np.pi * 3 * time)) / RATE)
    sound = np.diff(np.floor(phase), prepend=0.0)
    spectrum = np.fft.rfft(sound)
    frequency = np.fft.rfftfreq(len(sound), 1 / RATE)
    shape = sum(1 / (1 + ((frequency - f) / 90) ** 2) for f in formants)
    sound = np.fft.irfft(spectrum * shape) * (np.sin(2 * np.pi * 2.5 * time) > -0.3)
    return 0.4 * sound / np.abs(sound).max() + rng.normal(0, 1e-3, len(sound))


def beeps(code, unit=0.08):
    """Tones of a Morse code with silence around them."""
    parts = [np.zeros(int(0.5 * RATE))]
    for sign in code:
        length = {".": 1, "-": 3, " ": 0}[sign] * unit
        time = np.arange(int(length * RATE)) / RATE
        rest = 2 if sign == " " else 1
        parts += [0.4 * np.sin(2 * np.pi * 700 * time), np.zeros(int(rest * unit * RATE))]
    return np.concatenate([*parts, np.zeros(int(0.5 * RATE))])


# Within the page, where the pauses are shorter than the one that ends a message, on any machine.
TAP = """
    async (signs) => {
      const pause = (ms) => new Promise((done) => setTimeout(done, ms));
      const space = (kind) =>
        document.body.dispatchEvent(new KeyboardEvent(kind, { code: "Space", bubbles: true }));
      for (const sign of signs) {
        space("keydown");
        await pause(sign === "-" ? 300 : 100);
        space("keyup");
        await pause(100);
      }
    }
"""


def open_room(visit, server, name):
    v = visit(server)
    v.page.goto(f"{server}/demo/{name}.html")
    return v


def counted(page, name, count):
    page.wait_for_function(f"document.body.dataset.{name} === '{count}' || {SHOWN}")
    assert not page.is_visible("#error"), page.inner_text("#error")


def test_the_way_from_room_to_room(visit, server):
    """Each page has the same links, in one line also on a telephone, and marks its own."""
    v = visit(server)
    found = []
    v.page.set_viewport_size({"width": 360, "height": 700})
    for room in ROOMS:
        html = v.page.request.get(f"{server}/demo/{room}.html").text()
        nav = re.search(r"<nav.*?</nav>", html, re.S)[0]
        assert f'href="{room}.html" aria-current="page"' in nav
        found.append(nav.replace(' aria-current="page"', ""))
    assert len(set(found)) == 1 and found[0].count("<a ") == len(ROOMS)
    v.page.goto(f"{server}/demo/together.html")
    end = "document.querySelector('.rooms [aria-current]').getBoundingClientRect().right"
    assert v.page.evaluate(end) <= 360
    v.page.keyboard.press("Tab")
    assert v.page.evaluate("document.activeElement.textContent") == "Write and teach"
    v.page.goto(f"{server}/demo/draw.html")
    tops = v.page.eval_on_selector_all(".rooms a", "all => all.map((a) => a.offsetTop)")
    assert len(set(tops)) == 1
    assert v.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_draw(visit, server, folder):
    page = open_room(visit, server, "draw").page
    page.wait_for_selector("#draw:not([disabled])")
    page.fill("#prompt", "a big red circle in the center")
    page.click("summary")
    page.fill("#seed", "5")
    page.keyboard.press("Enter")  # the form is sent without a mouse
    counted(page, "drawn", 1)
    pixels = "[[128, 128], [4, 4]].map(([x, y]) => [...picture.getContext('2d').getImageData(x, y,"
    read = f"() => {{ const picture = document.getElementById('picture'); return {pixels} 1, 1)"
    middle, corner = page.evaluate(read + ".data]); }")
    assert middle[0] > 180 and max(middle[1:3]) < 70 and min(corner[:3]) > 190
    assert page.inner_text("#figure-step") == "20 of 20" and page.inner_text("#figure-seed") == "5"
    first = page.evaluate("document.getElementById('picture').toDataURL()")
    page.fill("#prompt", "a blue star")
    page.fill("#steps", "10")
    page.fill("#guidance", "2")
    page.fill("#negative", "big")
    page.click("#draw")
    counted(page, "drawn", 2)
    assert page.evaluate("document.getElementById('picture').toDataURL()") != first
    page.locator("#pictures button").nth(1).click()  # brings the first one back
    assert page.evaluate("document.getElementById('picture').toDataURL()") == first
    assert page.input_value("#prompt").startswith("a big red circle")
    settings = [page.input_value(f"#{name}") for name in ("steps", "guidance", "negative", "seed")]
    assert settings == ["20", "3", "", "5"]
    page.fill("#steps", "1000")
    page.click("#draw")
    page.wait_for_function("Number(document.body.dataset.step) > 2")
    page.keyboard.press("Tab")
    page.click("#stop")
    page.wait_for_function("document.getElementById('verdict').textContent === 'Stopped.'")
    page.fill("#steps", "2000")  # more than the model has: the browser refuses it
    page.click("#draw")
    assert page.evaluate("document.getElementById('steps').validity.rangeOverflow")
    page.set_input_files("#files", str(folder / "damaged.edge"))
    page.wait_for_function(SHOWN)
    page.click("#error-close")
    page.fill("#steps", "4")
    page.click("#draw")  # with the model before
    counted(page, "drawn", 3)


@pytest.fixture(scope="module")
def chat_hub(tmp_path_factory):
    """{address within the hub: file} of a model with a chat template, and one that embeds."""
    root = tmp_path_factory.mktemp("hub")
    storyteller = Path(__file__).parents[3] / "web" / "demo" / "model"
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    config = json.loads((storyteller / "tokenizer_config.json").read_text())
    save_model(root / "embed", "feature-extraction")
    (root / "embed" / "1_Pooling").mkdir()
    (root / "embed" / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    module = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (root / "embed" / "modules.json").write_text(json.dumps([module]))
    (root / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    found = {}
    for name, folder in (("demo/teller", storyteller), ("demo/embed", root / "embed")):
        for path in folder.rglob("*"):
            if path.is_file():
                found[f"{name}/resolve/main/{path.relative_to(folder)}"] = path
    found["demo/teller/resolve/main/tokenizer_config.json"] = root / "tokenizer_config.json"
    taking = "{% for t in tools or [] %}<tool_call>{{ t.function.name }}\n{% endfor %}" + template
    (root / "tools.json").write_text(json.dumps({**config, "chat_template": taking}))
    for name, path in list(found.items()):
        found[name.replace("demo/teller", "demo/caller")] = path
    found["demo/caller/resolve/main/tokenizer_config.json"] = root / "tools.json"
    return found


def open_chat(visit, server, hub):
    def serve(route):
        path = hub.get(route.request.url.split("/hub/")[1].split("?")[0])
        route.fulfill(path=path) if path else route.fulfill(status=404)

    v = visit(server)
    v.page.route(re.compile(r"^http://[^/]+/hub/"), serve)
    v.page.goto(
        f"{server}/demo/chat.html?host=/hub/&model=demo/teller&embed=demo/embed&seed=3&most=60"
    )
    v.page.wait_for_selector("#send:not([disabled])")
    return v.page


def test_chat(visit, server, chat_hub):
    """A conversation: what was read is not read again, an answer is made again, a message is
    edited, and an answer is stopped.
    """
    page = open_chat(visit, server, chat_hub)

    def said():
        return page.eval_on_selector_all("#messages .said", "all => all.map((x) => x.textContent)")

    page.fill("#message", "The owl sat on the roof of the house. " * 16 + "It was an owl.")
    page.keyboard.press("Enter")
    counted(page, "answered", 1)
    first = said()
    assert len(first) == 2 and first[0].endswith("an owl.") and len(first[1]) > 20
    assert page.evaluate("document.activeElement.id") == "message"
    page.fill("#message", "And then?")
    page.click("#send")
    counted(page, "answered", 2)
    assert len(said()) == 4 and said()[:2] == first
    kept, prompt = map(int, page.inner_text("#figure-kept").split(" of "))
    assert 0 < kept < prompt
    page.click("#again")
    counted(page, "answered", 3)
    assert len(said()) == 4 and said()[:3] == [*first, "And then?"]
    page.click("#messages .user button >> nth=0")  # edits the first message
    assert said() == [] and page.input_value("#message") == first[0]
    page.fill("#message", "The fox")
    page.evaluate("""() => {  // presses Stop once there is some text
        const messages = document.querySelector("#messages");
        new MutationObserver((_, observer) => {
          if (!messages.querySelectorAll(".said")[1]?.textContent) return;
          observer.disconnect();
          document.querySelector("#stop").click();
        }).observe(messages, { childList: true, characterData: true, subtree: true });
    }""")
    page.keyboard.press("Enter")
    counted(page, "answered", 4)
    assert len(said()) == 2 and page.is_disabled("#stop")
    page.focus("#again")  # by the keyboard alone: the focus goes to Stop and back
    page.keyboard.press("Enter")
    counted(page, "answered", 5)
    assert page.evaluate("document.activeElement.id") == "again"
    before = said()
    long = "The owl sat on the roof. " * 300
    page.fill("#message", long)
    page.press("#message", "Enter")
    page.wait_for_function(SHOWN)
    assert "a sequence of the model at most" in page.inner_text("#error-what")
    assert said() == before and page.input_value("#message") == long.strip()
    page.click("#error-close")
    assert page.is_hidden("#left-out")
    page.fill("#message", long[:1650])  # the model reads it, but not what was before
    page.press("#message", "Enter")
    counted(page, "answered", 6)
    assert page.is_visible("#left-out") and len(said()) == 4
    page.click("#clear")
    assert said() == []


def test_chat_answers_from_documents_and_fills_a_form(visit, server, chat_hub):
    page = open_chat(visit, server, chat_hub)
    texts = {"fox.txt": TEXTS[0], "long.txt": " ".join(TEXTS * 6)}
    page.set_input_files(
        "#documents",
        [{"name": n, "mimeType": "text/plain", "buffer": t.encode()} for n, t in texts.items()],
    )
    page.wait_for_function("document.getElementById('documents-words').textContent")
    page.fill("#message", TEXTS[0])
    page.keyboard.press("Enter")
    counted(page, "answered", 1)
    assert "fox.txt" in page.inner_text("#messages .sources")
    assert TEXTS[0] == page.inner_text("#messages .user .said")
    page.click("#forget")
    page.wait_for_function("!document.getElementById('documents-words').textContent")
    page.click("#fill")
    counted(page, "filled", 1)
    assert 1 <= int(page.input_value("#field-guests")) <= 20
    page.check("#tool")
    page.fill("#message", "Draw a circle")
    page.keyboard.press("Enter")  # the template has no tools: the arguments follow the schema
    counted(page, "answered", 2)
    counted(page, "drawn", 1)
    assert page.inner_text("#messages .tool").endswith("circle is drawn.")
    page.goto(page.url.replace("demo/teller", "demo/caller"))  # this one's template has tools
    page.wait_for_selector("#send:not([disabled])")
    page.check("#tool")
    page.fill("#message", "A story of a cat.")
    page.keyboard.press("Enter")
    counted(page, "answered", 1)  # it may call, and tells a story
    assert len(page.inner_text("#messages .assistant .said")) > 20
    assert page.locator("#messages .tool").count() == 0


def test_chat_learns_from_thumbs(visit, server, chat_hub):
    """By the keyboard alone. What it learned can be taken away again."""
    page = open_chat(visit, server, chat_hub)

    def ask(words, number):
        page.fill("#message", words)
        page.keyboard.press("Enter")
        counted(page, "answered", number)
        return page.inner_text("#messages .assistant:last-child .said")

    first = ask("The owl sat on the roof.", 1)
    assert page.is_disabled("#learn")
    page.focus("#messages .thumbs button >> nth=1")
    page.keyboard.press("Enter")
    assert page.inner_text("#thumbs-words").startswith("0 good and 1 bad answer. ")
    assert page.get_attribute("#messages .thumbs button >> nth=1", "aria-pressed") == "true"
    second = ask("A cat had a boat.", 2)
    page.focus("#messages .thumbs button >> nth=2")
    page.keyboard.press("Space")
    assert page.inner_text("#thumbs-words") == "1 good and 1 bad answers."
    page.focus("#learn")
    page.keyboard.press("Enter")
    counted(page, "learned", 1)
    words = page.inner_text("#thumbs-words")
    found = re.search(r"^Learned from 2 answers in 30 steps .* ([\d.]+) to ([\d.]+)\.$", words)
    assert float(found[1]) == 0.5 and float(found[2]) < 0.3  # KTO's loss begins with 0.5
    assert page.evaluate("document.activeElement.id") == "learn"
    page.click("#seen summary")
    page.wait_for_selector("#seen-view mark")
    marked = page.eval_on_selector_all("#seen-view mark", "all => all.map((x) => x.textContent)")
    ends = [m.removesuffix("assistant:").strip() for m in marked]  # as this template ends chats
    assert ends == [first.strip(), second.strip()]
    page.click("#clear")
    learned = ask("The owl sat on the roof.", 3)
    page.uncheck("#learned")
    page.wait_for_function("document.getElementById('thumbs-words').textContent.includes('came')")
    page.click("#clear")
    assert ask("The owl sat on the roof.", 4) == first != learned


def test_a_model_that_was_chosen_later_stays(visit, server, folder):
    """Although the model before comes after it."""
    (folder / "mine.edge").write_bytes((DIST / "draw.edge").read_bytes())
    v = visit(server)
    held = []
    v.page.route("**/demo/draw.edge", lambda route: held.append(route))
    v.page.goto(f"{server}/demo/draw.html")
    while not held:
        v.page.wait_for_timeout(50)
    v.page.set_input_files("#files", str(folder / "mine.edge"))
    v.page.wait_for_selector("#draw:not([disabled])")
    v.page.wait_for_function("document.getElementById('status').textContent.includes('ready')")
    assert v.page.is_hidden("#starts")
    held[0].continue_()
    v.page.wait_for_load_state("networkidle")
    v.page.wait_for_timeout(1500)
    assert v.page.is_hidden("#starts") and "mine.edge" in v.page.inner_text("#model-words")
    v.page.click("#draw")
    counted(v.page, "drawn", 1)


def test_who_speaks(visit, server, folder):
    page = open_room(visit, server, "who").page
    page.wait_for_selector("#listen:not([disabled])")
    for i, name in enumerate(("anna", "ben")):
        voice = page.locator(".thing").nth(i)
        voice.locator("input[type=text]").fill(name)
        voice.locator("input[type=file]").set_input_files(
            [str(folder / f"{name}{k}.wav") for k in range(3)]
        )
        counted(page, "recordings", 3 * (i + 1))
    assert page.inner_text("#figure-eer") == "0 %"
    tried = 0
    for name in ("anna", "ben"):
        page.set_input_files("#try", str(folder / f"{name}3.wav"))
        tried += 1
        counted(page, "compared", tried)
        assert page.evaluate("document.body.dataset.who") == name
        assert name in page.inner_text("#verdict")
    (folder / "other.edge").write_bytes((DIST / "voice.edge").read_bytes())
    page.set_input_files("#files", str(folder / "other.edge"))
    page.wait_for_function("document.getElementById('model-words').textContent.includes('other')")
    page.set_input_files("#files", str(folder / "damaged.edge"))
    page.wait_for_function(SHOWN)
    page.click("#error-close")
    assert page.inner_text("#figure-clips") == "6" and page.inner_text("#figure-eer") == "0 %"
    page.set_input_files("#try", str(folder / "ben3.wav"))
    counted(page, "compared", 3)
    assert page.evaluate("document.body.dataset.who") == "ben"
    page.locator("#threshold").press("End")  # nobody is that sure
    assert page.inner_text("#verdict") == "It is nobody of these."
    with page.expect_download() as saved:
        page.click("#save")
    found = json.loads(saved.value.path().read_text())["voices"]
    assert list(found) == ["anna", "ben"] and abs(np.linalg.norm(found["ben"]) - 1) < 1e-5
    page.set_input_files("#try", str(folder / "damaged.wav"))
    page.wait_for_function(SHOWN)
    assert "damaged" in page.inner_text("#error-what")
    page.click("#error-close")
    page.keyboard.press("1")  # records, but there is no microphone
    page.wait_for_function(SHOWN)
    assert "microphone" in page.inner_text("#error-where")
    page.reload()
    page.wait_for_selector("#listen:not([disabled])")
    page.set_input_files("#open", str(folder / "sos.wav"))
    page.wait_for_function(SHOWN)
    page.click("#error-close")
    page.set_input_files("#open", saved.value.path())
    page.wait_for_function("document.getElementById('figure-voices').textContent === '2'")
    page.set_input_files("#try", str(folder / "ben3.wav"))
    counted(page, "compared", 1)
    assert page.evaluate("document.body.dataset.who") == "ben"


def test_listen(visit, server, folder):
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    page.fill("#words", "sos 42")
    page.keyboard.press("Enter")
    counted(page, "transcripts", 1)
    assert page.evaluate("document.body.dataset.heard") == "SOS 42"
    times = page.eval_on_selector_all("ruby", "all => all.map((one) => one.dataset.start)")
    # SOS takes 27 units of 0.08 s, after 0.4 s of silence
    assert [float(t) for t in times] == pytest.approx([0.4, 0.4 + 34 * 0.08], abs=0.15)
    page.set_input_files("#sound", str(folder / "sos.wav"))
    counted(page, "transcripts", 2)
    assert page.evaluate("document.body.dataset.heard") == "SOS"
    page.fill("#words", "€")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('morse-note').textContent.includes('€')")
    page.set_input_files("#sound", str(folder / "damaged.wav"))
    page.wait_for_function(SHOWN)
    page.click("#error-close")
    page.keyboard.press("m")
    page.wait_for_function(SHOWN)
    assert "microphone" in page.inner_text("#error-where")
    page.click("#error-close")
    page.evaluate("document.activeElement.blur()")
    page.evaluate(TAP, "...---...")  # an S, an O and an S, with the space bar
    counted(page, "transcripts", 3)
    page.keyboard.down("Space")
    page.wait_for_timeout(100)
    page.evaluate("window.dispatchEvent(new Event('blur'))")  # which takes the keyup away
    counted(page, "transcripts", 4)
    page.keyboard.up("Space")
    page.set_input_files("#sound", str(folder / "tea.wav"))
    counted(page, "transcripts", 5)
    assert page.evaluate("document.body.dataset.heard") == "TEA"


def test_words_are_chosen_with_the_keyboard(visit, server, folder):
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    page.fill("#words", "to be")
    page.keyboard.press("Enter")
    counted(page, "transcripts", 1)
    page.evaluate("document.getElementById('audio').pause()")
    page.focus("#text")
    starts = page.eval_on_selector_all("ruby", "all => all.map((one) => Number(one.dataset.start))")
    page.evaluate("document.getElementById('audio').currentTime = 0")
    for press, start in (("Right", 0), ("Right", 1), ("Left", 0)):
        page.keyboard.press(f"Arrow{press}")
        page.wait_for_function(
            f"Math.abs(document.getElementById('audio').currentTime - {starts[start]}) < 0.01"
        )
    page.wait_for_function("document.querySelectorAll('ruby.now').length === 1")


def test_a_model_of_another_task(visit, server, folder):
    from pipelines import tiny_audio
    from pipelines.sounds.test_ctc import VOCABULARY

    (folder / "tiny").mkdir()
    tiny_audio.make_ctc(folder / "tiny", "Wav2Vec2", VOCABULARY, True, False)
    main(["build", "--task", "asr", str(folder / "tiny"), "--max-length", "2", "-o"]
         + [str(folder / "tiny.edge")])  # fmt: skip
    page = open_room(visit, server, "listen").page
    page.wait_for_selector("#beep:not([disabled])")
    page.set_input_files("#files", str(folder / "tiny.edge"))
    page.wait_for_function("document.getElementById('morse').hidden")
    assert "tiny.edge" in page.inner_text("#model-words")
    page.set_input_files("#sound", str(folder / "sos.wav"))
    counted(page, "transcripts", 1)
    page.click("#sample-again")
    page.wait_for_function("!document.getElementById('morse').hidden")
    page = open_room(visit, server, "who").page
    page.wait_for_selector("#listen:not([disabled])")
    page.set_input_files("#files", str(folder / "tiny.edge"))
    page.wait_for_function(SHOWN)
    assert "automatic-speech-recognition" in page.inner_text("#error")


def test_a_microphone(playwright, built, server, folder):
    """A voice is recorded, and beeps are read while they are heard."""
    flags = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    flags += [f"--use-file-for-fake-audio-capture={folder / 'sos.wav'}"]
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
    page = browser.new_page()
    page.goto(f"{server}/demo/listen.html")
    page.wait_for_selector("#microphone:not([disabled])")
    page.click("#microphone")
    page.wait_for_timeout(1000)
    page.set_input_files("#sound", str(folder / "tea.wav"))  # nobody wants the recording any more
    counted(page, "transcripts", 1)
    page.wait_for_timeout(1000)
    assert page.evaluate("document.body.dataset.heard") == "TEA"
    assert page.inner_text("#microphone") == "Use the microphone"
    page.evaluate("document.body.dataset.transcripts = 0")
    page.click("#microphone")
    page.wait_for_function("document.getElementById('partial').textContent.includes('SOS')")
    page.click("#microphone")
    counted(page, "transcripts", 1)
    assert "SOS" in page.evaluate("document.body.dataset.heard")
    page.goto(f"{server}/demo/who.html")
    page.wait_for_selector("#listen:not([disabled])")
    page.keyboard.press("1")
    page.wait_for_function("document.querySelector('.take').textContent === 'Stop'")
    page.wait_for_timeout(1500)
    page.keyboard.press("1")
    counted(page, "recordings", 1)
    page.click("#listen")
    page.wait_for_function("document.body.dataset.who === 'me'")
    page.click("#listen")
    page.wait_for_function("document.getElementById('listen').textContent === 'Who is it?'")
    page.keyboard.press("1")
    page.wait_for_timeout(1500)
    page.locator(".thing .plain", has_text="Remove").first.click()  # with what it records
    page.wait_for_timeout(500)
    assert page.inner_text("#figure-clips") == "0" and not page.is_visible("#error")
    assert page.evaluate("document.body.dataset.recordings") == "1"
    browser.close()
