"""Real models in the rooms: the button that loads one, which was made with the page or is the
hub's. The models of these tests are the rooms' own.
"""

import json

import pytest

from .test_rooms import SHOWN, open_room

MADE = {
    "listen": ("morse.edge", "Whisper tiny.en: English speech"),
    "see": ("see.edge", "EfficientNet-Lite0"),
    "who": ("voice.edge", "Resemblyzer: real voices"),
    "speak": ("speak.edge", "Piper's voice Joe: American English"),
}


def listed(page, entries):
    page.route(
        "**/demo/real/models.json",
        lambda route: route.fulfill(body=json.dumps(entries), content_type="application/json"),
    )


@pytest.mark.parametrize("room", MADE)
def test_made_with_the_page(visit, server, room):
    file, title = MADE[room]
    v = visit(server)
    entry = {"name": "it", "room": room, "title": title, "licence": "MIT"}
    others = {**entry, "room": "other", "title": "Another", "file": "none.edge", "bytes": 1}
    listed(v.page, [others, {**entry, "file": f"../{file}", "bytes": 12_300_000}])
    v.page.goto(f"{server}/demo/{room}.html")
    button = v.page.locator("#real")
    button.wait_for()
    assert button.inner_text().startswith(title) and "12 MB (MIT)" in button.inner_text()
    button.click()
    v.page.wait_for_selector("#sample-again:visible")
    words = v.page.inner_text("#model-words")
    assert words.startswith("In use:") and file in words
    assert not v.page.is_visible("#error")
    v.page.click("#sample-again")
    v.page.wait_for_selector("#sample-again", state="hidden")


@pytest.mark.parametrize("room", MADE)
def test_of_the_hub(visit, server, room):
    """Without a model that was made with the page, the button names one of the hub; where that
    cannot be reached, an error says so, and the model before stays.
    """
    v = visit(server)
    listed(v.page, [])
    v.page.goto(f"{server}/demo/{room}.html")
    v.page.locator("#real").wait_for()
    assert "from the hub" in v.page.inner_text("#real")
    v.page.wait_for_function("document.getElementById('status').textContent.includes('ready')")
    v.page.click("#real")
    v.page.wait_for_function(SHOWN)
    assert "hub" in v.page.inner_text("#error") or "network" in v.page.inner_text("#error")
    assert v.page.is_hidden("#sample-again")


@pytest.mark.parametrize("made", ["HuggingFaceTB/SmolLM2-135M-Instruct", "a/b"])
def test_chat_takes_them_as_its_hub(visit, server, made):
    """Those that were made with the page alone: other ids are of the hub."""
    v = open_room(visit, server, "chat")
    asked = []
    v.page.route("**/demo/real/hub/**", lambda r: (asked.append(r.request.url), r.abort()))
    listed(v.page, [{"room": "chat", "name": "it", "file": f"hub/{made}/resolve/main"}])
    v.page.goto(f"{server}/demo/chat.html")
    v.page.click("#load")
    v.page.wait_for_function(SHOWN)
    assert any(f"real/hub/{made}" in url for url in asked) == (made != "a/b")
