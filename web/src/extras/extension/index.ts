/**
 * Edgewise in browser extensions: one page of the extension runs the model, and every other part
 * (side panel, popup, content script, background) calls it through a port of its own. A call
 * streams events and can be aborted. No call passes through the service worker, so the browser may
 * end that at any time.
 *
 * ```js
 * // offscreen.js (Chrome), or the background page (Firefox)
 * serve({ write: (prompt, { emit, signal }) => model(prompt, { streamer: emit, signal }) });
 *
 * // panel.js
 * const { call } = client();
 * await call("write", "Once upon a time", { onEvent: (piece) => story.append(piece) });
 * ```
 * @module
 */

export type { Sender } from "./api.ts";
export {
  type CallOptions,
  type Client,
  type ClientOptions,
  client,
  RemoteError,
} from "./client.ts";
export { ensureOffscreen } from "./offscreen.ts";
export { type CallContext, type Handlers, serve } from "./serve.ts";
