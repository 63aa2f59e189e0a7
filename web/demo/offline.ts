// The demo without a network: its files are kept by the service worker, its model by the library.

import { info, models } from "edgewise";
import { keepOffline, registerServiceWorker } from "edgewise/offline";
import { keepModels, PATIENCE_MS } from "./models.ts";

const VERSION = "edgewise demo"; // and a path, in localStorage: the latest version that was loaded

/**
 * The address of the demo's model with the server's version of it. A kept file is used without
 * asking the server, so another version needs another address. Without a network: the version that
 * was loaded last.
 */
export async function versioned(url: URL): Promise<URL> {
  const version = await serverVersion(url);
  const key = `${VERSION} ${url.pathname}`;
  if (version) {
    try {
      localStorage.setItem(key, version);
    } catch {
      // the model is fetched on each visit
    }
  }
  const known = version ?? localStorage.getItem(key);
  const result = new URL(url);
  if (known) result.searchParams.set("version", known);
  return result;
}

async function serverVersion(url: URL): Promise<string | undefined> {
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const { ok, headers } = await fetch(url, { method: "HEAD", cache: "no-cache", signal });
    return ok ? (headers.get("ETag") ?? headers.get("Last-Modified") ?? undefined) : undefined;
  } catch {
    return undefined; // no network, or a very slow one
  }
}

/** Deletes the versions of a model that `versioned` has named before. */
export async function forgetOtherVersions(current: URL): Promise<void> {
  const prefix = `${current.origin}${current.pathname}?`;
  // one that another tab uses is deleted later
  for (const { id } of await models.list())
    if (id.startsWith(prefix) && id !== current.href) await models.delete(id).catch(() => 0);
}

/** What the other rooms need: they may be visited later. */
function roomFiles(): string[] {
  const links = [...document.querySelectorAll<HTMLAnchorElement>(".rooms a")];
  const rooms = links.map((a) => a.getAttribute("href")!).filter((name) => name !== "index.html");
  return [
    `../engine/edgewise-${info.flavour}-full.wasm`, // pictures and sounds
    ...rooms.flatMap((page) => [page, page.replace(".html", ".js")]),
    "rooms.css",
    "../phonemes.js",
    "samples/kennedy.mp3",
  ];
}

/**
 * Starts the service worker, and keeps the files of this page for visits without a network.
 * @returns whether the browser can do that
 */
export async function keepPage(): Promise<boolean> {
  // The demo's server sends the headers for isolation. On a server that does not, the page has
  // threads from the second visit on: a reload would interrupt the story.
  if (!(await registerServiceWorker("../sw.js", { reload: false }))) return false;
  await keepOffline(["app.webmanifest", "icon-192.png", "icon-512.png", ...roomFiles()]);
  // models do not pass through the service worker
  const rooms = ["see", "voice", "morse", "learner", "draw", "speak"];
  await keepModels(rooms.map((name) => `${name}.edge`));
  return true;
}
