// Tensors and the other values that pages pass in and receive, named as in ONNX Runtime Web.

import { ELEMENT_BITS } from "../gen/session.ts";
import type { PlainTensor } from "../protocol/artifacts.ts";
import { ARRAYS } from "../shared/element-arrays.ts";
import { InputError } from "../shared/errors.ts";
import {
  checkedDims,
  dataFrom,
  dataOf,
  type Halves,
  isPacked,
  numbersOf,
  type TensorData,
  type TensorType,
  typeOf,
} from "./elements.ts";
import {
  type FromImageOptions,
  imageOfTensor,
  type PictureSource,
  type ToImageOptions,
  tensorOfImage,
  urlOfTensor,
} from "./tensor-images.ts";

export type { Halves, TensorData, TensorType };

/**
 * Where a tensor's elements are: in the page ("cpu"), in the worker's engine ("cpu-pinned"), or
 * disposed of ("none"). Names as in ONNX Runtime Web.
 */
export type TensorLocation = "none" | "cpu" | "cpu-pinned";

/** Holds tensors with the location "cpu-pinned". */
export interface PinnedOwner {
  /** Reads the bytes of a tensor. */
  read(id: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Frees a tensor. */
  drop(id: number): void;
  /** An output of this name, with elements that nobody has accessed, is fed to it. */
  returned?(name: string): void;
}

/**
 * A tensor, as in ONNX Runtime Web: `new Tensor("float32", data, [2, 3])`, `new Tensor(data, [2,
 * 3])`, `new Tensor("string", ["a", "b"])`.
 *
 * An output that SessionOptions.preferredOutputLocation keeps in the engine has the location
 * "cpu-pinned" and no `data`. Passed to the same session it is used in place; `getData` downloads
 * it; `dispose` frees its memory, as garbage collection does later.
 */
export class Tensor {
  /** Element type. */
  readonly type: TensorType;
  /** Shape; [] for a scalar. */
  readonly dims: readonly number[];
  private elements: TensorData | undefined;
  private owner: PinnedOwner | undefined;
  private id = 0;
  /**
   * For an output whose elements have not been accessed, and so cannot have been changed: the
   * session that returned it, and how often it was fed back to that session.
   */
  private source: PinnedOwner | undefined;
  private fed = 0;
  private name = "";
  /** Number of the copy that the session's engine holds. */
  private copy: number | undefined;

  /**
   * @param type element type
   * @param data elements in row-major order: the typed array of the type, or a list of numbers (of
   *   strings for "string"). float16 takes numbers only where there is a Float16Array, and its bits
   *   as a Uint16Array everywhere; types that are represented by their bits or bytes take no
   *   numbers; uint8 takes a Uint8ClampedArray as well
   * @param dims shape. Default: one dimension
   * @throws InputTypeError if the type is unknown, or the data is of another one
   * @throws InputRangeError if a dimension is negative
   * @throws InputError if `dims` does not match the number of elements
   */
  constructor(
    type: TensorType,
    data:
      | TensorData
      | Halves
      | Uint8ClampedArray
      | readonly number[]
      | readonly bigint[]
      | readonly boolean[]
      | readonly string[],
    dims?: readonly number[],
  );
  /**
   * Infers the element type: that of the typed array (never bfloat16 or bool; uint8 for a
   * Uint8ClampedArray), "string" for a list of strings, "bool" for a list of booleans.
   */
  constructor(
    data: TensorData | Halves | Uint8ClampedArray | readonly boolean[] | readonly string[],
    dims?: readonly number[],
  );
  constructor(
    a:
      | TensorType
      | TensorData
      | Halves
      | Uint8ClampedArray
      | readonly boolean[]
      | readonly string[],
    b?: unknown,
    c?: readonly number[],
  ) {
    const [type, data, dims] =
      typeof a === "string" ? [a, b, c] : [typeOf(a), a, b as readonly number[] | undefined];
    this.type = type;
    this.elements = dataOf(type, data);
    const count = this.elements.length;
    const bits = isPacked(type) ? ELEMENT_BITS[type]! : 0;
    this.dims =
      dims === undefined ? [bits ? Math.floor((count * 8) / bits) : count] : checkedDims(dims);
    const { size } = this;
    if ((bits ? Math.ceil((size * bits) / 8) : size) !== count)
      throw new InputError(
        `dims [${this.dims.join(", ")}] do not match ${count} ${bits ? "bytes" : "elements"}`,
        "Tensor",
        "Give dims whose product is the number of elements.",
      );
  }

  /**
   * The elements in row-major order. Not copied: this is the array passed to the constructor, if it
   * had the right type.
   * @throws InputError if the elements are in the engine (use `getData`) or have been disposed of
   */
  get data(): TensorData {
    if (this.source) this.touch();
    if (!this.elements)
      throw new InputError(
        this.owner ? "its data is in the engine" : "it has been disposed of",
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
   * Returns the elements, downloading them from the engine if they are there.
   * @param releaseData whether to free the engine's memory afterwards, so that only the page holds
   *   the elements. Default: false
   * @throws InputError if the tensor has been disposed of
   * @throws Aborted if its session has been released
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

  /** Frees the elements, and the engine memory that they occupy. */
  dispose(): void {
    if (this.source) this.touch();
    this.elements = undefined;
    if (!this.owner) return;
    gone.unregister(this);
    this.owner.drop(this.id);
    this.owner = undefined;
  }

  /**
   * A tensor with the same elements and another shape.
   * @throws InputError if `dims` does not match the number of elements, or they are not in the page
   */
  reshape(dims: readonly number[]): Tensor {
    return new Tensor(this.type, this.data, dims);
  }

  /**
   * A tensor float32 [1, channels, height, width] of a picture, as in ONNX Runtime Web; there
   * `resizedWidth` and `resizedHeight` cut the picture, here they scale it.
   * @throws InputError if it is none
   */
  static async fromImage(image: PictureSource, options?: FromImageOptions): Promise<Tensor> {
    const { data, dims } = await tensorOfImage(image, options);
    return new Tensor("float32", data, dims);
  }

  /**
   * The pixels of a tensor [1, channels, height, width], as in ONNX Runtime Web.
   * @throws InputError if its shape is that of no picture
   */
  toImageData(options?: ToImageOptions): ImageData {
    return imageOfTensor(Tensor.numbers(this, "Tensor.toImageData"), this.dims, options);
  }

  /** As {@link toImageData}, as the address of a PNG. */
  toDataURL(options?: ToImageOptions): string {
    return urlOfTensor(Tensor.numbers(this, "Tensor.toDataURL"), this.dims, options);
  }

  /**
   * Makes a tensor of bytes, without copying them.
   * @internal
   */
  static of(type: TensorType, dims: readonly number[], bytes: Uint8Array<ArrayBuffer>): Tensor {
    return new Tensor(type, dataFrom(type, bytes), dims);
  }

  /**
   * Makes an output of a session. Until its elements are accessed, feeding it again to the same
   * session need not copy it each time.
   * @param keep number of the copy that the session's engine has
   * @internal
   */
  static output(
    type: TensorType,
    dims: readonly number[],
    bytes: Uint8Array<ArrayBuffer>,
    source: PinnedOwner,
    name = "",
    keep?: number,
  ): Tensor {
    const made = Tensor.of(type, dims, bytes);
    if (bytes.length < MIN_COPY) return made;
    made.source = source;
    made.name = name;
    if (keep !== undefined) made.copied(keep);
    return made;
  }

  /** The engine has a copy, or is about to get one. */
  private copied(id: number): void {
    this.copy = id;
    gone.register(this, { owner: this.source!, id }, this);
  }

  /**
   * If this tensor should be fed as a copy that the session's engine keeps: the copy's number, and
   * whether it must first be made (`fresh`) from `bytes`. A tensor that is fed a second time is
   * likely to be fed more often, as the cross-attention caches of a decoder are.
   * @internal
   */
  copyIn(
    owner: PinnedOwner,
  ): { id: number; fresh: boolean; bytes: Uint8Array<ArrayBuffer> } | undefined {
    if (this.source !== owner || !this.elements || Array.isArray(this.elements)) return undefined;
    owner.returned?.(this.name);
    const fresh = this.copy === undefined;
    if (++this.fed < 2 && fresh) return undefined;
    if (fresh) this.copied(nextCopy--);
    const { buffer, byteOffset, byteLength } = this.elements;
    return {
      id: this.copy!,
      fresh,
      bytes: new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength),
    };
  }

  /**
   * The elements, for reading only: does not count as access by the user.
   * @internal
   */
  static read(t: Tensor): TensorData {
    return t.elements ?? t.data;
  }

  /**
   * The elements to compute with.
   * @throws InputError where they are represented by their bits or bytes
   * @internal
   */
  static numbers({ type, data }: Tensor, where: string): TensorData {
    return numbersOf(type, data, where);
  }

  /**
   * Drops the copy in the engine, or the promise of one that was not made.
   * @internal
   */
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

  /**
   * Makes a tensor whose elements are in an engine.
   * @internal
   */
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
   * Its number in the engine of `owner`; undefined if its elements are in the page.
   * @throws InputError if it belongs to another session or has been disposed of
   * @internal
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

/** Whether `v` is a {@link Tensor}, or an object of another library with the same fields. */
export function isTensor(v: unknown): v is Tensor {
  if (v instanceof Tensor) return true; // without accessing its data
  const { type, dims, data } = (v ?? {}) as { type?: unknown; dims?: unknown; data?: unknown };
  return (
    typeof type === "string" &&
    Array.isArray(dims) &&
    (ArrayBuffer.isView(data) || Array.isArray(data))
  );
}

/** Tensors of at least this many bytes are worth keeping as a copy in the engine. */
export const MIN_COPY = 1 << 15;
/** Number of the next copy. Negative, since the worker's own numbers are positive. */
let nextCopy = -1;

/** Frees the engine memory of garbage-collected tensors. */
const gone = new FinalizationRegistry<{ owner: PinnedOwner; id: number }>(({ owner, id }) =>
  owner.drop(id),
);

/**
 * A value of a model: a tensor; an array for a sequence; a Map (or, as input, an object) for a map
 * of ONNX-ML, with integers as bigint; null for an empty optional.
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
 * Copies a tensor's bytes, type and shape.
 * @throws InputError if it holds strings or has been disposed of
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

/** Copies a tensor of numbers. @throws InputError if it is none */
export function copyOf(t: unknown, where: string): PlainTensor {
  const { type, data } = (t ?? {}) as Partial<Tensor>;
  if (!(t instanceof Tensor) && !((type as string) in ARRAYS && ArrayBuffer.isView(data)))
    throw new InputError("it is not a Tensor", where, "Give a Tensor.");
  return plainOf(t as Tensor);
}

/** Copies the feeds of a training step, after checking that they are tensors. */
export function plain(feeds: Tensors): Record<string, PlainTensor> {
  return Object.fromEntries(
    Object.entries(feeds ?? {}).map(([name, t]) => [name, copyOf(t, `feed '${name}'`)]),
  );
}

/** The tensor that {@link plainOf} took apart. */
export function tensor({ type, dims, data }: PlainTensor): Tensor {
  return new Tensor(type as TensorType, dataFrom(type, data), dims);
}

/** The outputs of these names, as tensors. */
export function picked(outputs: Record<string, PlainTensor>, names: readonly string[]): Tensors {
  return Object.fromEntries(names.map((name) => [name, tensor(outputs[name]!)]));
}
