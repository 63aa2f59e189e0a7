// Chrome's offscreen document: the page of an extension that may start workers and stays alive.

import { api } from "./api.ts";

const opening = new Map<string, Promise<void>>();

/**
 * Opens the extension's offscreen document unless it is open; returns once its scripts have run. An
 * extension has at most one. Where there is no such document (Firefox, whose background page runs
 * the model) this does nothing. Not available to content scripts.
 * @param url path of the document in the extension
 */
export function ensureOffscreen(url = "offscreen.html"): Promise<void> {
  let open = opening.get(url);
  if (!open) {
    open = openOffscreen(url).finally(() => opening.delete(url));
    opening.set(url, open);
  }
  return open;
}

async function openOffscreen(url: string): Promise<void> {
  const { offscreen, runtime } = api();
  if (!offscreen || !runtime.getContexts) return;
  const isOpen = async (): Promise<boolean> =>
    (
      await runtime.getContexts!({
        contextTypes: ["OFFSCREEN_DOCUMENT"],
        documentUrls: [runtime.getURL(url)],
      })
    ).length > 0;
  if (await isOpen()) return;
  try {
    await offscreen.createDocument({
      url,
      reasons: ["WORKERS"],
      justification: "Runs a model in a worker, which a service worker cannot start",
    });
  } catch (e) {
    // another part of the extension was faster
    if (!(await isOpen())) throw e;
  }
}
