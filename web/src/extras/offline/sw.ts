// sw.js: a service worker that lets a page start without a network, and makes it cross-origin
// isolated where its server cannot send the headers. offline.js registers it.
//
// Every request goes to the network first, with the browser's HTTP cache as without a service
// worker. The kept copies answer only if the network does not, so a page that is online never gets
// an older file. Files of models do not pass through here: they are large, requested in ranges, and
// stored by the library itself (`cache_files`).

import { VERSION } from "../../shared/version.ts";
import { message } from "../../shared/words.ts";
import { cachePrefix, type KeepAnswer, type KeepRequest, type KeptFiles } from "./messages.ts";

const worker = self as unknown as ServiceWorkerGlobalScope;

const PREFIX = cachePrefix(worker.registration.scope);
/** Marks a cache that is complete. */
const COMPLETE = "edgewise-complete";
/** Header of a copy: when the page last named the file. */
const NAMED = "edgewise-named";
const MODEL = /\.(edge|onnx|onnx_data|data|bin|safetensors)$/;
/** Requests whose responses decide about isolation. */
const ISOLATED = new Set(["document", "iframe", "frame", "worker", "sharedworker"]);
/** Statuses of a gateway whose server does not answer. */
const UNREACHABLE = new Set([502, 503, 504]);
/** How long a server may take if there is a copy. */
const PATIENCE_MS = 4000;
const DAY_MS = 86_400_000;
/** A file that the page has not named for this long is dropped. */
const FORGET_MS = 30 * DAY_MS;

const isolates = new URL(worker.location.href).searchParams.get("isolate") !== "no";
/** Clients whose server did not answer: their further requests try the copies first. */
const cutOff = new Set<string>();

// No skipWaiting: a new version takes over when all pages of the old one are closed. Otherwise the
// browser ends the old one amid its responses, and a page that is being loaded never ends loading.
// No clients.claim: in Firefox it waits for the engine's threads, which sleep. No navigation
// preload: with it Firefox shows its error page when the server does not answer.

worker.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== worker.location.origin) return;
  if (request.headers.has("range") || MODEL.test(pathname)) return;
  if (request.cache === "only-if-cached" && request.mode !== "same-origin") return;
  event.respondWith(answer(event));
});

worker.addEventListener("message", (event) => {
  const { type, files } = (event.data ?? {}) as Partial<KeepRequest>;
  const [port] = event.ports;
  if (type !== "edgewise keep" || !files || !port) return;
  const work = keep(files).catch((e): KeepAnswer => ({ error: message(e) }));
  event.waitUntil(work.then((result: KeepAnswer) => port.postMessage(result)));
});

// Responses

async function answer(event: FetchEvent): Promise<Response> {
  const response = await networkFirst(event);
  const { status } = response;
  // A redirect is followed by the browser; its response cannot be read.
  if (!isolates || status === 0 || !ISOLATED.has(event.request.destination)) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of [
    ["Cross-Origin-Opener-Policy", "same-origin"],
    ["Cross-Origin-Embedder-Policy", "require-corp"],
    ["Cross-Origin-Resource-Policy", "same-origin"],
  ] as const)
    if (!headers.has(name)) headers.set(name, value);
  return new Response(response.body, { status, statusText: response.statusText, headers });
}

async function networkFirst(event: FetchEvent): Promise<Response> {
  const { request, clientId, resultingClientId } = event;
  const client = resultingClientId || clientId;
  if (request.mode !== "navigate" && cutOff.has(clientId)) {
    const copy = await find(request);
    if (copy) {
      cutOff.add(client);
      return copy;
    }
  }
  const network = fetch(request);
  const response = await Promise.race([network, pause(PATIENCE_MS)]).catch(() => undefined);
  if (response && !UNREACHABLE.has(response.status)) return response;
  const copy = await find(request);
  if (!copy) return response ?? network;
  cutOff.add(client);
  return copy;
}

/** The kept copy of a file. A document whose query is not kept is found without it. */
async function find(request: Request): Promise<Response | undefined> {
  const cache = await current();
  const exact = await cache?.match(request, { ignoreVary: true });
  if (exact || request.mode !== "navigate") return exact;
  return cache?.match(request, { ignoreVary: true, ignoreSearch: true });
}

const pause = (ms: number): Promise<undefined> =>
  new Promise((resolve) => setTimeout(() => resolve(undefined), ms));

// Copies: a cache for each generation, which is complete before the previous one is deleted

async function generations(): Promise<string[]> {
  return (await caches.keys()).filter((name) => name.startsWith(PREFIX));
}

/** The latest complete generation. */
async function current(): Promise<Cache | undefined> {
  for (const name of (await generations()).reverse()) {
    const cache = await caches.open(name);
    if (await cache.match(COMPLETE)) return cache;
  }
  return undefined;
}

let working: Promise<unknown> = Promise.resolve();

/** Keeps the files, and refreshes those that are kept already. Calls run one after the other. */
function keep(files: readonly string[]): Promise<KeptFiles> {
  const work = working.then(() => renew(files));
  working = work.catch(() => undefined);
  return work;
}

/** Time at which the page last listed each file, for stored and newly listed files. */
async function namedFiles(cache: Cache | undefined, files: readonly string[], now: number) {
  const named = new Map<string, number>();
  for (const request of (await cache?.keys()) ?? []) {
    const time = Number((await cache!.match(request))?.headers.get(NAMED));
    if (now - time < FORGET_MS) named.set(request.url, time);
  }
  for (const url of files) named.set(url, now);
  return named;
}

async function renew(files: readonly string[]): Promise<KeptFiles> {
  const now = Date.now();
  const before = await current();
  const named = await namedFiles(before, files, now);
  const found = await Promise.all(
    Array.from(named, ([url, time]) => latest(url, time, time === now, before)),
  ).catch(async (e: unknown) => {
    // Without a network a visit changes nothing, if all of its files are kept.
    const copies = await Promise.all(
      files.map((url) => before?.match(url, { ignoreSearch: true })),
    );
    if (e instanceof TypeError && copies.every(Boolean)) return undefined;
    throw e;
  });
  if (!found) return { files: named.size, changed: false };
  const copies = found.filter((one) => one !== undefined);
  if (before && copies.length === found.length && copies.every((one) => !one.changed))
    return { files: copies.length, changed: false };
  const name = `${PREFIX}${VERSION} ${now}`;
  const cache = await caches.open(name);
  try {
    await Promise.all(copies.map(({ url, response }) => cache.put(url, response)));
    await cache.put(COMPLETE, new Response());
  } catch (e) {
    await caches.delete(name);
    throw e;
  }
  for (const old of await generations()) if (old !== name) await caches.delete(old);
  return { files: copies.length, changed: true };
}

/**
 * The server's version of a file; undefined if it is gone and not `needed`: it belongs to an
 * earlier version of the page. Bodies are read at once: unread ones would block connections.
 */
async function latest(url: string, time: number, needed: boolean, before: Cache | undefined) {
  const response = await fetch(url);
  const { status } = response;
  if ((status === 404 || status === 410) && !needed) return undefined;
  if (!response.ok) throw new Error(`${url}: HTTP ${status}`);
  const copy = await before?.match(url);
  if (copy && sameVersion(response, copy, time)) {
    void response.body?.cancel();
    return { url, response: copy, changed: false };
  }
  const headers = new Headers(response.headers);
  headers.set(NAMED, String(time));
  // a new response: browsers refuse a redirected one for a document
  return { url, response: new Response(await response.arrayBuffer(), { headers }), changed: true };
}

/** Whether a copy has the server's version, and its time need not be renewed either. */
function sameVersion({ headers }: Response, copy: Response, time: number): boolean {
  const version = headers.get("ETag") ?? headers.get("Last-Modified");
  const kept = copy.headers.get("ETag") ?? copy.headers.get("Last-Modified");
  return version !== null && version === kept && time - Number(copy.headers.get(NAMED)) < DAY_MS;
}
