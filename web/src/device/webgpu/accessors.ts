// WGSL functions that read and write the elements of an operand, by element type. The twin of
// python/edgewise/compiler/gpu/accessors.py: both print the same text (tests/gpu/test_programs.py).

/** How a shader sees an element type: floats, ints, unsigned, int64, moved words and pairs. */
export type ElementClass = "f" | "i" | "u" | "l" | "w" | "d";

const CLASSES: Readonly<Record<number, ElementClass>> = {
  1: "f",
  10: "f",
  16: "f",
  2: "u",
  4: "u",
  9: "u",
  12: "u",
  3: "i",
  5: "i",
  6: "i",
  7: "l",
};
export const TYPES: Readonly<Record<ElementClass, string>> = {
  f: "f32",
  i: "i32",
  u: "u32",
  l: "vec2u",
  w: "u32",
  d: "vec2u",
};
const MOVED: Readonly<Record<number, ElementClass>> = { 1: "w", 2: "w", 4: "w", 8: "d" };

/**
 * The class of an element type, undefined where no shader has it.
 * @param dtype ONNX code, 0 for elements that are only moved
 */
export function classOf(dtype: number, bytes: number): ElementClass | undefined {
  return dtype === 0 ? MOVED[bytes] : CLASSES[dtype];
}

/** What shaders refer to beside the contract of their kernel that differs between machines. */
export type Machine = Record<string, string>;

/** What a binding is an array of. */
export type Stored = "f32" | "u32" | "atomic<u32>";

/** Text of an accessor, and of what it needs. */
export type Made = readonly [text: string, needs: string];

/** An operand as its accessors see it. */
export class Access {
  private readonly kind: ElementClass;

  /**
   * @param name of the operand
   * @param dtype as of steps.ts elementType
   * @param bytes as of steps.ts elementType
   * @param binding name of the variable that it is bound as
   * @param stored what that is an array of
   * @param base expression of the offset of element 0, in elements
   */
  constructor(
    private readonly name: string,
    private readonly dtype: number,
    private readonly bytes: number,
    private readonly binding: string,
    private readonly stored: Stored,
    private readonly base: string,
  ) {
    this.kind = classOf(dtype, bytes)!;
  }

  /** An accessor: "" reads, "_set" writes, "_int" reads as i32, "_word" reads a word. */
  function(suffix: string): Made {
    if (suffix === "") return this.read();
    if (suffix === "_set") return this.write();
    return suffix === "_int" ? this.int() : this.readWord();
  }

  private word(index: string): string {
    const element = `${this.binding}[${index}]`;
    if (this.stored === "atomic<u32>") return `atomicLoad(&${element})`;
    return this.stored === "f32" ? `bitcast<u32>(${element})` : element;
  }

  private setWord(index: string, value: string): string {
    const element = `${this.binding}[${index}]`;
    if (this.stored === "atomic<u32>") return `atomicStore(&${element}, ${value});`;
    return `${element} = ${this.stored === "f32" ? `bitcast<f32>(${value})` : value};`;
  }

  private readWord(): Made {
    const at = this.bytes !== 4 ? `(${this.base} * ${this.bytes}u) / 4u + i` : `${this.base} + i`;
    return [`fn ${this.name}_word(i: u32) -> u32 { return ${this.word(at)}; }`, ""];
  }

  /** Shift, word and mask of element j, of less than a word. */
  private get place(): { shift: string; index: string; mask: string } {
    return this.bytes === 1
      ? { shift: "(j & 3u) * 8u", index: "j >> 2u", mask: "0xffu" }
      : { shift: "(j & 1u) * 16u", index: "j >> 1u", mask: "0xffffu" };
  }

  private read(): Made {
    const { kind, base, binding } = this;
    const head = `fn ${this.name}(i: u32) -> ${TYPES[kind]} { let j = ${base} + i;`;
    if (this.bytes === 8) {
      const [low, high] = [this.word("2u * j"), this.word("2u * j + 1u")];
      return [`${head} return vec2u(${low}, ${high}); }`, ""];
    }
    if (this.bytes === 4) {
      if (kind === "f" && this.stored === "f32") return [`${head} return ${binding}[j]; }`, ""];
      const word = this.word("j");
      const value =
        kind === "f" ? `bitcast<f32>(${word})` : kind === "i" ? `bitcast<i32>(${word})` : word;
      return [`${head} return ${value}; }`, ""];
    }
    let value = "w";
    if (kind === "f") value = this.dtype === 10 ? "unpack2x16float(w).x" : "bitcast<f32>(w << 16u)";
    else if (kind === "i") {
      const shift = 32 - 8 * this.bytes;
      value = `bitcast<i32>(w << ${shift}u) >> ${shift}u`;
    }
    const { shift, index, mask } = this.place;
    const bits = `let w = (${this.word(index)} >> (${shift})) & ${mask};`;
    return [`${head} ${bits} return ${value}; }`, ""];
  }

  private write(): Made {
    const { kind, base, binding } = this;
    const head = `fn ${this.name}_set(i: u32, v: ${TYPES[kind]}) { let j = ${base} + i;`;
    if (this.bytes === 8) {
      const [low, high] = [this.setWord("2u * j", "v.x"), this.setWord("2u * j + 1u", "v.y")];
      return [`${head} ${low} ${high} }`, ""];
    }
    if (this.bytes === 4) {
      if (kind === "f" && this.stored === "f32") return [`${head} ${binding}[j] = v; }`, ""];
      const bits = kind === "f" || kind === "i" ? "bitcast<u32>(v)" : "v";
      return [`${head} ${this.setWord("j", bits)} }`, ""];
    }
    const needs = kind === "f" ? (this.dtype === 10 ? "half_bits" : "bfloat_bits") : "";
    const bits = needs ? `${needs}(v)` : kind === "i" ? "bitcast<u32>(v)" : "v";
    const { shift, index, mask } = this.place;
    return [
      `${head} let s = ${shift}; let at = ${index};` +
        ` atomicAnd(&${binding}[at], ~(${mask} << s));` +
        ` atomicOr(&${binding}[at], (${bits} & ${mask}) << s); }`,
      needs,
    ];
  }

  private int(): Made {
    const read = `${this.name}(i)`;
    const value = this.kind === "l" ? `saturated(${read})` : `i32(${read})`;
    return [`fn ${this.name}_int(i: u32) -> i32 { return ${value}; }`, ""];
  }
}
