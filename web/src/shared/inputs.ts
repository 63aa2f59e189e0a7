// What pictures and sounds have in common as inputs of pipelines.

import { aborted } from "./abort.ts";
import { InputError } from "./errors.ts";
import { message } from "./words.ts";

/** The name of an input in errors. */
export function inputName(input: unknown, kind: string): string {
  if (input instanceof File) return input.name;
  if (input instanceof URL) return input.href;
  return typeof input === "string" ? input.slice(0, 200) : `the ${kind}`;
}

/** @throws InputError if an option is not a function; undefined and null stand for none */
export function checkFunction(name: string, value: unknown): void {
  if ((value ?? undefined) !== undefined && typeof value !== "function")
    throw new InputError("it is no function", `options.${name}`, "Give a function.");
}

/** @throws InputError if an option is no number of bytes; undefined stands for none */
export function checkBytes(name: string, value: unknown): void {
  if (value !== undefined && !(Number.isFinite(value) && (value as number) >= 0))
    throw new InputError(
      `it is ${String(value)}, no number of bytes`,
      `options.${name}`,
      "Give a number that is 0 or more.",
    );
}

/**
 * Options as they were given; null and undefined stand for none.
 * @throws InputError if they are no object
 */
export function optionsOf<T extends object>(options: T | null | undefined, where = "options"): T {
  const given = options ?? ({} as T);
  if (typeof given !== "object" || Array.isArray(given))
    throw new InputError("it is no object", where, "Give options as { name: value }.");
  return given;
}

/** @throws InputError if a value is no list */
export function checkList(value: unknown, where: string): asserts value is readonly unknown[] {
  if (!Array.isArray(value)) throw new InputError("it is no list", where, "Give an array.");
}

/** The class of an object of any realm, such as a frame: `instanceof` knows those of its own. */
const classOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

/**
 * A file's bytes as a Blob.
 * @throws InputError if it is neither a Blob nor bytes
 */
export function blobOf(file: unknown, where: string): Blob {
  const kind = classOf(file);
  if (kind === "Blob" || kind === "File") return file as Blob;
  if (kind === "ArrayBuffer" || ArrayBuffer.isView(file)) return new Blob([file as BlobPart]);
  throw new InputError("it is no file", where, "Give a File, a Blob, or the file's bytes.");
}

/** @throws InputError where no pictures can be decoded or drawn, as in Node */
export function checkCanvas(where: string): void {
  const { createImageBitmap, OffscreenCanvas } = globalThis;
  if (!createImageBitmap || !OffscreenCanvas)
    throw new InputError(
      "there is no canvas here to decode or draw the picture with",
      where,
      "Outside of browsers decode and resize it with a library such as sharp, and give pixels: " +
        "new RawImage(data, width, height, channels).",
    );
}

/**
 * Downloads a file.
 * @param url absolute address
 * @throws InputError, Aborted
 */
export async function fetched(url: string, signal: AbortSignal | undefined): Promise<Blob> {
  try {
    const answer = await fetch(url, signal ? { signal } : {});
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return await answer.blob();
  } catch (e) {
    if (signal?.aborted) throw aborted(signal);
    throw new InputError(
      `the file cannot be downloaded (${message(e)})`,
      inputName(url, "file"),
      "Check the address; another site's server must allow it (CORS).",
    );
  }
}
