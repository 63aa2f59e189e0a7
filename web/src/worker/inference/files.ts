// The files of a session's model: the .onnx file and external data, given or at addresses. They are
// read as streams, or as Blobs by the compiler, which needs random access.

import { ModelError, StorageError } from "../../shared/errors.ts";
import { NotFound } from "../../shared/files/connection.ts";
import { modelAddress } from "../../shared/files/model-address.ts";
import { BlobSource, toBlob } from "../../shared/files/source.ts";
import type { ByteSource } from "../../shared/files/stream.ts";
import { nameOf, type Remote } from "../files/downloads.ts";
import { notThere } from "../model/not-there.ts";

/** Files of one model, by the names used in the model. */
export class ModelFiles {
  /** Name of the .onnx file. */
  readonly name: string;
  /** Identification of the version in use of each file from a server that provides one. */
  private readonly marks = new Map<string, string>();
  /** Sources that are open but not yet read. */
  private readonly opened = new Map<string, Remote>();
  private readonly whole = new Map<string, Blob>();

  /**
   * @param model address or content of the .onnx file
   * @param external addresses or contents of external data; other files are looked up in the
   *   folder of the model's address
   * @param fetching makes a source of an address
   * @param isKept whether the file of an address is completely in the browser's storage
   */
  constructor(
    private readonly model: string | Blob,
    private readonly external: Record<string, Blob | string>,
    private readonly fetching: (url: string) => Remote,
    private readonly isKept: (url: string) => Promise<boolean> = async () => false,
  ) {
    this.name =
      typeof model === "string" ? nameOf(model) : model instanceof File ? model.name : "model";
    if (model instanceof Blob) this.whole.set(this.name, model);
    for (const [name, file] of Object.entries(external))
      if (file instanceof Blob) this.whole.set(name, file);
  }

  /** Whether a session of the same files would download none of them. */
  async local(): Promise<boolean> {
    const names = new Set([this.name, ...Object.keys(this.external), ...this.marks.keys()]);
    for (const name of names) {
      const url = this.address(name);
      if (url !== undefined && !(await this.isKept(url))) return false;
    }
    return true;
  }

  /** Files that are completely available. */
  get blobs(): ReadonlyMap<string, Blob> {
    return this.whole;
  }

  /** Those of them whose version is identified by their content only. */
  unmarked(): Map<string, Blob> {
    return new Map([...this.whole].filter(([name]) => !this.marks.has(name)));
  }

  /**
   * Identification of the version of a file; undefined if only its content identifies it, or the
   * file does not exist.
   * @throws ModelError
   */
  async mark(name: string): Promise<string | undefined> {
    if (!this.marks.has(name)) await this.open(name);
    return this.marks.get(name);
  }

  /**
   * Size of a file in bytes, if known in advance.
   * @throws ModelError
   */
  async size(name: string): Promise<number | undefined> {
    return (this.whole.get(name) ?? (await this.open(name)))?.size;
  }

  /**
   * Bytes of the files that are known by now: about those of the weights.
   * @throws ModelError
   */
  async bytes(): Promise<number> {
    const names = new Set([this.name, ...Object.keys(this.external), ...this.whole.keys()]);
    let sum = 0;
    for (const name of names) sum += (await this.size(name)) ?? 0;
    return sum;
  }

  /** `ModelAddress.key` of a model at an address; else empty. */
  get key(): string {
    return typeof this.model === "string" ? modelAddress(this.model).key : "";
  }

  /** Identifications of all files accessed so far. */
  get marked(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.marks);
  }

  /**
   * What distinguishes this model from others without reading it, apart from the contents of
   * `unmarked()`.
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
   * A file as a stream; undefined if its address is unknown.
   * @throws ModelError if it does not exist or has changed
   */
  async stream(name: string): Promise<ByteSource | undefined> {
    const blob = this.whole.get(name);
    if (blob) return new BlobSource(blob, name);
    const source = await this.open(name);
    this.opened.delete(name);
    return source;
  }

  /**
   * Loads a file completely; undefined as in `stream`.
   * @throws ModelError
   */
  async blob(name: string): Promise<Blob | undefined> {
    if (!this.whole.has(name)) {
      const source = await this.stream(name);
      if (!source) return undefined;
      const blob = toBlob(source).catch(async (e: unknown) => {
        // the stored copy was damaged and has been removed
        if (!(e instanceof StorageError)) throw e;
        return toBlob((await this.stream(name))!);
      });
      this.whole.set(name, await blob);
    }
    return this.whole.get(name);
  }

  /** Closes connections that are not being read. */
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
    // a name in the model must not lead outside of its folder
    return url.startsWith(new URL(".", this.model).href) ? url : undefined;
  }

  private async open(name: string): Promise<Remote | undefined> {
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
