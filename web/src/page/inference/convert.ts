// Conversion of feeds and outputs between the page's values and the protocol's WireValue.

import type { WireValue } from "../../protocol/inference.ts";
import { InputError } from "../../shared/errors.ts";
import { isTensor, type OnnxValue, type PinnedOwner, Tensor, type TensorType } from "../tensor.ts";

/**
 * Converts a feed. Nothing is copied.
 * @throws InputError if `v` is not a value of an ONNX model
 */
export function toWireFeed(v: unknown, where: string, owner: PinnedOwner, depth = 0): WireValue {
  if (v === null || v === undefined) return null;
  if (isTensor(v)) return toWireTensor(v, where, owner);
  if (depth > 8)
    throw new InputError("it is nested too deeply", where, "Feed what the model declares.");
  if (Array.isArray(v))
    return {
      sequence: v.map((x, i) => toWireFeed(x, `${where}[${i}]`, owner, depth + 1)),
    };
  return { map: toWireMap(v, where), key: "", value: "" };
}

/** Converts a tensor. */
function toWireTensor(v: Tensor, where: string, owner: PinnedOwner): WireValue {
  const { type } = v;
  const dims = v.dims as number[];
  if (v instanceof Tensor) {
    const pinned = v.pinnedIn(owner, where);
    if (pinned !== undefined) return { type, dims, pinned };
    const copy = v.copyIn(owner);
    if (copy)
      return copy.fresh
        ? { type, dims, data: copy.bytes, keep: copy.id }
        : { type, dims, pinned: copy.id };
  }
  const data = v instanceof Tensor ? Tensor.read(v) : (v as Tensor).data;
  if (Array.isArray(data)) return { type: "string", dims: Array.from(dims), strings: data };
  const bytes = new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
  return { type, dims: Array.from(dims), data: bytes };
}

/** Checks the entries of a Map or a plain object. */
function toWireMap(v: object, where: string): Map<string | bigint, string | number | bigint> {
  const entries =
    v instanceof Map
      ? [...(v as Map<unknown, unknown>)]
      : typeof v === "object" && [Object.prototype, null].includes(Object.getPrototypeOf(v) as null)
        ? Object.entries(v)
        : undefined;
  if (!entries)
    throw new InputError(
      "it is not a tensor, sequence or map",
      where,
      "Give a Tensor; an array for a sequence, a Map for a map.",
    );
  const plain = (x: unknown) =>
    typeof x === "string" || typeof x === "number" || typeof x === "bigint";
  for (const [k, x] of entries)
    if (!plain(k) || !plain(x))
      throw new InputError(
        `it has an entry '${String(k).slice(0, 40)}' that is neither a number nor a string`,
        where,
        "Give a Tensor; a Map of numbers or texts for a map.",
      );
  return new Map(entries as [string | bigint, string | number | bigint][]);
}

/** Converts an output. `feeds` are needed since an output may be one of them, passed through. */
export function fromWireOutput(
  v: WireValue,
  feeds: Record<string, OnnxValue>,
  owner: PinnedOwner,
  name = "",
): OnnxValue {
  if (v === null) return null;
  if ("fed" in v) return feeds[v.fed];
  if ("pinned" in v) return Tensor.pinned(v.type, v.dims, owner, v.pinned);
  if ("data" in v) {
    // what came with others gets a buffer of its own, which callers may transfer
    const own = v.data.length === v.data.buffer.byteLength ? v.data : v.data.slice();
    return Tensor.output(v.type as TensorType, v.dims, own, owner, name, v.keep);
  }
  if ("strings" in v) return new Tensor("string", v.strings, v.dims);
  if ("sequence" in v) return v.sequence.map((x) => fromWireOutput(x, feeds, owner));
  return v.map;
}
