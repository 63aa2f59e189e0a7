// The context of loading a model: request, abort, progress and downloads.

import type { LoadRequest, ProgressEvent } from "../../protocol/loading.ts";
import { InputError, PackageError } from "../../shared/errors.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { HttpSource } from "../../shared/files/http.ts";
import { BlobSource, type Handed, HandedSource } from "../../shared/files/source.ts";
import { readAll } from "../../shared/files/stream.ts";
import { digestOf } from "../../shared/sha256.ts";
import { Compiler } from "../compiler-client.ts";
import { KeptSource } from "../files/kept-source.ts";
import { parseConfig, Tokenizer } from "../text/tokenizer.ts";
import { notThere } from "./not-there.ts";

export type Progress = (event: ProgressEvent) => void;
export type Texts = Map<string, string>;

/** The context of loading a model: request, abort, progress and downloads. */
export class Job {
  readonly model: string;
  /** Made as soon as its files are available, so that a damaged one is reported early. */
  tokenizer: Tokenizer | undefined;
  private compiler: Compiler | undefined;
  private readonly opened: (HttpSource | KeptSource)[] = [];

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
    for (const source of this.opened) source.cancel();
  }

  /**
   * Removes stored files of this model after damage was detected. A package is a single file, so
   * even a partial download of it is removed.
   */
  async forget(e: unknown): Promise<void> {
    for (const source of this.opened)
      if (source instanceof KeptSource)
        await (e instanceof PackageError ? source.forget() : source.distrust());
  }

  readTexts(texts: Texts, where: string): Tokenizer {
    return (this.tokenizer ??= new Tokenizer(
      texts.get("tokenizer.json"),
      texts.get("tokenizer_config.json"),
      texts.get("chat_template.jinja"),
      where,
      texts.get("special_tokens_map.json"),
    ));
  }

  http(url: string, keep: boolean): HttpSource | KeptSource {
    const file = new URL(url).pathname.split("/").pop() ?? url;
    const { integrity, fetch_options: fetchOptions } = this.request;
    const wanted =
      typeof integrity === "string"
        ? /\.(onnx|edge)$/.test(file)
          ? integrity
          : undefined
        : integrity?.[file];
    const digest = wanted === undefined ? undefined : digestOf(wanted);
    if (wanted !== undefined && digest === undefined)
      throw new InputError(
        `the integrity of ${file} is '${wanted.slice(0, 100)}'`,
        "options.integrity",
        "Give a SHA-256 as 64 hexadecimal digits, or as 'sha256-' and base64.",
      );
    const options = {
      signal: this.signal,
      onBytes: this.reporter(file),
      integrity: digest,
      fetchOptions,
    };
    const source =
      keep && this.request.cache_files
        ? new KeptSource(url, options, this.warn)
        : new HttpSource(url, options);
    this.opened.push(source);
    return source;
  }

  blob(blob: Blob, name: string): BlobSource {
    return new BlobSource(blob, name, { signal: this.signal, onBytes: this.reporter(name) });
  }

  handed(handed: Handed): HandedSource {
    return new HandedSource(handed, { signal: this.signal, onBytes: this.reporter(handed.name) });
  }

  /** A callback that reports progress of a file, at most every 50 ms. */
  private reporter(file: string): (loaded: number, total: number | undefined) => void {
    let last = 0;
    let begun = false;
    this.progress({ status: "initiate", name: this.model, file });
    return (loaded, total) => {
      const now = performance.now();
      if (!begun) this.progress({ status: "download", name: this.model, file });
      begun = true;
      const end = loaded === total;
      if (!end && now - last < 50) return;
      last = now;
      this.progress({
        status: "progress",
        name: this.model,
        file,
        progress: total ? (100 * loaded) / total : 0,
        loaded,
        total: total ?? 0,
      });
      if (end) this.progress({ status: "done", name: this.model, file });
    };
  }

  /** Downloads the text files of a folder. Missing ones are reported later, where required. */
  async texts(folder: string): Promise<Texts> {
    const texts: Texts = new Map();
    const get = async (name: string) => {
      const url = new URL(name, folder).href;
      try {
        texts.set(name, new TextDecoder().decode(await readAll(this.http(url, true), 256 << 20)));
      } catch (e) {
        if (!(e instanceof NotFound)) throw e;
        if (![403, 404, 410].includes(e.status)) throw notThere(e);
      }
    };
    await Promise.all(
      ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"].map(get),
    );
    const config = texts.get("tokenizer_config.json");
    // Since 2025 templates may have their own file, which is requested only if the config has no
    // chat_template field (null means that there is none).
    if (
      config !== undefined &&
      !("chat_template" in parseConfig(config, new URL("tokenizer_config.json", folder).href))
    )
      await get("chat_template.jinja");
    return texts;
  }
}
