// The precision of an .onnx file by its name.

import type { DType } from "../../protocol/loading.ts";
import { InputError } from "../../shared/errors.ts";

/** Suffixes of files by the precision of their weights. */
export const SUFFIX: Record<Exclude<DType, "auto">, string> = {
  fp32: "",
  fp16: "_fp16",
  q8: "_quantized",
  int8: "_int8",
  uint8: "_uint8",
  q4: "_q4",
  q4f16: "_q4f16",
  bnb4: "_bnb4",
};

/** Precision by the name of an .onnx file; empty for other files. */
export function dtypeOf(url: string): string {
  const [file = ""] = url.split(/[?#]/);
  if (!file.endsWith(".onnx")) return "";
  const suffixed = Object.entries(SUFFIX).find(([, end]) => end && file.endsWith(`${end}.onnx`));
  return suffixed?.[0] ?? "fp32";
}

/** A precision, or one for each file. */
export type DTypes = DType | Record<string, DType>;

/** @throws InputError if a precision is none */
export function checkDTypes(dtypes: DTypes): void {
  for (const dtype of typeof dtypes === "object" ? Object.values(dtypes) : [dtypes])
    if (dtype !== "auto" && !Object.hasOwn(SUFFIX, dtype))
      throw new InputError(
        `dtype is '${String(dtype)}'`,
        "options.dtype",
        `Give one of: auto, ${Object.keys(SUFFIX).join(", ")}.`,
      );
}
