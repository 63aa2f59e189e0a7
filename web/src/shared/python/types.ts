// Types of values that printed logic shares.

/** Numbers or other elements that can be counted: arrays and typed arrays. */
export interface Sequence<T> extends Iterable<T> {
  readonly length: number;
  readonly [index: number]: T;
  slice(start?: number, end?: number): Sequence<T>;
  at(index: number): T | undefined;
  includes(value: T): boolean;
  entries(): IterableIterator<[number, T]>;
}

/** An object of JSON: `dict[str, Any]`. */
// biome-ignore lint/suspicious/noExplicitAny: its values are checked where they are read
export type Json = Record<string, any>;

export type Loose<T> = Iterable<T> | ArrayLike<T>;
