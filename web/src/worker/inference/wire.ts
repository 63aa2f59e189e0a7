// Conversion and validation of values in messages between page and worker. Mirrors the rules of
// python/edgewise/host/session/feeds.py.

import type { Device } from "../../device/device.ts";
import { ELEMENT_BITS } from "../../gen/session.ts";
import type { ValueInfo, WireValue } from "../../protocol/inference.ts";
import { InputError } from "../../shared/errors.ts";
import { fits } from "./feeds.ts";
import type { Outgoing } from "./spare.ts";
import {
  byteSize,
  Nothing,
  NumberTensor,
  OnnxMap,
  type Reader,
  type RunValue,
  Sequence,
  StringTensor,
} from "./values.ts";

const MAX_DIMS = 64;

/**
 * Converts a feed to the value that the model declares.
 * @param pinned looks up a tensor that stayed in the engine
 * @throws InputError if it does not match the declaration
 */
export function fromWire(
  v: WireValue | undefined,
  info: ValueInfo,
  where: string,
  pinned: (id: number) => NumberTensor | undefined,
  depth = 0,
): RunValue {
  const refuse: Refuse = (what, remedy) => {
    throw new InputError(what, where, remedy);
  };
  if (depth > 8) return refuse("it is nested too deeply", "Feed what the model declares.");
  if (info.type === "optional")
    return v === null || v === undefined
      ? new Nothing()
      : fromWire(v, info.elem ?? { ...info, type: "tensor" }, where, pinned, depth + 1);
  if (v === null || v === undefined || typeof v !== "object")
    return refuse("it is not a value", `Give a ${info.type === "tensor" ? "Tensor" : info.type}.`);
  if (info.type === "sequence") {
    if (!("sequence" in v) || !Array.isArray(v.sequence))
      return refuse("it is not a sequence, which the model requires", "Pass an array.");
    const element = info.elem ?? { name: "", type: "tensor", dtype: "0", shape: null };
    const items = v.sequence.map((x, i) =>
      fromWire(x, element, `${where}[${i}]`, pinned, depth + 1),
    );
    const made = new Sequence(items);
    for (const x of items) x.refs--;
    return made;
  }
  if (info.type === "map") return mapFrom(v, info, refuse);
  if (info.type !== "tensor")
    return refuse(
      `its type is ${info.type}`,
      "Edgewise takes tensors, sequences, optionals and maps.",
    );
  return tensorFrom(v, info, pinned, refuse);
}

type Refuse = (what: string, remedy: string) => never;

/** Converts a tensor: one that stayed in the engine, strings, or bytes. */
function tensorFrom(
  v: NonNullable<WireValue>,
  info: ValueInfo,
  pinned: (id: number) => NumberTensor | undefined,
  refuse: Refuse,
): RunValue {
  if (!("type" in v))
    return refuse("it is not a tensor, which the model requires", "Give a Tensor.");
  const stayed =
    "pinned" in v
      ? (pinned(v.pinned) ??
        refuse(
          "it has been disposed of, or is another session's",
          "Feed it before it is disposed of, to the session that gave it.",
        ))
      : undefined;
  checkDeclared(stayed ?? v, info, refuse);
  if ("strings" in v) return stringsFrom(v, refuse);
  if (stayed) {
    stayed.refs++;
    return stayed;
  }
  if (!("data" in v))
    return refuse("it is not a tensor, which the model requires", "Give a Tensor.");
  if (
    !(v.data instanceof Uint8Array) ||
    !Object.hasOwn(ELEMENT_BITS, v.type) ||
    v.data.length !== byteSize(v.type, v.dims)
  )
    return refuse(
      `it has ${v.data instanceof Uint8Array ? v.data.length : 0} bytes, its type and dims ` +
        `take ${byteSize(v.type, v.dims)}`,
      "Give data of the tensor's own type and size.",
    );
  return new NumberTensor(v.type, v.dims, v.data);
}

/** Checks the type and shape of a tensor against the model's declaration. */
function checkDeclared(
  { type, dims }: { type: string; dims: readonly number[] },
  { dtype, shape }: ValueInfo,
  refuse: Refuse,
): void {
  if (dtype !== "0" && type !== dtype)
    refuse(`its type is ${String(type).slice(0, 40)}, expected ${dtype}`, "Convert it.");
  if (
    !Array.isArray(dims) ||
    dims.length > MAX_DIMS ||
    !dims.every((d) => Number.isSafeInteger(d) && d >= 0)
  )
    refuse("its dims are not a list of sizes", "Give a Tensor.");
  if (!fits(shape, dims))
    refuse(
      `its dims are [${dims.join(", ")}], expected ` +
        `[${shape!.map((d) => d ?? "?").join(", ")}]`,
      "Reshape it.",
    );
}

function stringsFrom(
  { type, dims, strings }: Extract<WireValue, { strings: string[] }>,
  refuse: Refuse,
): StringTensor {
  const count = dims.reduce((a, b) => a * b, 1);
  if (
    type !== "string" ||
    !Array.isArray(strings) ||
    strings.length !== count ||
    !strings.every((s) => typeof s === "string")
  )
    return refuse(
      `it is not the ${count} strings of its dims`,
      "Give as many strings as the dims say.",
    );
  return new StringTensor(dims, strings);
}

function mapFrom(v: NonNullable<WireValue>, info: ValueInfo, refuse: Refuse): RunValue {
  if (!("map" in v) || !(v.map instanceof Map))
    return refuse("it is not a map, which the model requires", "Pass a Map or an object.");
  const value = info.elem?.dtype ?? "float32";
  const key = info.key ?? "string";
  const entries = new Map<string | bigint, string | number | bigint>();
  for (const [k, x] of v.map) {
    const name = key === "string" ? k : integer(k);
    if (name === undefined || (key === "string" && typeof name !== "string"))
      return refuse(
        `it has the key ${String(k).slice(0, 40)}, expected keys of type ${key}`,
        "Convert its keys.",
      );
    const number =
      value === "string"
        ? x
        : /float/.test(value)
          ? typeof x === "string"
            ? undefined
            : Number(x)
          : integer(x);
    if (number === undefined || (value === "string" && typeof number !== "string"))
      return refuse(
        `it has the value ${String(x).slice(0, 40)}, expected values of type ${value}`,
        "Convert its values.",
      );
    entries.set(name, number);
  }
  return new OnnxMap(entries, key, value);
}

/** Converts an integer, or its decimal digits (object keys are strings). */
function integer(x: string | number | bigint): bigint | undefined {
  if (typeof x === "bigint") return x;
  if (typeof x === "number") return Number.isSafeInteger(x) ? BigInt(x) : undefined;
  return /^-?\d{1,20}$/.test(x) ? BigInt(x) : undefined;
}

/**
 * Reads tensors that are on the device only, at once where it waits for each read. Errors of runs
 * are then known, also where nothing is read.
 */
export async function together(
  device: Device,
  values: readonly RunValue[],
): Promise<(v: RunValue) => Reader> {
  const read = new Map<RunValue, Reader>();
  const tensors = values.filter((v) => v.kind === "tensor" && !v.data && v.bytes > 0);
  if (device.readAll && tensors.length !== 1) {
    const ranges = (tensors as NumberTensor[]).map((v) => [v.buffer!, v.bytes] as const);
    const data = await device.readAll(ranges);
    tensors.forEach((v, i) => {
      read.set(v, { read: async () => data[i]! });
    });
  }
  return (v) => {
    const first = read.get(v);
    read.delete(v); // what was read is transferred once
    return first ?? device;
  };
}

/** Converts a value for the page. */
export async function toWire(v: RunValue, device: Reader, outgoing: Outgoing): Promise<WireValue> {
  switch (v.kind) {
    case "nothing":
      return null;
    case "strings":
      return { type: "string", dims: [...v.dims], strings: [...v.strings] };
    case "sequence": {
      const sequence: WireValue[] = [];
      for (const x of v.items) sequence.push(await toWire(x, device, outgoing));
      return { sequence };
    }
    case "map":
      return { map: new Map(v.entries), key: v.key, value: v.value };
    default: {
      const data = outgoing.move(v.data ? v.data.slice() : await v.read(device));
      return { type: v.type, dims: [...v.dims], data };
    }
  }
}
