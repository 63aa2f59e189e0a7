"""The room Speak, with the voice that comes with it."""

import io
import wave

import numpy as np

from .test_rooms import SHOWN, counted, open_room


def opened(visit, server):
    page = open_room(visit, server, "speak").page
    page.wait_for_selector("#read:not([disabled])")
    return page


def test_a_text_is_read(visit, server):
    """Sentence by sentence: the one that is heard is marked, and shows its phonemes."""
    page = opened(visit, server)
    page.fill("#words", "One two. Three apples?")
    page.press("#words", "Control+Enter")
    assert page.evaluate("document.activeElement.id") == "words"
    page.wait_for_function("document.querySelector('#spoken .now')")
    assert page.inner_text("#phonemes").startswith("wˈʌn tˈuː")
    page.wait_for_selector("#read:visible")  # all was heard
    counted(page, "heard", 2)
    assert page.inner_text("#spoken").strip() == "One two. Three apples?"
    assert page.locator("#spoken .now").count() == 0
    with page.expect_download() as saved:
        page.click("#save")
    with wave.open(io.BytesIO(saved.value.path().read_bytes())) as file:
        samples = np.frombuffer(file.readframes(1 << 24), "<i2") / 32768
        assert file.getframerate() == 16000
    assert 1 < len(samples) / 16000 < 6 and 0.05 < np.abs(samples).max() < 1
    length = float(page.inner_text("#figure-sound").split()[0])
    assert abs(length - len(samples) / 16000) < 0.1


def test_it_is_stopped(visit, server):
    """By Escape, by the button, by another text; and begins again."""
    page = opened(visit, server)
    for press in ("Escape", None):
        page.click("#texts button >> nth=0")
        page.wait_for_function("document.querySelector('#spoken .now')")
        if press:
            page.keyboard.press(press)
        else:
            page.click("#stop")
        page.wait_for_selector("#read:visible")
        assert page.locator("#spoken .now").count() == 0
    page.click("#texts button >> nth=0")
    page.wait_for_function("document.querySelector('#spoken .now')")
    page.click("#texts button >> nth=2")  # while it speaks
    page.wait_for_function("document.getElementById('spoken').textContent.startsWith('Can you')")
    page.wait_for_selector("#read:visible")
    assert "wind" not in page.inner_text("#spoken") and page.is_hidden("#error")


def test_a_text_of_a_file(visit, server):
    """As much of it as is read; the page says if that is not all."""
    page = opened(visit, server)
    for length in (20_001, 20_000):
        file = {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a" * length}
        page.set_input_files("#text-file", file)
        page.wait_for_selector("#cut", state="visible" if length > 20_000 else "hidden")
        assert len(page.input_value("#words")) == 20_000


def test_what_cannot_be_read(visit, server):
    page = opened(visit, server)
    for text, words in (("  ", "There is no text"), ("\u732b \u72ac", "There is nothing to say")):
        page.fill("#words", text)
        page.click("#read")
        page.wait_for_function(SHOWN)
        assert words in page.inner_text("#error-what")
        page.click("#error-close")
        page.wait_for_selector("#read:visible")
    page.set_input_files("#lexicon", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a b"})
    page.wait_for_function(SHOWN)
    assert page.inner_text("#error-where") == "lexicon"
    page.click("#error-close")
    lexicon = "qwx\tkwˈɪks\n".encode()
    page.set_input_files("#lexicon", {"name": "a.txt", "mimeType": "text/plain", "buffer": lexicon})
    page.wait_for_function("document.getElementById('lexicon-words').textContent === '1 words'")
    page.fill("#words", "qwx")
    page.click("#read")
    page.wait_for_function("document.getElementById('phonemes').textContent === 'kwˈɪks'")
