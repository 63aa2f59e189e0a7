// Tensors and the other values that pages give and get, with the names of ONNX Runtime Web's.

import { ELEMENT_BITS } from "../gen/session.ts";
import type { PlainTensor } from "../protocol/artifacts.ts";
import { InputError } from "../shared/errors.ts";

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
} as const;
/** Types whose elements lie packed, or that JavaScript has no array for: their bytes are given. */
const BYTES = [
  "uint4",
  "int4",
  "uint2",
  "int2",
  "float8_e4m3fn",
  "float8_e4m3fnuz",
  "float8_e5m2",
  "float8_e5m2fnuz",
  "float4_e2m1fn",
  "float8_e8m0fnu",
  "float6_e2m3fn",
  "float6_e3m2fn",
] as const;

/**
 * Names of element types, ONNX Runtime Web's. float16 and bfloat16 are given as their bits, bool as
 * 0 and 1, types of at most a byte as their bytes: of 4 bits two to a byte, the lower half first.
 */
export type TensorType = keyof typeof ARRAYS | "string" | (typeof BYTES)[number];
/**
 * What tensors hold: the typed array of the element type's name; Uint16Array for float16 and
 * bfloat16; Uint8Array for bool and types of less than a byte; for "string" an array of strings.
 */
export type TensorData =
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array
  | string[];
/**
 * Where a tensor's elements are: in the page, in the worker's engine ("cpu-pinned"), or nowhere any
 * more. As ONNX Runtime Web's.
 */
export type TensorLocation = "none" | "cpu" | "cpu-pinned";

/** Who holds tensors of the location "cpu-pinned". */
export interface PinnedOwner {
  /** Bytes of one of them. */
  read(id: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Lets go of one. */
  drop(id: number): void;
}

/**
 * A tensor as in ONNX Runtime Web: `new Tensor("float32", data, [2, 3])`, `new Tensor(data, [2,
 * 3])`, `new Tensor("string", ["a", "b"])`.
 *
 * An output that SessionOptions.preferredOutputLocation lets stay in the engine has the location
 * "cpu-pinned" and no `data`: fed to the same session it is used where it lies, `getData` fetches
 * it, `dispose` gives its memory back (as the garbage collector does, later).
 */
export class Tensor {
  /** Element type. */
  readonly type: TensorType;
  /** Sizes of its dimensions; [] for a scalar. */
  readonly dims: readonly number[];
  private elements: TensorData | undefined;
  private owner: PinnedOwner | undefined;
  private id = 0;
  /**
   * Of an output whose elements nobody has looked at, so that nobody has changed them: the session
   * that gave it, and how often that was fed it.
   */
  private source: PinnedOwner | undefined;
  private fed = 0;
  /** Number of a copy in the source's engine. */
  private copy: number | undefined;

  /**
   * @param type element type. @param data elements, row by row: the type's typed array, or a list
   *   of numbers (of strings for "string"). @param dims sizes; default: one dimension.
   * @throws InputError: the type is unknown, or dims are not those of so many elements
   */
  constructor(
    type: TensorType,
    data:
      | TensorData
      | readonly number[]
      | readonly bigint[]
      | readonly boolean[]
      | readonly string[],
    dims?: readonly number[],
  );
  /**
   * With the element type that the typed array has (never float16, bfloat16 or bool), "string" for
   * a list of strings, "bool" for one of booleans.
   */
  constructor(data: TensorData | readonly boolean[] | readonly string[], dims?: readonly number[]);
  constructor(
    a: TensorType | TensorData | readonly boolean[] | readonly string[],
    b?: unknown,
    c?: readonly number[],
  ) {
    const [type, data, dims] =
      typeof a === "string" ? [a, b, c] : [typeOf(a), a, b as readonly number[] | undefined];
    this.type = type;
    this.elements = dataOf(type, data);
    const count = this.elements.length;
    const bits = type in ARRAYS || type === "string" ? 0 : ELEMENT_BITS[type]!;
    this.dims =
      dims === undefined ? [bits ? Math.floor((count * 8) / bits) : count] : Array.from(dims);
    let size = 1;
    for (const d of this.dims) {
      if (!Number.isSafeInteger(d) || d < 0) size = NaN;
      size *= d;
    }
    if ((bits ? Math.ceil((size * bits) / 8) : size) !== count)
      throw new InputError(
        `dims [${this.dims.join(", ")}] are not those of ${count} ${bits ? "bytes" : "elements"}`,
        "Tensor",
        "Give dims whose product is the number of elements.",
      );
  }

  /**
   * The elements, row by row. Not copied: what was passed, if it is of the type's own array.
   * @throws InputError: they are in the engine (`getData`), or disposed of
   */
  get data(): TensorData {
    if (this.source) this.touch();
    if (!this.elements)
      throw new InputError(
        this.owner ? "its data are in the engine" : "it has been disposed of",
        "Tensor.data",
        this.owner ? "Call `await tensor.getData()`." : "Read a tensor before it is disposed of.",
      );
    return this.elements;
  }

  /** Where the elements are. */
  get location(): TensorLocation {
    return this.elements ? "cpu" : this.owner ? "cpu-pinned" : "none";
  }

  /** Number of elements. */
  get size(): number {
    return this.dims.reduce((n, d) => n * d, 1);
  }

  /**
   * The elements, fetched from the engine where they are there.
   * @param releaseData whether they are then in the page alone, so that the engine's memory is
   *   free. Default: false
   * @throws InputError: it has been disposed of. Aborted: its session has been released
   */
  async getData(releaseData = false): Promise<TensorData> {
    if (this.elements || !this.owner) return this.data;
    const bytes = await this.owner.read(this.id);
    const data = dataFrom(this.type, bytes);
    if (releaseData) {
      this.dispose();
      this.elements = data;
    }
    return data;
  }

  /** Lets go of the elements, and of engine memory that they take. */
  dispose(): void {
    if (this.source) this.touch();
    this.elements = undefined;
    if (!this.owner) return;
    gone.unregister(this);
    this.owner.drop(this.id);
    this.owner = undefined;
  }

  /**
   * The same elements with other dims. @throws InputError: dims are not those of so many elements,
   * or the elements are not in the page
   */
  reshape(dims: readonly number[]): Tensor {
    return new Tensor(this.type, this.data, dims);
  }

  /** Of bytes, which are not copied. @internal */
  static of(type: TensorType, dims: readonly number[], bytes: Uint8Array<ArrayBuffer>): Tensor {
    return new Tensor(type, dataFrom(type, bytes), dims);
  }

  /**
   * An output: as long as nobody looks at its elements, its session need not copy them again and
   * again. @internal
   */
  static output(
    type: TensorType,
    dims: readonly number[],
    bytes: Uint8Array<ArrayBuffer>,
    source: PinnedOwner,
  ): Tensor {
    const made = Tensor.of(type, dims, bytes);
    if (bytes.length >= MIN_COPY) made.source = source;
    return made;
  }

  /**
   * Whether it is fed as a copy that the session's engine has (`copy`: its number, and `fresh`: it
   * is yet to be made, of these elements). What is fed a second time will be fed more often, as a
   * decoder's cross attention caches are. @internal
   */
  copyIn(
    owner: PinnedOwner,
  ): { id: number; fresh: boolean; bytes: Uint8Array<ArrayBuffer> } | undefined {
    if (this.source !== owner || !this.elements || Array.isArray(this.elements) || ++this.fed < 2)
      return undefined;
    const fresh = this.copy === undefined;
    if (fresh) {
      this.copy = nextCopy--;
      gone.register(this, { owner, id: this.copy }, this);
    }
    const { buffer, byteOffset, byteLength } = this.elements;
    return {
      id: this.copy!,
      fresh,
      bytes: new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength),
    };
  }

  /** The elements, for who does not change them. @internal */
  static read(t: Tensor): TensorData {
    return t.elements ?? t.data;
  }

  /** The copy in the engine was not made after all, or is to be no more. @internal */
  forgetCopy(): void {
    if (this.copy === undefined) return;
    gone.unregister(this);
    this.source!.drop(this.copy);
    this.copy = undefined;
  }

  private touch(): void {
    this.forgetCopy();
    this.source = undefined;
  }

  /** A tensor whose elements are in an engine. @internal */
  static pinned(type: string, dims: readonly number[], owner: PinnedOwner, id: number): Tensor {
    const t = Object.create(Tensor.prototype) as { -readonly [K in keyof Tensor]: Tensor[K] } & {
      owner: PinnedOwner;
      id: number;
      elements: undefined;
    };
    Object.assign(t, { type, dims, elements: undefined, owner, id });
    const made = t as unknown as Tensor;
    gone.register(made, { owner, id }, made);
    return made;
  }

  /**
   * Its number in the engine of `owner`; undefined where its elements are in the page. @throws
   * InputError: another session's, or disposed of. @internal
   */
  pinnedIn(owner: PinnedOwner, where: string): number | undefined {
    if (this.elements) return undefined;
    if (this.owner !== owner)
      throw new InputError(
        this.owner ? "it lies in another session's engine" : "it has been disposed of",
        where,
        "Feed such tensors to the session that gave them, or fetch them with `getData(true)`.",
      );
    return this.id;
  }
}

/** Bytes from which on it is worth while to keep a copy. */
const MIN_COPY = 1 << 15;
/** Number of the next copy: those that the worker gives are positive. */
let nextCopy = -1;

/** Tensors that nobody refers to any more give their engine memory back. */
const gone = new FinalizationRegistry<{ owner: PinnedOwner; id: number }>(({ owner, id }) =>
  owner.drop(id),
);

function typeOf(data: unknown): TensorType {
  if (Array.isArray(data)) {
    if (data.every((x) => typeof x === "string")) return "string";
    if (data.every((x) => typeof x === "boolean")) return "bool";
  }
  const type = Object.entries(ARRAYS).find(
    ([name, array]) => data instanceof array && !["float16", "bfloat16", "bool"].includes(name),
  )?.[0];
  if (!type)
    throw new InputError(
      "its data are no typed array",
      "Tensor",
      "Give a type first, or a typed array.",
    );
  return type as TensorType;
}

function dataOf(type: TensorType, data: unknown): TensorData {
  const array = Object.hasOwn(ARRAYS, type)
    ? ARRAYS[type as keyof typeof ARRAYS]
    : (BYTES as readonly string[]).includes(type)
      ? Uint8Array
      : undefined;
  if (!array && type !== "string")
    throw new InputError(
      `there is no element type '${String(type).slice(0, 40)}'`,
      "Tensor",
      `Use one of ${[...Object.keys(ARRAYS), ...BYTES, "string"].join(", ")}.`,
    );
  if (!data || typeof (data as ArrayLike<unknown>).length !== "number")
    throw new InputError("there are no data", "Tensor", "Give a typed array or a list.");
  if (!array) {
    if (!Array.isArray(data) || !data.every((x) => typeof x === "string"))
      throw new InputError(
        "its data are no list of strings",
        "Tensor",
        "Give an array of strings.",
      );
    return data as string[];
  }
  if (data instanceof array) return data as TensorData;
  const convert = type === "int64" || type === "uint64" ? (x: never) => BigInt(x) : Number;
  try {
    return (array as unknown as { from(x: unknown, f: (y: never) => unknown): TensorData }).from(
      data,
      convert,
    );
  } catch (e) {
    throw new InputError(
      `its data cannot be converted to ${type} (${e instanceof Error ? e.message : String(e)})`,
      "Tensor",
      "Give whole numbers for integer types.",
    );
  }
}

/** Elements of a type from bytes. */
function dataFrom(type: string, bytes: Uint8Array<ArrayBuffer>): TensorData {
  const array = Object.hasOwn(ARRAYS, type) ? ARRAYS[type as keyof typeof ARRAYS] : Uint8Array;
  return new array(
    bytes.buffer,
    bytes.byteOffset,
    bytes.length / array.BYTES_PER_ELEMENT,
  ) as TensorData;
}

/**
 * A value of a model: a tensor; an array for a sequence; a Map (or, to feed, an object) for a map
 * of ONNX-ML, with integers as bigint; null for an optional without a value.
 */
export type OnnxValue =
  | Tensor
  | readonly OnnxValue[]
  | ReadonlyMap<string | bigint, string | number | bigint>
  | Record<string, string | number | bigint>
  | null
  | undefined;

/** Tensors by name. */
export type Tensors = Record<string, Tensor>;

/**
 * A copy of its bytes, with type and dims. @throws InputError: it holds strings, or nothing any
 * more
 */
export function plainOf({ type, dims, data }: Tensor): PlainTensor {
  if (Array.isArray(data))
    throw new InputError("it holds strings", "Tensor", "Give a tensor of numbers.");
  return {
    type,
    dims: [...dims],
    data: new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength).slice(),
  };
}

/** Feeds, checked to be tensors. */
export function plain(feeds: Tensors): Record<string, PlainTensor> {
  return Object.fromEntries(
    Object.entries(feeds).map(([name, t]) => {
      if (
        !(t instanceof Tensor) &&
        !(t && (t as Tensor).type in ARRAYS && ArrayBuffer.isView((t as Tensor).data))
      )
        throw new InputError("it is no tensor", `feed '${name}'`, "Give a Tensor.");
      return [name, plainOf(t)];
    }),
  );
}

/** @see PlainTensor */
export function tensor({ type, dims, data }: PlainTensor): Tensor {
  return new Tensor(type as TensorType, dataFrom(type, data), dims);
}

/** The outputs that `fetches` names (by default all), as tensors. */
export function picked(
  outputs: Record<string, PlainTensor>,
  fetches: readonly string[] | Record<string, unknown> | undefined,
): Tensors {
  const names =
    fetches === undefined
      ? Object.keys(outputs)
      : Array.isArray(fetches)
        ? (fetches as string[])
        : Object.keys(fetches);
  for (const name of names)
    if (!outputs[name])
      throw new InputError(
        "the model has no such output",
        `fetch '${name}'`,
        `Its outputs are ${Object.keys(outputs).join(", ")}.`,
      );
  return Object.fromEntries(names.map((name) => [name, tensor(outputs[name]!)]));
}
