// The page of the model, an offscreen document: a service worker ends when it is idle.
import { pipeline } from "./edgewise/edgewise.js";
import { serve } from "./edgewise/extension.js";

// made by: edgewise build MODEL -o src/model.edge
const model = pipeline("text-generation", chrome.runtime.getURL("model.edge"));

serve({
  /** Answers the messages of a chat; emits the pieces. */
  async answer(messages, { emit, signal }) {
    const write = await model;
    await write(messages, { max_new_tokens: 200, streamer: emit, signal });
  },
});
