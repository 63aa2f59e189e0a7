// In the page: continues the text before the caret of the focused field. Escape stops it. The
// pieces come from the page that runs the model, not through the background.

import { client } from "edgewise/extension";

const field = focused(document);
if (field) void writeOn(field);

/** The focused element, in open shadow roots as well. */
function focused(root) {
  const { activeElement } = root;
  return activeElement?.shadowRoot ? focused(activeElement.shadowRoot) : activeElement;
}

async function writeOn(element) {
  const controller = new AbortController();
  const stop = (event) => event.key === "Escape" && controller.abort();
  addEventListener("keydown", stop, true);
  const { call, close } = client({ start: () => undefined }); // the background has started it
  try {
    await call(
      "write",
      { prompt: textBefore(element) },
      {
        signal: controller.signal,
        // Pieces that were on their way when Escape was pressed are not inserted.
        onEvent: (piece) => controller.signal.aborted || insert(element, piece),
      },
    );
  } catch (e) {
    if (e.name !== "Aborted") tell(e.message);
  }
  removeEventListener("keydown", stop, true);
  close();
}

/** The text before the caret. */
function textBefore(element) {
  if ("selectionStart" in element) return element.value.slice(0, element.selectionEnd);
  const caret = getSelection().getRangeAt(0);
  const range = document.createRange();
  range.setStart(element, 0);
  range.setEnd(caret.endContainer, caret.endOffset);
  return range.toString();
}

/** Inserts at the caret, as if it was typed: the page is notified. */
function insert(element, piece) {
  if ("setRangeText" in element) {
    const { selectionEnd } = element;
    element.setRangeText(piece, selectionEnd, selectionEnd, "end");
    element.dispatchEvent(new InputEvent("input", { bubbles: true, data: piece }));
  } else {
    getSelection().collapseToEnd();
    document.execCommand("insertText", false, piece);
  }
}

/** Shows a message for a while. */
function tell(text) {
  const note = document.createElement("div");
  note.setAttribute("role", "alert");
  note.style.cssText =
    "position:fixed;inset:auto 1rem 1rem auto;z-index:2147483647;max-width:24rem;" +
    "padding:.8rem 1rem;background:#fdf0ee;color:#a32a1f;" +
    "font:15px/1.4 system-ui,sans-serif;border-radius:8px";
  note.textContent = `Edgewise writer: ${text}`;
  document.documentElement.append(note);
  setTimeout(() => note.remove(), 8000);
}
