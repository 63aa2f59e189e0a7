// The methods that transformers.js' Tensor has beside ONNX Runtime's. Importing this module adds
// them to Tensor, so that results of pipelines and sessions have them, too.

import { Tensor as Base, InputError, type TensorType } from "../../page/index.ts";
import {
  arrayLike,
  best,
  decoded,
  fail,
  indexIn,
  numbersOf,
  reduced,
  strides,
  type Values,
  valuesOf,
} from "./shapes.ts";

/** Elements of a tensor as nested lists; integers of 64 bits as bigint. */
export type Nested = number | bigint | string | Nested[];
/** What `slice` takes of an axis: one index, a range (without its end), or all. */
export type Slice = number | readonly [number | null, number | null] | null | undefined;
type Reduction = (dim?: number | null, keepdim?: boolean) => Tensor;
type Change = (value: number | bigint) => Tensor;

/** Methods with the names, arguments and results of transformers.js. */
export interface TensorMethods {
  /** The elements as nested lists. */
  tolist(): Nested;
  /** The only element. @throws InputError if there are several */
  item(): number | bigint | string;
  /** A copy. */
  clone(): Tensor;
  /** A part: one argument for each axis, `t.slice(0, [1, 3], null)`. Negative numbers count from
   * the end. The elements are copied. */
  slice(...slices: Slice[]): Tensor;
  /** Another shape of the same memory; -1 stands for what is left. */
  view(...dims: number[]): Tensor;
  /** Without an axis of size 1, those of a list, or all of them. */
  squeeze(dim?: number | readonly number[] | null): Tensor;
  /** With an axis of size 1 more. */
  unsqueeze(dim: number): Tensor;
  /** With axes made one. */
  flatten(start_dim?: number, end_dim?: number): Tensor;
  /** With another order of the axes. */
  permute(...dims: number[]): Tensor;
  /** As `permute`. */
  transpose(...dims: number[]): Tensor;
  /** With other elements: `change` gets each, its index and all of them. */
  map(change: (value: never, index: number, all: never) => unknown): Tensor;
  /** 1 / (1 + exp(-x)) of each element. */
  sigmoid(): Tensor;
  /** x * value of each element. */
  mul: Change;
  /** x / value of each element. */
  div: Change;
  /** x + value of each element. */
  add: Change;
  /** x - value of each element. */
  sub: Change;
  /** -x of each element. */
  neg(): Tensor;
  /** x rounded to an integer, of each element. */
  round(): Tensor;
  /** Elements between two numbers. */
  clamp(min: number, max: number): Tensor;
  /** With another type: floats are cut to integers, as typed arrays do. */
  to(type: TensorType): Tensor;
  /** Sums of an axis, or of all elements. */
  sum: Reduction;
  /** Means of an axis, or of all elements. */
  mean: Reduction;
  /** Least elements of an axis, or of all. */
  min: Reduction;
  /** Greatest elements of an axis, or of all. */
  max: Reduction;
  /** Norm of an axis, or of all elements. Default: that of p = 2. */
  norm(p?: number | "fro", dim?: number | null, keepdim?: boolean): Tensor;
  /** Divided by the norm of an axis. Default: the norm of axis 1 with p = 2. */
  normalize(p?: number, dim?: number): Tensor;
  /** Distance of neighbours in memory, by axis. */
  stride(): number[];
  /** The parts of the first axis; of one axis the elements. */
  [Symbol.iterator](): Iterator<Tensor | number | bigint | string>;
}

/** A tensor with the methods of ONNX Runtime and of transformers.js. */
export type Tensor = Base & TensorMethods;

const made = (type: TensorType, data: Values, dims: readonly number[]): Tensor =>
  new Base(type, data as never, dims) as Tensor;

/** Each element changed by `f`; of 64-bit integers with bigint operands. */
function each(t: Base, f: (x: never, i: number) => unknown): Tensor {
  const data = numbersOf(t, "Tensor");
  const out = arrayLike(data, data.length);
  for (let i = 0; i < data.length; i++) out[i] = f(data[i] as never, i) as never;
  return made(t.type, out, t.dims);
}

function operand(t: Base, value: number | bigint): never {
  return (t.type.endsWith("int64") ? BigInt(value) : Number(value)) as never;
}

function take(t: Base, slices: readonly Slice[]): Tensor {
  if (slices.length > t.dims.length) fail(`there are ${slices.length} slices`, "Tensor.slice", t);
  const ranges = t.dims.map((size, axis): [number, number] => {
    const slice = slices[axis] ?? null;
    if (slice === null) return [0, size];
    if (typeof slice === "number") {
      const at = indexIn(slice, size, "Tensor.slice");
      return [at, at + 1];
    }
    const [from, to] = slice.map((x, end) => {
      const at = x ?? (end ? size : 0);
      return Math.min(Math.max(at < 0 ? at + size : at, 0), size);
    });
    if (!(from! <= to!)) fail(`there is no range [${slice}]`, "Tensor.slice", t);
    return [from!, to!];
  });
  const kept = t.dims.map((_, axis) => typeof slices[axis] !== "number");
  const sizes = ranges.map(([from, to]) => to - from);
  const data = valuesOf(t);
  const out = arrayLike(
    data,
    sizes.reduce((n, d) => n * d, 1),
  );
  const steps = strides(t.dims);
  for (let i = 0; i < out.length; i++) {
    let at = 0;
    for (let axis = sizes.length - 1, rest = i; axis >= 0; axis--) {
      at += ((rest % sizes[axis]!) + ranges[axis]![0]) * steps[axis]!;
      rest = Math.floor(rest / sizes[axis]!);
    }
    out[i] = data[at] as never;
  }
  return made(
    t.type,
    out,
    sizes.filter((_, axis) => kept[axis]),
  );
}

/** The elements in another order of axes. */
export function permuted(t: Base, axes: readonly number[]): Tensor {
  const order = axes.map((axis) => indexIn(axis, t.dims.length, "Tensor.permute"));
  if (new Set(order).size !== t.dims.length)
    fail(`[${axes}] is no order of its axes`, "Tensor.permute", t);
  const dims = order.map((axis) => t.dims[axis]!);
  const steps = strides(t.dims);
  const data = valuesOf(t);
  const out = arrayLike(data, data.length);
  for (let i = 0; i < out.length; i++) {
    let at = 0;
    for (let axis = dims.length - 1, rest = i; axis >= 0; axis--) {
      at += (rest % dims[axis]!) * steps[order[axis]!]!;
      rest = Math.floor(rest / dims[axis]!);
    }
    out[i] = data[at] as never;
  }
  return made(t.type, out, dims);
}

function nested(data: Values, dims: readonly number[], at: number): Nested {
  const [size, ...inner] = dims;
  if (size === undefined) return data[at] as Nested;
  const step = inner.reduce((n, d) => n * d, 1);
  return Array.from({ length: size }, (_, i) => nested(data, inner, at + i * step));
}

function converted(t: Base, type: TensorType): Tensor {
  if (t.type === type) return t as Tensor;
  const wide = type === "int64" || type === "uint64";
  if (type === "string" || t.type === "string")
    throw new InputError(`${t.type} cannot become ${type}`, "Tensor.to", "Convert its elements.");
  const cast = (x: unknown): unknown => {
    if (!wide) return type === "bool" ? Number(!!x) : Number(x);
    return typeof x === "bigint" ? x : BigInt(Math.trunc(x as number));
  };
  return made(
    type,
    Array.from(decoded(t, "Tensor.to") as ArrayLike<unknown>, cast) as never,
    t.dims,
  );
}

/** What follows needs no more than the methods above. */
const methods: TensorMethods & ThisType<Tensor> = {
  tolist() {
    return nested(decoded(this, "Tensor.tolist"), this.dims, 0);
  },
  item() {
    const data = decoded(this, "Tensor.item");
    if (data.length !== 1) fail(`it has ${data.length} elements`, "Tensor.item", this);
    return data[0]!;
  },
  clone() {
    return made(this.type, valuesOf(this).slice() as Values, this.dims);
  },
  slice(...slices) {
    return take(this, slices);
  },
  view(...dims) {
    const known = dims.reduce((n, d) => (d === -1 ? n : n * d), 1);
    const left = this.size / known;
    return made(
      this.type,
      valuesOf(this),
      dims.map((d) => (d === -1 ? left : d)),
    );
  },
  squeeze(dim = null) {
    const axes = dim === null ? this.dims.keys() : [dim].flat();
    const gone = new Set(Array.from(axes, (a) => indexIn(a, this.dims.length, "Tensor.squeeze")));
    const dims = this.dims.filter((size, axis) => size !== 1 || !gone.has(axis));
    return made(this.type, valuesOf(this), dims);
  },
  unsqueeze(dim) {
    const at = indexIn(dim, this.dims.length + 1, "Tensor.unsqueeze");
    return made(this.type, valuesOf(this), [...this.dims.slice(0, at), 1, ...this.dims.slice(at)]);
  },
  flatten(start_dim = 0, end_dim = -1) {
    const end = indexIn(end_dim, Math.max(this.dims.length, 1), "Tensor.flatten") + 1;
    const one = this.dims.slice(start_dim, end).reduce((n, d) => n * d, 1);
    return this.clone().view(...this.dims.slice(0, start_dim), one, ...this.dims.slice(end));
  },
  permute(...dims) {
    return permuted(this, dims);
  },
  transpose(...dims) {
    return permuted(this, dims);
  },
  map(change) {
    const all = valuesOf(this) as never;
    return each(this, (x, i) => change(x, i, all));
  },
  sigmoid() {
    return each(this, (x) => 1 / (1 + Math.exp(-x)));
  },
  mul(value) {
    const other = operand(this, value);
    return each(this, (x) => x * other);
  },
  div(value) {
    const other = operand(this, value);
    return each(this, (x) => x / other);
  },
  add(value) {
    const other = operand(this, value);
    return each(this, (x: number) => x + other);
  },
  sub(value) {
    const other = operand(this, value);
    return each(this, (x) => x - other);
  },
  neg() {
    return each(this, (x) => -x);
  },
  round() {
    return each(this, (x) => Math.round(x));
  },
  clamp(min, max) {
    return each(this, (x) => Math.min(Math.max(x, min), max));
  },
  to(type) {
    return converted(this, type);
  },
  sum(dim = null, keepdim = false) {
    const zero = operand(this, 0);
    return reduced(this, dim, keepdim, (list) => list.reduce((a, b) => a + b, zero)) as Tensor;
  },
  mean(dim = null, keepdim = false) {
    const zero = operand(this, 0);
    return reduced(this, dim, keepdim, (list) => {
      const sum = list.reduce((a, b) => a + b, zero);
      return (sum / operand(this, list.length)) as number;
    }) as Tensor;
  },
  min(dim = null, keepdim = false) {
    return reduced(this, dim, keepdim, (list) => list[best(list, (a, b) => a < b)]!) as Tensor;
  },
  max(dim = null, keepdim = false) {
    return reduced(this, dim, keepdim, (list) => list[best(list, (a, b) => a > b)]!) as Tensor;
  },
  norm(p = "fro", dim = null, keepdim = false) {
    const power = p === "fro" ? 2 : p;
    return reduced(this, dim, keepdim, (list) => {
      const sum = list.reduce((a, b) => a + Math.abs(b) ** power, 0);
      return sum ** (1 / power);
    }) as Tensor;
  },
  normalize(p = 2, dim = 1) {
    const axis = indexIn(dim, this.dims.length, "Tensor.normalize");
    const inner = strides(this.dims)[axis]!;
    const size = this.dims[axis]!;
    const norms = valuesOf(this.norm(p, axis));
    return each(this, (x, i) => {
      const at = Math.floor(i / (inner * size)) * inner + (i % inner);
      return x / (norms[at] as never);
    });
  },
  stride() {
    return strides(this.dims);
  },
  *[Symbol.iterator]() {
    const [count = 0, ...inner] = this.dims;
    for (let i = 0; i < count; i++) {
      const part = take(this, [i]);
      yield inner.length ? part : part.item();
    }
  },
};

/** Methods that change the tensor itself, by the one that returns a copy: `mul_` of `mul`. */
const IN_PLACE = ["sigmoid", "mul", "div", "add", "sub", "neg", "round", "clamp", "map"] as const;

for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(methods)))
  Object.defineProperty(Base.prototype, name, { value, writable: true, configurable: true });
Object.defineProperty(Base.prototype, Symbol.iterator, {
  value: methods[Symbol.iterator],
  configurable: true,
});
for (const name of IN_PLACE)
  Object.defineProperty(Base.prototype, `${name}_`, {
    value(this: Tensor, ...given: never[]) {
      const changed = (this[name] as (...all: never[]) => Tensor)(...given);
      (valuesOf(this) as Float32Array).set(valuesOf(changed) as Float32Array);
      return this;
    },
    writable: true,
    configurable: true,
  });
