// The context of loading a model: request, abort, progress and downloads.

import type { LoadRequest } from "../../protocol/loading.ts";
import { PackageError } from "../../shared/errors.ts";
import { BlobSource, type Handed, HandedSource } from "../../shared/files/source.ts";
import { Compiler } from "../compiler-client.ts";
import { Downloads, nameOf, type Remote } from "../files/downloads.ts";
import type { Listing } from "../files/listing.ts";
import { type Progress, Reports } from "../files/reports.ts";
import { Tokenizer } from "../text/tokenizer.ts";

export type { Progress };
export type Texts = Map<string, string>;

/** The context of loading a model: request, abort, progress and downloads. */
export class Job {
  readonly model: string;
  /** Made as soon as its files are available, so that a damaged one is reported early. */
  tokenizer: Tokenizer | undefined;
  private compiler: Compiler | undefined;
  private found: Downloads | undefined;
  private readonly reports: Reports;

  constructor(
    readonly request: LoadRequest,
    readonly signal: AbortSignal,
    readonly progress: Progress,
  ) {
    this.model =
      typeof request.model === "string"
        ? request.model
        : "port" in request.model
          ? request.model.name
          : (request.model[0]?.name ?? "files");
    this.reports = new Reports(this.model, progress);
  }

  warn = (text: string): void =>
    this.progress({ status: "warning", name: this.model, message: text });

  /** The compiler. Requesting it early lets it start while files are being downloaded. */
  python(): Compiler {
    return (this.compiler ??= new Compiler(this.request.urls, this.signal));
  }

  end(): void {
    this.compiler?.end();
  }

  /** Ends the compiler, and closes connections that were not read. */
  close(): void {
    this.end();
    this.found?.close();
  }

  /**
   * Removes stored files of this model after damage was detected. A package is a single file, so
   * even a partial download of it is removed.
   */
  async forget(e: unknown): Promise<void> {
    await this.found?.forget(e instanceof PackageError);
  }

  /** The files of the model, if it has an address. */
  get downloads(): Downloads | undefined {
    return this.found;
  }

  /**
   * Begins to download a model.
   * @param url address of the package or the folder
   * @param wanted addresses of the files of a hub's listing that will be read
   */
  async begin(url: string, wanted: (listing: Listing) => string[]): Promise<Downloads> {
    const { cache_files: keep, fetch_options: fetchOptions } = this.request;
    const { signal, warn } = this;
    const found = new Downloads(url, { keep, signal, warn, fetchOptions });
    this.found = found;
    await found.begin(wanted);
    for (const file of found.listed ? wanted(found.listed) : []) {
      const total = found.known(file)?.size;
      if (total !== undefined) this.reports.expect(nameOf(file), total);
    }
    return found;
  }

  /** Makes the tokenizer. Only text generation requires one here. */
  readTexts(texts: Texts, where: string): Tokenizer | undefined {
    const { task } = this.request;
    if (task !== "text-generation" && !texts.has("tokenizer.json")) return undefined;
    if (task === "text-to-speech") return undefined; // its package has the vocabulary
    return (this.tokenizer ??= new Tokenizer(
      texts.get("tokenizer.json"),
      texts.get("tokenizer_config.json"),
      texts.get("chat_template.jinja"),
      where,
      texts.get("special_tokens_map.json"),
      texts.get("chat_template.json"),
    ));
  }

  /** A source of a file of the model that `begin` has begun. */
  http(url: string): Remote {
    const file = nameOf(url);
    const { integrity } = this.request;
    const wanted =
      typeof integrity === "string"
        ? /\.(onnx|edge)$/.test(file)
          ? integrity
          : undefined
        : integrity?.[file];
    return this.found!.source(url, this.reports.of(file), wanted);
  }

  blob(blob: Blob, name: string): BlobSource {
    return new BlobSource(blob, name, { signal: this.signal, onBytes: this.reports.of(name) });
  }

  handed(handed: Handed): HandedSource {
    return new HandedSource(handed, { signal: this.signal, onBytes: this.reports.of(handed.name) });
  }
}
