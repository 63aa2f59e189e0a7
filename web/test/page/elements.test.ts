// The constructor of Tensor. tests/peers compares it with onnxruntime-common.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor } from "../../src/page/tensor.ts";
import { makeError, plainError } from "../../src/protocol/errors.ts";
import {
  EdgewiseError,
  InputError,
  InputRangeError,
  InputTypeError,
} from "../../src/shared/errors.ts";

/** What stands for Float16Array of newer engines: elements are bits here, as 2 bytes each. */
class Halves extends Uint16Array {
  override get [Symbol.toStringTag](): never {
    return "Float16Array" as never;
  }
}
Object.defineProperty(Halves, "name", { value: "Float16Array" });
const scope = globalThis as { Float16Array?: unknown };

test("bits and bytes are not taken for numbers", () => {
  for (const [type, data] of [
    ["bfloat16", Uint16Array.of(0x3f80, 0x3f80, 0x3f80)],
    ["float8_e4m3fn", Uint8Array.of(0x38, 0x38, 0x38)],
  ] as const)
    assert.throws(() => new Tensor(type, data, [1, 3, 1, 1]).toImageData(), /its numbers/);
  assert.throws(() => new Tensor("bfloat16", Float32Array.of(1) as never), /a Uint16Array\.$/);
});

test("float16 takes its bits, and numbers only where there is a Float16Array", () => {
  const own = scope.Float16Array;
  try {
    scope.Float16Array = undefined;
    const bits = Uint16Array.of(0x3c00, 0x4000);
    assert.equal(new Tensor("float16", bits).data, bits);
    for (const wrong of [[1, 2], Float32Array.of(1, 2), Halves.of(1), Uint8Array.of(1)])
      assert.throws(() => new Tensor("float16", wrong as never), TypeError);
    scope.Float16Array = Halves;
    const seen = new Tensor("float16", bits);
    assert.ok(seen.data instanceof Halves && seen.data.buffer === bits.buffer);
    assert.throws(() => new Tensor("float16", Float32Array.of(1, 2) as never), TypeError);
    const given = Halves.of(1, 2);
    assert.equal(new Tensor("float16", given as never).data, given);
    assert.deepEqual(
      [new Tensor(given as never).type, new Tensor(given as never).dims],
      ["float16", [2]],
    );
    assert.ok(new Tensor("float16", [1, 2]).data instanceof Halves);
  } finally {
    scope.Float16Array = own;
  }
});

test("numbers are not taken for bits or bytes", () => {
  for (const type of ["bfloat16", "int4", "uint4", "float8_e5m2", "float4_e2m1fn"] as const)
    assert.throws(() => new Tensor(type, [1, 2]), TypeError, type);
  assert.throws(() => new Tensor("uint8", Float32Array.of(0.5) as never), /stored as Uint8Array/);
  assert.throws(() => new Tensor("float32", Float64Array.of(0.5) as never), TypeError);
});

test("pixels of a canvas are bytes", () => {
  const pixels = Uint8ClampedArray.of(1, 255);
  for (const t of [new Tensor(pixels, [1, 2]), new Tensor("uint8", pixels, [1, 2])])
    assert.deepEqual([t.type, t.data], ["uint8", Uint8Array.of(1, 255)]);
  assert.throws(() => new Tensor("float32", pixels), TypeError);
});

test("errors of arguments are those of JavaScript and of Edgewise", () => {
  const thrown = (make: () => unknown): InputError => {
    try {
      make();
    } catch (e) {
      return e as InputError;
    }
    throw new Error("nothing was thrown");
  };
  const cases: [InputError, typeof InputTypeError | typeof InputRangeError, typeof Error][] = [
    [thrown(() => new Tensor("float32", [1], [1.5])), InputTypeError, TypeError],
    [thrown(() => new Tensor("float32", [1], [-1])), InputRangeError, RangeError],
  ];
  for (const [e, ours, theirs] of cases)
    for (const one of [e, makeError(structuredClone(plainError(e)))]) {
      for (const type of [Error, EdgewiseError, InputError, ours, theirs])
        assert.ok(one instanceof type, type.name);
      assert.ok(!(one instanceof (theirs === TypeError ? RangeError : TypeError)));
      assert.deepEqual([one.name, one.message], [theirs.name, e.message]);
      assert.deepEqual([one.what, one.where, one.remedy], [e.what, e.where, e.remedy]);
    }
  const plain = new InputError("what", "where", "Remedy.");
  assert.ok(plain instanceof InputError && plain instanceof EdgewiseError);
  assert.ok(!(plain instanceof TypeError) && !(plain instanceof InputTypeError));
  assert.ok(!(new TypeError("x") instanceof InputError));
  class Own extends InputError {}
  assert.ok(new Own("x") instanceof InputError && !(cases[0]![0] instanceof Own));
});
