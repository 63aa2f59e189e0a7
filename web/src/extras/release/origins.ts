// Fetches files of a repository from several origins. A file that broke off goes on where it ended,
// at the next origin and in the next visit.

import { aborted, sleep, throwIfAborted } from "../../shared/abort.ts";
import { removeFrom } from "../../shared/files/folders.ts";
import type { Folder } from "../../shared/files/stored.ts";
import { stalled, within } from "../../shared/watchdog.ts";
import { message } from "../../shared/words.ts";
import { ReleaseError } from "./errors.ts";
import { digest } from "./keys.ts";
import type { StoredObject } from "./manifest.ts";

type Bytes = Uint8Array<ArrayBuffer>;

const ATTEMPTS = 2; // for each origin
const PAUSE = 50; // milliseconds

/** How a repository is asked. */
export interface OriginOptions {
  fetch: typeof fetch;
  /** Beginning of the names of files in `parts`, so that releases do not share any. */
  prefix: string;
  fetchOptions?: RequestInit | undefined;
  signal?: AbortSignal | undefined;
}

/** A file that is arriving. */
class Arriving {
  at = 0;

  constructor(readonly bytes: Bytes) {}

  add(chunk: Uint8Array, where: string): void {
    if (this.at + chunk.length > this.bytes.length)
      throw new ReleaseError("mismatch", `more than ${this.bytes.length} bytes arrived`, where);
    this.bytes.set(chunk, this.at);
    this.at += chunk.length;
  }
}

/** The origins of a repository. */
export class Origins {
  /** Bytes that have arrived. */
  received = 0;

  /**
   * @param addresses ending in a slash, the preferred one first
   * @param parts folder for what has arrived of a file
   */
  constructor(
    readonly addresses: readonly string[],
    private readonly parts: Folder,
    private readonly options: OriginOptions,
  ) {}

  get signal(): AbortSignal | undefined {
    return this.options.signal;
  }

  /** @throws Aborted, ReleaseError (download) */
  private async request(url: string, init: RequestInit): Promise<Response> {
    const { signal, fetchOptions } = this.options;
    throwIfAborted(signal);
    const all = { ...fetchOptions, ...init, ...(signal ? { signal } : {}) };
    return within(this.options.fetch(url, all), () => stalled("the server", url));
  }

  /** Reads the body of a response into a file; `skip`: bytes that the file has already. */
  private async receive(response: Response, to: Arriving, skip: number): Promise<void> {
    const reader = response.body?.getReader();
    if (!reader) return;
    try {
      for (;;) {
        const { done, value } = await within(reader.read(), () =>
          stalled("the server", response.url),
        );
        if (done) return;
        throwIfAborted(this.options.signal);
        const rest = value.subarray(Math.min(skip, value.length));
        skip -= value.length - rest.length;
        to.add(rest, response.url);
        this.received += rest.length;
      }
    } finally {
      reader.cancel().catch(() => undefined);
    }
  }

  /**
   * Reads metadata from one origin. It is never served from a cache: it would look like an attack.
   * @returns undefined if it does not exist
   * @throws Aborted, ReleaseError (download)
   */
  async metadata(origin: string, path: string, most: number): Promise<Bytes | undefined> {
    const url = origin + path;
    const file = new Arriving(new Uint8Array(most));
    try {
      const response = await this.request(url, { cache: "no-store" });
      if (response.status === 404 || response.status === 403) return undefined;
      if (!response.ok) throw new Error(`the server answers ${response.status}`);
      await this.receive(response, file, 0);
      return file.bytes.slice(0, file.at);
    } catch (e) {
      throw this.problem(e, url);
    }
  }

  private problem(e: unknown, url: string): Error {
    const { signal } = this.options;
    if (signal?.aborted) return aborted(signal);
    if (e instanceof ReleaseError) return e;
    return new ReleaseError("download", message(e), url, "What has arrived is kept: try again.");
  }

  /**
   * An object of the repository.
   * @throws Aborted, ReleaseError (download, mismatch) if no origin has it
   */
  async object(stored: StoredObject, path: string): Promise<Bytes> {
    const part = `${this.options.prefix}${stored.sha256}.part`;
    const file = new Arriving(new Uint8Array(stored.bytes));
    const before = await this.parts.read(part).catch(() => undefined);
    if (before && before.size <= stored.bytes)
      file.add(new Uint8Array(await before.arrayBuffer()), part);
    let problem: Error | undefined;
    const kept = file.at;
    try {
      for (let n = 0; n < ATTEMPTS * this.addresses.length; n++) {
        const url = this.addresses[n % this.addresses.length]! + path;
        try {
          await this.complete(url, file, stored.sha256);
          if (kept) await removeFrom(this.parts, part);
          return file.bytes;
        } catch (e) {
          problem = this.problem(e, url);
          throwIfAborted(this.options.signal);
          if (n + 1 < ATTEMPTS * this.addresses.length) await sleep(PAUSE, this.options.signal);
        }
      }
    } catch (e) {
      problem = e as Error;
    }
    await this.keep(part, file);
    throw problem;
  }

  /** Keeps what has arrived for the next visit. */
  private async keep(part: string, { at, bytes }: Arriving): Promise<void> {
    if (at) await this.parts.write(part, new Blob([bytes.slice(0, at)])).catch(() => undefined);
    else await removeFrom(this.parts, part);
  }

  /**
   * Reads the rest of a file. Where what came from elsewhere does not belong to it, this origin is
   * asked for all of it: else another one could spoil every file.
   */
  private async complete(url: string, file: Arriving, sha256: string): Promise<void> {
    for (let again = file.at > 0; ; again = false) {
      await this.append(url, file);
      if ((await digest(file.bytes)) === sha256) return;
      file.at = 0;
      if (!again) throw new ReleaseError("mismatch", "its bytes do not match their SHA-256", url);
    }
  }

  private async append(url: string, file: Arriving): Promise<void> {
    const { at, bytes } = file;
    if (at === bytes.length) return;
    const response = await this.request(url, at ? { headers: { Range: `bytes=${at}-` } } : {});
    const ranged = response.status === 206;
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    const from = /^bytes (\d+)-/.exec(response.headers.get("Content-Range") ?? "")?.[1];
    // a header that pages may not read (CORS): the digest tells whether the server did as asked
    if (ranged && from !== undefined && Number(from) !== at)
      throw new Error(`the server answers from byte ${from}, not ${at}`);
    await this.receive(response, file, ranged ? 0 : at);
    if (file.at < bytes.length)
      throw new Error(`it ended after ${file.at} of ${bytes.length} bytes`);
  }
}
