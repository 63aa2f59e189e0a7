// Scripts of workers, from this origin or another.

import { EngineError } from "./errors.ts";
import { trustedRemedy } from "./trusted.ts";
import { seconds, stallTimeout, within } from "./watchdog.ts";
import { message, networkRemedy } from "./words.ts";

const PATIENCE = 4; // in stall timeouts: a script shows no progress

/** What to do about a worker that cannot be started. */
export function workerRemedy(url: string): string {
  const trust = trustedRemedy();
  if (trust) return trust;
  const policy = "the page's Content-Security-Policy";
  // an origin of its own, where Chromium starts no module as a worker
  if (url.startsWith("blob:null/"))
    return "Serve the page over HTTP, not from a file or in a sandbox without allow-same-origin.";
  return url.startsWith("blob:")
    ? `Allow \`worker-src blob:\` in ${policy}, or use the build that has its worker in a file ` +
        "(edgewise/files)."
    : networkRemedy(
        "Serve worker.js beside edgewise.js, or set env.workerUrl, and allow it in " +
          `${policy} (worker-src); then make a new pipeline.`,
      );
}

const copies = new Map<string, Promise<string>>();

/**
 * The address that a worker can be started from. Browsers refuse a script of another origin: it is
 * downloaded and given an address of the page's own, as is one that has to have a hash.
 * @param integrity the hash, as in `<script integrity>`
 * @throws EngineError
 */
export function workerScript(url: string, name: string, integrity = ""): Promise<string> {
  const { origin } = globalThis.location ?? {};
  const near = origin === undefined || !/^https?:/.test(url) || new URL(url).origin === origin;
  if (near && !integrity) return Promise.resolve(url);
  let copy = copies.get(url);
  if (!copy) {
    copy = download(url, name, integrity);
    copies.set(url, copy);
    copy.catch(() => copies.delete(url));
  }
  return copy;
}

async function download(url: string, name: string, integrity: string): Promise<string> {
  const failed = (why: string): EngineError =>
    new EngineError(
      `the script ${name} could not be fetched (${why})`,
      url,
      `Check the network; serve ${name} from the page's origin, or with CORS headers.`,
    );
  const patience = PATIENCE * stallTimeout();
  const silent = (): Error => failed(`no data arrived for ${seconds(patience)}`);
  const get = async (): Promise<string> => {
    const response = await fetch(url, { integrity }).catch((e: unknown) =>
      Promise.reject(failed(message(e))),
    );
    if (!response.ok) throw failed(`HTTP ${response.status}`);
    return response.text();
  };
  const text = await within(get(), silent, patience);
  return URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
}
