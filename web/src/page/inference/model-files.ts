// What InferenceSession.create takes as a model.

import { InputRangeError, InputTypeError } from "../../shared/errors.ts";
import { isMagic } from "../../shared/files/magic.ts";
import { full } from "../env.ts";

/**
 * Whether `file` holds the bytes of a package. These are read in place by the worker; an .onnx file
 * is passed as a Blob, from which Python reads it.
 */
export function isPackage(file: unknown): file is Uint8Array {
  return file instanceof Uint8Array && isMagic(file);
}

/**
 * An address, or a file with the bytes.
 * @param where of errors
 * @throws InputTypeError
 */
export function fileOf(
  file: string | URL | Uint8Array | ArrayBuffer | Blob,
  where: string,
): string | Blob {
  if (typeof file === "string" || file instanceof URL) return full(String(file));
  if (file instanceof Blob) return file;
  if (file instanceof ArrayBuffer || ArrayBuffer.isView(file)) return new Blob([file as BlobPart]);
  const remedy = "Give an address, a File, or the file's bytes.";
  throw new InputTypeError("it is not a model", where, remedy);
}

/** A part of a buffer, as ONNX Runtime Web takes it. @throws InputTypeError, InputRangeError */
export function partOf(buffer: ArrayBuffer, byteOffset: number, byteLength: unknown): Uint8Array {
  if (!(buffer instanceof ArrayBuffer)) fileOf(undefined as never, "model");
  const within = (name: string, value: unknown, least: number, most: number): void => {
    if (!Number.isSafeInteger(value) || (value as number) < least || (value as number) > most)
      throw new (typeof value === "number" ? InputRangeError : InputTypeError)(
        `'${name}' is ${String(value).slice(0, 40)}`,
        "InferenceSession.create",
        `Give a number from ${least} to ${most}.`,
      );
  };
  const size = buffer.byteLength;
  within("byteOffset", byteOffset, 0, size - 1);
  if (byteLength === undefined) return new Uint8Array(buffer, byteOffset);
  within("byteLength", byteLength, 1, size - byteOffset);
  return new Uint8Array(buffer, byteOffset, byteLength as number);
}
