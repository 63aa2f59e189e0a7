// Everything that leaves the page on behalf of a hybrid passes here, and is written down.

import { InputError } from "../../shared/errors.ts";

/** A request that left the page. */
export interface LedgerEntry {
  /** When, in milliseconds since 1970. */
  at: number;
  /** Where to. */
  url: string;
  /** Bytes of the body. */
  bytes: number;
}

const MAX_ENTRIES = 1000;

/** The requests of one hybrid, the oldest first; the last 1000 are kept. */
export class Egress {
  readonly entries: LedgerEntry[] = [];

  /**
   * Sends a request. It takes no cookies and no referrer along, and follows no redirect: what is
   * sent goes to the address that the page named, or nowhere.
   * @throws TypeError as fetch does
   */
  send(
    url: URL,
    body: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Response> {
    const data = typeof body === "string" ? new TextEncoder().encode(body) : body;
    this.entries.push({ at: Date.now(), url: url.href, bytes: data.length });
    if (this.entries.length > MAX_ENTRIES) this.entries.shift();
    return fetch(url, {
      method: "POST",
      headers,
      body: data,
      signal,
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error",
      cache: "no-store",
    });
  }
}

/**
 * The address of an API.
 * @throws InputError if it is none, or texts would travel unencrypted to another machine
 */
export function address(base: string | URL, where: string): URL {
  let url: URL;
  try {
    url = new URL(String(base), globalThis.location?.href);
  } catch {
    throw new InputError(`${String(base).slice(0, 80)} is not an address`, where, "Give a URL.");
  }
  const local = /^(localhost|127\.0\.0\.1|\[::1\])$/.test(url.hostname);
  const own = url.origin === globalThis.location?.origin;
  if (url.protocol !== "https:" && !(url.protocol === "http:" && (local || own)))
    throw new InputError(
      `what is sent to ${url.origin} could be read on the way`,
      where,
      "Use https.",
    );
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}
