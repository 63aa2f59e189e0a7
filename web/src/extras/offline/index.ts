/**
 * Edgewise offline: a page that starts without a network, and is cross-origin isolated on any
 * server.
 *
 * ```js
 * import { keepOffline, registerServiceWorker } from "edgewise/offline";
 * await registerServiceWorker("sw.js"); // the file of the package, served by your site
 * await keepOffline(); // when the page has loaded what it needs
 * ```
 * @module
 */

import { WORKER_PARTS } from "../../gen/worker_parts.ts";
import { StorageError } from "../../shared/errors.ts";
import { chooseBuild, fileName, platform, WIDE_FLAVOUR } from "../../shared/platform.ts";
import { trusted, trustedRemedy } from "../../shared/trusted.ts";
import { message } from "../../shared/words.ts";
import { cachePrefix, type KeepAnswer, type KeepRequest, type KeptFiles } from "./messages.ts";

export type { KeptFiles } from "./messages.ts";

/** Options of {@link registerServiceWorker}. */
export interface RegisterOptions {
  /**
   * Send the headers for cross-origin isolation with documents and workers that have none. Default:
   * true.
   */
  isolate?: boolean;
  /**
   * Reload the page, once, if it is not isolated yet. Otherwise it is from the next visit on.
   * Default: true.
   */
  reload?: boolean;
  /** Path that the service worker controls. Default: the folder of its script. */
  scope?: string;
}

const RELOADED = "edgewise reloaded to be isolated";
const RELOAD_MS = 10_000;

/**
 * Registers Edgewise's service worker and waits until it is active.
 * @param url address of sw.js, on the page's origin; the worker controls pages in its folder
 * @param options see {@link RegisterOptions}
 * @returns the registration; undefined where the browser has no service workers (a page without
 *   HTTPS that is not on localhost, some private windows)
 * @throws StorageError if the browser refuses it: the script is missing, or not JavaScript
 */
export async function registerServiceWorker(
  url: string | URL = "sw.js",
  { isolate = true, reload = true, scope }: RegisterOptions = {},
): Promise<ServiceWorkerRegistration | undefined> {
  const { serviceWorker: container } = navigator;
  if (!container) return undefined;
  const script = new URL(url, document.baseURI);
  if (!isolate) script.searchParams.set("isolate", "no");
  const failed = (why: string): StorageError =>
    new StorageError(
      `the service worker could not be registered (${why})`,
      script.href,
      trustedRemedy() ?? "Serve the package's file dist/sw.js there, from the page's own origin.",
    );
  const options = { updateViaCache: "none" as const, ...(scope === undefined ? {} : { scope }) };
  const registration = await container
    .register(trusted(script.href), options)
    .catch((e: unknown) => Promise.reject(failed(message(e))));
  const worker = registration.active ?? registration.waiting ?? registration.installing;
  if (!worker || !(await activated(worker))) throw failed("it did not start");
  if (isolate && reload) await reloadToIsolate(registration.scope);
  return registration;
}

/** Waits for a worker to become active; false if it was discarded. */
function activated(worker: ServiceWorker): Promise<boolean> {
  return new Promise((resolve) => {
    const check = (): void => {
      if (worker.state === "activated" || worker.state === "redundant") {
        worker.removeEventListener("statechange", check);
        resolve(worker.state === "activated");
      }
    };
    worker.addEventListener("statechange", check);
    check();
  });
}

/** Reloads a page that is not isolated, once per tab: the reloaded document has the headers. */
async function reloadToIsolate(scope: string): Promise<void> {
  if (globalThis.crossOriginIsolated) return sessionStorage.removeItem(RELOADED);
  if (!location.href.startsWith(scope) || sessionStorage.getItem(RELOADED)) return;
  sessionStorage.setItem(RELOADED, "yes");
  location.reload();
  await new Promise((resolve) => setTimeout(resolve, RELOAD_MS));
}

/**
 * Keeps the page's files for visits without a network: the document, all files of the page's origin
 * that it has loaded so far (scripts, styles, fonts, images, workers), the engine, the parts of the
 * worker (`worker-*.js`), and `files`; with more than 3 GB in the page's storage, also the engine
 * for models beyond 4 GB.
 * Copies of an earlier call are refreshed; without a network they stay as they are. Call it when
 * the page has loaded what it needs, on every visit. Models are not kept here: load them with
 * `cache_files: true`.
 * @param files further files, relative to the page; on the page's origin
 * @returns number of files that are kept, and whether some changed
 * @throws StorageError if there is no active service worker, a file cannot be fetched, or the
 *   storage is full; earlier copies are intact
 */
export async function keepOffline(files: Iterable<string | URL> = []): Promise<KeptFiles> {
  const list = new Set([document.location.href, ...(await loaded())]);
  for (const file of files) list.add(new URL(file, document.baseURI).href);
  const request: KeepRequest = { type: "edgewise keep", files: Array.from(list, withoutHash) };
  let result: KeepAnswer | undefined;
  while (!result) {
    const registration = await navigator.serviceWorker?.getRegistration();
    if (!registration?.active)
      throw new StorageError(
        "there is no active service worker for this page",
        document.baseURI,
        "Await registerServiceWorker(), with a sw.js in the folder of the page or above it.",
      );
    result = await ask(registration.active, request);
  }
  if ("error" in result)
    throw new StorageError(
      `the page could not be kept for visits without a network (${result.error})`,
      document.baseURI,
      "Check the network and the browser's free space; what was kept before is intact.",
    );
  return result;
}

/** The answer of a worker; undefined if a new version replaces it meanwhile. */
function ask(worker: ServiceWorker, request: KeepRequest): Promise<KeepAnswer | undefined> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    const end = (answer: KeepAnswer | undefined): void => {
      worker.removeEventListener("statechange", replaced);
      port1.close();
      resolve(answer);
    };
    const replaced = (): void => {
      if (worker.state === "redundant") end(undefined);
    };
    port1.onmessage = ({ data }) => end(data as KeepAnswer);
    worker.addEventListener("statechange", replaced);
    worker.postMessage(request, [port2]);
  });
}

/**
 * Deletes the kept files and removes the service worker of this page.
 * @returns whether there was one
 */
export async function forgetOffline(): Promise<boolean> {
  const registration = await navigator.serviceWorker?.getRegistration();
  if (!registration) return false;
  const prefix = cachePrefix(registration.scope);
  for (const name of await caches.keys()) if (name.startsWith(prefix)) await caches.delete(name);
  return registration.unregister();
}

const FILES = new Set(["css", "img", "link", "script", "other"]); // what elements and workers load
const MODULE = new URL(import.meta.url);
const MANY_BYTES = 3e9; // of files with which a model may need more than 4 GB of memory

/**
 * The files of the page's origin that it has loaded; where it has loaded worker.js, the engine and
 * the worker's parts too, which the page may need later, and the engine with 64-bit addresses where
 * so much is stored that a model may need it.
 */
async function loaded(): Promise<Set<string>> {
  const found = new Set<string>();
  for (const entry of performance.getEntriesByType("resource") as PerformanceResourceTiming[]) {
    const url = new URL(entry.name);
    if (url.origin === location.origin && FILES.has(entry.initiatorType)) found.add(url.href);
  }
  // What workers fetch is not among the page's entries.
  if (found.has(new URL("worker.js", MODULE).href)) {
    const have = platform();
    const engines = [chooseBuild(have).flavour];
    const { usage = 0 } = (await navigator.storage?.estimate?.().catch(() => undefined)) ?? {};
    if (have.wide && usage > MANY_BYTES) engines.push(WIDE_FLAVOUR);
    for (const build of engines) found.add(new URL(`engine/${fileName(build)}`, MODULE).href);
    for (const name of WORKER_PARTS) found.add(new URL(`${name}.js`, MODULE).href);
  }
  return found;
}

function withoutHash(url: string): string {
  return url.split("#")[0]!;
}
