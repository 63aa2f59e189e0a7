// The files of one model at an address: which of them exist, where they are stored, and that they
// are in use.

import { InputError } from "../../shared/errors.ts";
import type { Warn } from "../../shared/files/cached.ts";
import { isForeign } from "../../shared/files/connection.ts";
import { folder } from "../../shared/files/folders.ts";
import { HttpSource, type KnownFile } from "../../shared/files/http.ts";
import {
  changingLinks,
  type KeptFile,
  type KeptModel,
  linkName,
  readJson,
  use,
  writeJson,
} from "../../shared/files/kept.ts";
import { type ModelAddress, modelAddress } from "../../shared/files/model-address.ts";
import type { OnBytes } from "../../shared/files/stream.ts";
import { digestOf } from "../../shared/sha256.ts";
import { KeptSource } from "./kept-source.ts";
import { Listing, sha256Of } from "./listing.ts";

/** A file at an address. */
export type Remote = HttpSource | KeptSource;

/** Options of {@link Downloads}. */
export interface DownloadOptions {
  /** Whether files are stored; `auto`: those of a hub and of other origins. */
  keep: boolean | "auto";
  /** Aborts downloads; until it fires, the model is marked as used. */
  signal: AbortSignal;
  warn: Warn;
  fetchOptions?: RequestInit | undefined;
}

/** The files of a model. */
export class Downloads {
  readonly model: ModelAddress;
  private keeps: boolean;
  private listing: Listing | undefined;
  private readonly sources: Remote[] = [];

  /** @param url absolute address of the model: a package, an .onnx file or a folder */
  constructor(
    url: string,
    private readonly options: DownloadOptions,
  ) {
    const { keep } = options;
    this.model = modelAddress(url);
    this.keeps = keep === "auto" ? this.model.tree !== undefined || isForeign(url) : keep;
  }

  /**
   * Marks the model as used, and asks its hub for the listing of its files. If all files that are
   * wanted are stored, the listing of the earlier visit is used.
   * @param wanted addresses of the files that will be read
   * @throws Aborted
   */
  async begin(wanted: (listing: Listing) => string[]): Promise<void> {
    const { key, tree, id } = this.model;
    await use(key, this.options.signal);
    if (tree === undefined) {
      // a package of which a release is installed
      this.keeps ||= !!this.options.keep && !!(await readLink(id))?.release;
      return;
    }
    const record = this.keeps ? await readRecord(key) : undefined;
    const before = record && Listing.of(this.model.folder, record);
    if (before && (await this.allKept(wanted(before), before))) this.listing = before;
    else {
      const { fetchListing } = await import("./fetch-listing.ts");
      this.listing = (await fetchListing(this.model, this.fetching)) ?? before;
    }
  }

  private get fetching(): { signal: AbortSignal; fetchOptions: RequestInit | undefined } {
    const { signal, fetchOptions } = this.options;
    return { signal, fetchOptions };
  }

  private async allKept(urls: string[], listing: Listing): Promise<boolean> {
    const kept = await Promise.all(
      urls.map(async (url) => {
        const link = await readLink(url);
        return link?.complete && link.validator === listing.find(url)?.version;
      }),
    );
    return kept.length > 0 && kept.every(Boolean);
  }

  /** Whether a file is completely stored, so that a source of it downloads nothing. */
  async isKept(url: string): Promise<boolean> {
    return this.keeps && !!(await readLink(url))?.complete;
  }

  /** What the hub says of a file; null if it does not exist, undefined if that is not known. */
  known(url: string): KnownFile | null | undefined {
    return this.listing?.find(url);
  }

  /** The hub's listing, if there is one. */
  get listed(): Listing | undefined {
    return this.listing;
  }

  /**
   * A source of a file.
   * @param integrity its expected SHA-256, as `PipelineOptions.integrity`
   * @throws InputError if `integrity` is not a SHA-256
   */
  source(url: string, onBytes?: OnBytes, integrity?: string): Remote {
    const known = this.known(url) ?? undefined;
    const digest = integrity === undefined ? sha256Of(known) : digestOf(integrity);
    if (integrity !== undefined && digest === undefined)
      throw new InputError(
        `the integrity of ${nameOf(url)} is '${integrity.slice(0, 100)}'`,
        "options.integrity",
        "Give a SHA-256 as 64 hexadecimal digits, or as 'sha256-' and base64.",
      );
    const options = { ...this.fetching, onBytes, integrity: digest, known };
    const source = this.keeps
      ? new KeptSource(url, { ...options, model: this.model.key }, this.options.warn)
      : new HttpSource(url, options);
    this.sources.push(source);
    return source;
  }

  /**
   * Records that the model was loaded, where something of it is stored.
   * @param dtype precision of its weights; empty if it has no name
   * @param plans whether compiled plans are stored
   */
  async loaded(dtype: string, plans: boolean): Promise<void> {
    if (!this.keeps && !plans) return;
    const dir = await folder("models", true);
    if (!dir) return;
    const { key, id, revision } = this.model;
    const read = this.keeps ? this.sources.filter((s) => s.size !== undefined) : [];
    const listing = this.keeps ? this.listing?.stored() : undefined;
    await changingLinks(async () => {
      const { loads = {} } = (await readRecord(key)) ?? {};
      const record: KeptModel = {
        ...{ key, id, revision, used: Date.now() },
        loads: { ...loads, [dtype]: read.map(({ url }) => url) },
        ...(listing ? { listing } : {}),
      };
      await writeJson(dir, `${key}.json`, record);
    }).catch(() => undefined); // full storage: the next visit asks the hub again
  }

  /** Closes connections that were opened and not read. */
  close(): void {
    for (const source of this.sources) source.cancel();
  }

  /**
   * Removes stored files after damage was detected.
   * @param all remove partial downloads as well
   */
  async forget(all: boolean): Promise<void> {
    for (const source of this.sources)
      if (source instanceof KeptSource) await (all ? source.forget() : source.distrust());
  }
}

/** The file name in an address. */
export function nameOf(url: string): string {
  return new URL(url).pathname.split("/").pop() ?? url;
}

async function readLink(url: string): Promise<KeptFile | undefined> {
  return readJson(await folder("files", false), `${linkName(url)}.json`);
}

async function readRecord(key: string): Promise<KeptModel | undefined> {
  return readJson(await folder("models", false), `${key}.json`);
}
