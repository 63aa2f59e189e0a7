// The files of a session's model: the .onnx and what lies beside it, as they were given or at
// addresses. From there they are read as a stream, or, for the compiler, which reads here and
// there, as Blobs.

import { ModelError, StorageError } from "../../shared/errors.ts";
import { type HttpSource, NotFound } from "../../shared/files/http.ts";
import { BlobSource, toBlob } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import type { KeptSource } from "../files/storage.ts";
import { notThere } from "../model/not-there.ts";

type Fetched = HttpSource | KeptSource;

/** Files of one model, by the names that it calls them. */
export class ModelFiles {
  /** The .onnx file's name. */
  readonly name: string;
  /**
   * Of files from servers that tell versions of a file apart: what stands for the one that this
   * session uses.
   */
  private readonly marks = new Map<string, string>();
  /** Opened, and not yet read. */
  private readonly opened = new Map<string, Fetched>();
  private readonly whole = new Map<string, Blob>();

  /**
   * @param external addresses or files of what lies beside `model`; what is not given is looked for
   *   beside the model's address. @param fetching how addresses are read
   */
  constructor(
    private readonly model: string | Blob,
    private readonly external: Record<string, Blob | string>,
    private readonly fetching: (url: string) => Fetched,
  ) {
    this.name =
      typeof model === "string"
        ? fetching(model).name
        : model instanceof File
          ? model.name
          : "model";
    if (model instanceof Blob) this.whole.set(this.name, model);
    for (const [name, file] of Object.entries(external))
      if (file instanceof Blob) this.whole.set(name, file);
  }

  /** Files that are here as a whole. */
  get blobs(): ReadonlyMap<string, Blob> {
    return this.whole;
  }

  /** Those of them that only their bytes tell apart from other versions. */
  unmarked(): Map<string, Blob> {
    return new Map([...this.whole].filter(([name]) => !this.marks.has(name)));
  }

  /**
   * What stands for the version of a file; undefined where only its bytes do, or it is nowhere.
   * @throws ModelError
   */
  async mark(name: string): Promise<string | undefined> {
    if (!this.marks.has(name)) await this.open(name);
    return this.marks.get(name);
  }

  /** Bytes of a file, where known before they have come. @throws ModelError */
  async size(name: string): Promise<number | undefined> {
    return (this.whole.get(name) ?? (await this.open(name)))?.size;
  }

  /** Marks of all files that were looked at. */
  get marked(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.marks);
  }

  /**
   * What tells this model from others before it is read, apart from the contents of `unmarked()`.
   * @throws ModelError
   */
  async identity(): Promise<Record<string, unknown>> {
    const mark = await this.mark(this.name);
    const external = Object.entries(this.external)
      .map(([name, file]) => [name, file instanceof Blob ? file.size : file])
      .sort();
    return {
      model: typeof this.model === "string" ? this.model : this.name,
      external,
      ...(mark === undefined ? { size: (await this.blob(this.name))!.size } : { mark }),
    };
  }

  /**
   * A file as a stream; undefined where it is not known where to look for it. @throws ModelError:
   * it is not there, or not what it was
   */
  async stream(name: string): Promise<ByteSource | undefined> {
    const blob = this.whole.get(name);
    if (blob) return new BlobSource(blob, name);
    const source = await this.open(name);
    this.opened.delete(name);
    return source;
  }

  /** A file as a whole, and so from now on; undefined as in `stream`. @throws ModelError */
  async blob(name: string): Promise<Blob | undefined> {
    if (!this.whole.has(name)) {
      const source = await this.stream(name);
      if (!source) return undefined;
      const blob = toBlob(source).catch(async (e: unknown) => {
        // what was kept of it was damaged, and is not kept any more
        if (!(e instanceof StorageError)) throw e;
        return toBlob((await this.stream(name))!);
      });
      this.whole.set(name, await blob);
    }
    return this.whole.get(name);
  }

  /** Lets go of connections that nobody reads. */
  close(): void {
    for (const source of this.opened.values()) if ("cancel" in source) source.cancel();
    this.opened.clear();
  }

  private address(name: string): string | undefined {
    const given =
      name === this.name
        ? this.model
        : Object.hasOwn(this.external, name)
          ? this.external[name]
          : undefined;
    if (given !== undefined || typeof this.model !== "string")
      return typeof given === "string" ? given : undefined;
    const url = new URL(encodeURI(name), this.model).href;
    // what the model says leads nowhere else
    return url.startsWith(new URL(".", this.model).href) ? url : undefined;
  }

  private async open(name: string): Promise<Fetched | undefined> {
    if (this.whole.has(name)) return undefined;
    const url = this.address(name);
    let source = this.opened.get(name);
    if (source || url === undefined) return source;
    source = this.fetching(url);
    try {
      await source.open();
    } catch (e) {
      throw e instanceof NotFound ? notThere(e) : e;
    }
    const before = this.marks.get(name);
    if (source.validator !== undefined && source.size !== undefined)
      this.marks.set(name, `${source.validator} ${source.size}`);
    if (before !== undefined && before !== this.marks.get(name))
      throw new ModelError(
        "the file changed on the server since the session was made",
        url,
        "Make a new session.",
      );
    this.opened.set(name, source);
    return source;
  }
}
