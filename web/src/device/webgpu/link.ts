// Collects what the body of a shader refers to: constants, accessors, functions. The twin of
// python/edgewise/compiler/gpu/link.py.

import { COMMON } from "../../gen/shaders.ts";
import { Access, classOf, type Machine, type Stored, TYPES } from "./accessors.ts";
import {
  elementType,
  follows,
  isLinear,
  type Number_,
  type Param,
  type PlanStep,
} from "./steps.ts";
import { appliedOf, partsOf, type Variant } from "./variants.ts";

/**
 * Words of a step's record: offsets of operands, floats that WGSL has no constants for, the step's
 * number for errors; and, of a step in a batch, its first workgroup, the workgroups of the batch
 * (in the first record), which of several bindings each operand has (two bits), parameters that
 * vary.
 */
export const WORD = {
  OFFSETS: 0,
  FLOATS: 16,
  STEP: 32,
  START: 33,
  TOTAL: 34,
  CHOICES: 35,
  VARIED: 36,
} as const;
export const RECORD_BYTES = 256;
export const MOST = { VARIED: 28, CHOICES: 4, STEPS: 256 } as const;

const SPECIAL = new Set(["reg", "fail", "batch_part", "batch_choice"]);
const RESERVED = new Set(["type", "as", "mod", "filter", "from", "final", "target", "set"]);
/** Operands of these names have accessors with an underscore. */
const BUILT_IN = new Set(["cos", "sin"]);

/**
 * How an operand is bound: the numbers of its bindings; none where it is absent, several where that
 * of a step in a batch lies in one of several buffers.
 */
export interface Role {
  bindings: number[];
  written: boolean;
}

/** A buffer of a step. */
export interface Binding {
  written: boolean;
  stored: Stored;
}

/** A word of one of several records; `row`: expression of its number. */
export const recordWord = (row: string, index: number): string =>
  `record[${row} * ${RECORD_BYTES / 16}u + ${index >> 2}u][${index & 3}]`;

/** The number of such a word that a batch keeps in a variable. */
export const wordOf = (name: string): RegExpExecArray | null => /^word(\d+)$/.exec(name);

/** Collects what a body refers to. */
export class Linker {
  readonly out = new Map<string, string>();
  registers = false;
  fails = false;
  private readonly applied: ReadonlyMap<string, string>;
  private readonly operands: ReadonlyMap<string, number>;
  /** Parameters that are functions. */
  private readonly calls: ReadonlySet<string>;
  private readonly roles: readonly Role[];

  /**
   * @param roles of operands that some steps of a batch have
   * @param varied parameters that vary in a batch
   * @param row of several records: expression of the number of the step's own
   * @param machine what differs between machines
   */
  constructor(
    private readonly step: PlanStep,
    readonly variant: Variant,
    roles: readonly Role[],
    readonly bindings: readonly Binding[],
    readonly varied: readonly string[] = [],
    private readonly row = "",
    readonly machine: Machine = {},
  ) {
    this.roles = roles.map((role, i) => (step.operands[i] ? role : { ...role, bindings: [] }));
    this.applied = appliedOf(variant, step);
    this.operands = new Map(step.contract!.operands.map(({ name }, i) => [name, i]));
    this.calls = new Set([
      ...[...step.params].filter(([, x]) => follows(x)).map(([name]) => name),
      ...floatsOf(step),
      ...varied,
    ]);
  }

  /** A word of the step's record. */
  word(index: number): string {
    if (!this.row) return `record[${index >> 2}][${index & 3}]`;
    this.add(this.row);
    if (this.row !== "batch_part" || index === WORD.START) return recordWord(this.row, index);
    this.out.set(`word${index}`, `var<private> word${index}: u32;`);
    return `word${index}`;
  }

  /**
   * The text with the names that stand for others replaced; adds what it refers to.
   * @param own whether parameters may be named in it; not so in common functions
   */
  add(text: string, own = true): string {
    for (const [name, target] of this.applied)
      text = text.replace(new RegExp(`\\b${name}\\b`, "g"), target);
    if (own)
      for (const name of this.calls)
        text = text.replace(new RegExp(`(?<![.\\w])${name}\\b(?!\\s*\\()`, "g"), `${name}_()`);
    for (const name of new Set(text.match(/(?<![.\w])[A-Za-z_]\w*/g)))
      if (!this.out.has(name)) this.need(name);
    return text;
  }

  /** What it has collected, with a prefix before all names but those that shaders share. */
  renamed(prefix: string): [name: string, text: string][] {
    const shared = partsOf(COMMON);
    const apart = this.row !== "batch_part"; // it has a record of its own
    const own = [...this.out.keys()].filter((name) =>
      apart && (name === "fail" || name === "batch_choice")
        ? true
        : !shared.has(name) && !SPECIAL.has(name) && !wordOf(name),
    );
    const texts = own.map((name) => this.out.get(name)).join("\n");
    const within = Array.from(texts.matchAll(/\bfn (\w+)/g), ([, name]) => name!);
    const all = new Set([...own, ...within.filter((name) => !this.out.has(name))]);
    const names = new RegExp(`(?<![.\\w])(${[...all].join("|")})\\b`, "g");
    return [...this.out].map(([name, text]) => [
      own.includes(name) ? prefix + name : name,
      own.length ? text.replace(names, `${prefix}$1`) : text,
    ]);
  }

  /** Adds a declaration by name, if it is none of WGSL's own. */
  need(name: string): void {
    const { params } = this.step;
    const part = this.variant.all.get(name);
    if (part !== undefined) this.make(name, () => this.add(part, this.variant.parts.has(name)));
    else if (params.has(name) && !RESERVED.has(name)) this.parameter(name, params.get(name)!);
    else if (name === "type_code" && params.has("type"))
      this.out.set(name, `const type_code = ${String(params.get("type"))};`);
    else if (name.endsWith("_") && this.calls.has(name.slice(0, -1)))
      this.called(name.slice(0, -1));
    else if (SPECIAL.has(name)) this.special(name);
    else if (Object.hasOwn(this.machine, name)) this.out.set(name, this.machine[name]!);
    else this.accessor(name);
  }

  /** A declaration stands behind what it refers to, and may refer to itself through others. */
  private make(name: string, text: () => string): void {
    this.out.set(name, "");
    const made = text();
    this.out.delete(name);
    this.out.set(name, made);
  }

  private parameter(name: string, value: Param): void {
    if (this.calls.has(name)) return;
    if (Array.isArray(value)) this.out.set(name, `const ${name} = ${arrayOf(value)};`);
    else if (this.step.floats.has(name))
      this.out.set(name, `const ${name} = ${decimal(value as number)}f;`);
    else this.out.set(name, `const ${name} = ${String(value)};`);
  }

  private called(name: string): void {
    const value = this.step.params.get(name)!;
    let body: string;
    if (this.varied.includes(name))
      body = `-> u32 { return ${this.word(WORD.VARIED + this.varied.indexOf(name))}; }`;
    else if (Array.isArray(value)) {
      this.add("reg");
      body = `-> array<i32, ${value.length}> { return ${arrayOf(value)}; }`;
    } else if (isLinear(value)) {
      this.add("reg");
      body = `-> u32 { return u32(${linear(value)}); }`;
    } else {
      const at = WORD.FLOATS + floatsOf(this.step).indexOf(name);
      body = `-> f32 { return bitcast<f32>(${this.word(at)}); }`;
    }
    this.out.set(`${name}_`, `fn ${name}_() ${body}`);
  }

  private special(name: string): void {
    if (name === "reg") {
      this.registers = true;
      this.out.set(name, "fn reg(r: u32) -> i32 { return registers[r / 4u][r % 4u]; }");
      return;
    }
    if (name === "batch_part") {
      this.out.set(name, "var<private> batch_part: u32;");
      return;
    }
    if (name === "batch_choice") {
      const text = `return (${this.word(WORD.CHOICES)} >> (2u * k)) & 3u;`;
      this.out.set(name, `fn batch_choice(k: u32) -> u32 { ${text} }`);
      return;
    }
    this.fails = true;
    const at = this.word(WORD.STEP);
    this.out.set(
      name,
      "fn fail(index: i32) {" +
        ` loop { let seen = atomicCompareExchangeWeak(&errors[0], 0u, ${at});` +
        " if (seen.exchanged) { atomicStore(&errors[1], bitcast<u32>(index)); break; }" +
        " if (seen.old_value != 0u) { break; } } }",
    );
  }

  /** Adds a function of an operand. */
  private accessor(name: string): void {
    const of = name.startsWith("has_") ? this.operands.get(name.slice(4)) : undefined;
    if (of !== undefined) {
      this.out.set(name, `const ${name} = ${this.roles[of]!.bindings.length > 0};`);
      return;
    }
    for (const suffix of ["", "_set", "_int", "_word", "_at"]) {
      let operand = name.endsWith(suffix) ? name.slice(0, name.length - suffix.length) : name;
      const plain = operand.replace(/_$/, "");
      if (BUILT_IN.has(plain)) {
        operand = plain;
        if (suffix || name === operand) continue;
        const text = this.functionOf(this.operands.get(operand)!, "");
        this.out.set(name, text.replace(`fn ${operand}(`, `fn ${name}(`));
        return;
      }
      const index = this.operands.get(operand);
      if (index !== undefined && operand + suffix === name) {
        this.make(name, () => this.functionOf(index, suffix));
        return;
      }
    }
  }

  private functionOf(index: number, suffix: string): string {
    const { name } = this.step.contract!.operands[index]!;
    const role = this.roles[index]!;
    if (suffix === "_at") return this.indexFunction(index);
    const [dtype, bytes] = elementType(this.step, index);
    const type = TYPES[classOf(dtype, bytes) ?? "w"];
    if (!role.bindings.length) {
      if (suffix === "_set") return `fn ${name}_set(i: u32, v: ${type}) {}`;
      const kind = suffix === "_int" ? "i32" : suffix === "_word" ? "u32" : type;
      return `fn ${name}${suffix}(i: u32) -> ${kind} { return ${kind}(); }`;
    }
    const base = this.base(index, bytes);
    const texts = role.bindings.map((binding, way) => {
      const own = way ? `${name}_way${way}` : name;
      const { stored } = this.bindings[binding]!;
      const access = new Access(own, dtype, bytes, `bound${binding}`, stored, base);
      const [text, needs] = access.function(suffix);
      this.add(needs);
      return suffix === "_int" ? this.add(text) : text;
    });
    // "_int" reads by the other accessor
    return texts.length > 1 && suffix !== "_int" ? this.chosen(index, texts) : texts[0]!;
  }

  /**
   * The accessor of an operand that lies in one of several bindings.
   * @param texts of the accessors of each; the first gets a name of its own
   */
  private chosen(index: number, texts: readonly string[]): string {
    this.add("batch_choice");
    const [, name, given, result = ""] = /^fn (\w+)\((.*?)\)( -> \w+)? /.exec(texts[0]!)!;
    const own = (way: number): string =>
      way ? /fn (\w+)/.exec(texts[way]!)![1]! : `${name!}_way0`;
    const call = `(${given!.replace(/: \w+/g, "")})`;
    const returns = result && "return ";
    const cases = texts.slice(1).map((_, i) => {
      const done = `${returns}${own(i + 1)}${call}; ${result ? "" : "return; "}`;
      return `if (batch_choice(${index}u) == ${i + 1}u) { ${done}}`;
    });
    const body = `${cases.join(" ")} ${returns}${own(0)}${call};`;
    const first = texts[0]!.replace(`fn ${name!}(`, `fn ${own(0)}(`);
    return [first, ...texts.slice(1), `fn ${name!}(${given!})${result} { ${body} }`].join("\n");
  }

  /** The offset of an operand's element 0, in elements. */
  private base(index: number, bytes: number): string {
    const v = this.step.operands[index]!;
    const fixed = this.word(WORD.OFFSETS + index);
    if (v.register < 0 || !v.scale) return fixed;
    this.add("reg");
    return `(${fixed} + u32(reg(${v.register}u) * ${Math.floor(v.scale / bytes)}))`;
  }

  /** The function from a linear index to an element of a strided operand. */
  private indexFunction(index: number): string {
    const { name, strided: names } = this.step.contract!.operands[index]!;
    const [dims, strides] = names!.map((n) => this.step.params.get(n) as Number_[]);
    const text = strided(dims!, strides!);
    if (text.includes("reg(")) this.add("reg");
    return `fn ${name}_at(i: u32) -> u32 { ${text} }`;
  }
}

/** A number of a plan as an i32 expression. */
function linear(x: Number_): string {
  return isLinear(x) ? `(reg(${x.register}u) * ${x.scale} + ${x.add})` : String(x);
}

const arrayOf = (values: readonly Number_[]): string =>
  `array<i32, ${values.length}>(${values.map(linear).join(", ")})`;

/** A number of a plan as a u32 expression. */
export const u32 = (x: Number_): string => (isLinear(x) ? `u32(${linear(x)})` : `${x >>> 0}u`);

/** Names of the parameters that are infinite or NaN, in the order of their words in the record. */
export function floatsOf({ params, floats }: PlanStep): string[] {
  return [...floats].filter((name) => !Number.isFinite(params.get(name)));
}

/** A number as Python's repr writes it. */
export function decimal(x: number): string {
  const [, sign, first, rest = "", power] = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(
    x.toExponential(),
  )!;
  const exponent = Number(power);
  const digits = first + rest;
  if (Object.is(x, -0)) return "-0.0";
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${first}${rest && `.${rest}`}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

/** Statements that return the element which linear index i stands for. */
function strided(dims: readonly Number_[], strides: readonly Number_[]): string {
  const merged: [Number_, Number_][] = [];
  dims.forEach((d, i) => {
    const s = strides[i]!;
    if (d === 1) return;
    const last = merged.at(-1);
    if (last && ![d, s, ...last].some(isLinear) && last[1] === (s as number) * (d as number))
      merged[merged.length - 1] = [(last[0] as number) * (d as number), s];
    else merged.push([d, s]);
  });
  if (!merged.length) return "return 0u;";
  const text = ["var at = 0u;", "var r = i;"];
  for (let rest = merged.length - 1; rest >= 0; rest--) {
    const [d, s] = merged[rest]!;
    if (!rest) {
      if (s !== 0) text.push(`at += r * ${u32(s)};`);
      break;
    }
    text.push(`let q${rest} = r / ${u32(d)};`);
    if (s !== 0) text.push(`at += (r - q${rest} * ${u32(d)}) * ${u32(s)};`);
    text.push(`r = q${rest};`);
  }
  return [...text, "return at;"].join(" ");
}

/** Whether elements of an operand are read by their numbers, one after the other. */
export function isInOrder({ contract, params }: PlanStep, index: number): boolean {
  const [sizes, strides] = contract!.operands[index]!.strided?.map((x) => params.get(x)) ?? [];
  if (!Array.isArray(sizes) || !Array.isArray(strides)) return true;
  return strided(sizes, strides) === strided([2], [1]);
}
