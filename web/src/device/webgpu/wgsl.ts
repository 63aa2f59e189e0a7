// Whole WGSL programs for the steps of plans, from the bodies beside the kernels in C. The twin of
// python/edgewise/webgpu/wgsl.py, which says what a body may use: both print the same text
// (tests/gpu/test_programs.py).

import { Access, classOf, type Stored, TYPES } from "./accessors.ts";
import {
  elementType,
  follows,
  isLinear,
  type Number_,
  type Param,
  type PlanStep,
  valuesOf,
} from "./steps.ts";
import { appliedOf, FOLD, type Variant } from "./variants.ts";

/** Words of a step's record: offsets, floats that WGSL has no constants for, the step's number. */
export const OFFSETS = 16;
export const FLOATS = 16;
export const STEP_WORD = 32;
export const RECORD_BYTES = 256;
/** Registers that a plan may have. */
export const REGISTERS = 32;
/** Bindings of the record, the registers, the error, and the first operand. */
export const BINDING = { RECORD: 0, REGISTERS: 1, ERRORS: 2, OPERANDS: 3 } as const;

const RESERVED = new Set(["type", "as", "mod", "filter", "from", "final", "target", "set"]);
/** Operands of these names have accessors with an underscore. */
const BUILT_IN = new Set(["cos", "sin"]);

/** How an operand is bound: the number of its binding, -1 where it is absent. */
export interface Role {
  binding: number;
  written: boolean;
}

/** A buffer of a step. */
export interface Binding {
  written: boolean;
  stored: Stored;
}

/** The program of a step. */
export interface Program {
  /** WGSL. */
  text: string;
  bindings: readonly Binding[];
  /** Whether it reads registers. */
  registers: boolean;
  /** Whether it can report an index that is out of range. */
  fails: boolean;
  /** Whether it does nothing once an index was out of range. */
  guarded: boolean;
}

/** Collects what a body refers to. */
class Linker {
  readonly out = new Map<string, string>();
  registers = false;
  fails = false;
  private readonly applied: ReadonlyMap<string, string>;
  private readonly operands: ReadonlyMap<string, number>;
  /** Parameters that are functions. */
  private readonly calls: ReadonlySet<string>;

  constructor(
    private readonly step: PlanStep,
    private readonly variant: Variant,
    private readonly roles: readonly Role[],
    private readonly bindings: readonly Binding[],
  ) {
    this.applied = appliedOf(variant, step);
    this.operands = new Map(step.contract!.operands.map(({ name }, i) => [name, i]));
    this.calls = new Set([
      ...[...step.params].filter(([, x]) => follows(x)).map(([name]) => name),
      ...floatsOf(step),
    ]);
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

  /** Adds a declaration by name, if it is none of WGSL's own. */
  need(name: string): void {
    const { params } = this.step;
    const part = this.variant.all.get(name);
    if (part !== undefined) this.make(name, () => this.add(part, this.variant.parts.has(name)));
    else if (params.has(name) && !RESERVED.has(name)) this.parameter(name, params.get(name)!);
    else if (name === "type_code" && params.has("type"))
      this.out.set(name, `const type_code = ${String(params.get("type"))};`);
    else if (this.variant.consts.some(([own]) => own === name)) {
      const is = this.variant.consts.find(([own]) => own === name)![1];
      this.out.set(name, `const ${name} = ${is(Object.fromEntries(params))};`);
    } else if (name.endsWith("_") && this.calls.has(name.slice(0, -1)))
      this.called(name.slice(0, -1));
    else if (name === "fail" || name === "reg") this.special(name);
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
    if (Array.isArray(value)) {
      this.add("reg");
      body = `-> array<i32, ${value.length}> { return ${arrayOf(value)}; }`;
    } else if (isLinear(value)) {
      this.add("reg");
      body = `-> u32 { return u32(${linear(value)}); }`;
    } else {
      const at = FLOATS + floatsOf(this.step).indexOf(name);
      body = `-> f32 { return bitcast<f32>(record[${at >> 2}][${at & 3}]); }`;
    }
    this.out.set(`${name}_`, `fn ${name}_() ${body}`);
  }

  private special(name: "fail" | "reg"): void {
    if (name === "reg") {
      this.registers = true;
      this.out.set(name, "fn reg(r: u32) -> i32 { return registers[r / 4u][r % 4u]; }");
      return;
    }
    this.fails = true;
    const at = `record[${STEP_WORD >> 2}][${STEP_WORD & 3}]`;
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
      this.out.set(name, `const ${name} = ${this.roles[of]!.binding >= 0};`);
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
    if (role.binding < 0) {
      if (suffix === "_set") return `fn ${name}_set(i: u32, v: ${type}) {}`;
      const kind = suffix === "_int" ? "i32" : suffix === "_word" ? "u32" : type;
      return `fn ${name}${suffix}(i: u32) -> ${kind} { return ${kind}(); }`;
    }
    const { stored } = this.bindings[role.binding]!;
    const base = this.base(index, bytes);
    const access = new Access(name, dtype, bytes, `bound${role.binding}`, stored, base);
    const [text, needs] = access.function(suffix);
    this.add(needs);
    return suffix === "_int" ? this.add(text) : text;
  }

  /** The offset of an operand's element 0, in elements. */
  private base(index: number, bytes: number): string {
    const v = this.step.operands[index]!;
    const fixed = `record[${index >> 2}][${index & 3}]`;
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

const u32 = (x: Number_): string => (isLinear(x) ? `u32(${linear(x)})` : `${x >>> 0}u`);

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

/** The number of threads or groups as a u32 expression. */
function countOf(variant: Variant, step: PlanStep, linker: Linker): string {
  const { params } = step;
  const text = variant
    .text(valuesOf(step, []))
    .replace(/(?<![\w.])(\d+)(?![\w.])/g, "$1u")
    .replaceAll("//", "/")
    .replace(/volume\((\w+)\)/g, (_, sizes: string) => {
      const factors = (params.get(sizes) as Number_[]).filter((x) => x !== 1).map(u32);
      return `(${(factors.length ? factors : ["1u"]).join(" * ")})`;
    })
    .replace(/(?<![\w.])[a-z]\w*(?!\w*\()/g, (name) => {
      const value = params.get(name);
      return value === undefined || Array.isArray(value) || step.floats.has(name)
        ? name
        : u32(value);
    });
  return linker.add(text);
}

/**
 * The program of a step.
 * @param roles of the operands
 * @param bindings that the roles name
 * @param guarded whether it must do nothing once an index was out of range
 */
export function programOf(
  step: PlanStep,
  variant: Variant,
  roles: readonly Role[],
  bindings: readonly Binding[],
  guarded: boolean,
): Program {
  const linker = new Linker(step, variant, roles, bindings);
  const element = variant.parts.has("element");
  linker.need(element ? "element" : "run");
  const count = countOf(variant, step, linker);
  const bound = (binding: number, space: string, name: string, type: string): string =>
    `@group(0) @binding(${binding}) var<${space}> ${name}: ${type};`;
  const lines = [bound(0, "uniform", "record", `array<vec4u, ${RECORD_BYTES / 16}>`)];
  if (linker.registers)
    lines.push(bound(1, "uniform", "registers", `array<vec4i, ${REGISTERS / 4}>`));
  if (linker.fails) lines.push(bound(2, "storage, read_write", "errors", "array<atomic<u32>>"));
  else if (guarded) lines.push(bound(2, "storage, read", "errors", "array<u32>"));
  bindings.forEach(({ written, stored }, i) => {
    const mode = written ? "read_write" : "read";
    lines.push(bound(BINDING.OPERANDS + i, `storage, ${mode}`, `bound${i}`, `array<${stored}>`));
  });
  const { group } = variant;
  const index = `wg.y * ${FOLD}u + wg.x`;
  let body = element
    ? `let i = (${index}) * ${group}u + lane; if (i < ${count}) { element(i); }`
    : `let at = ${index}; if (at >= ${count}) { return; } run(at, lane);`;
  if (guarded && linker.fails) {
    // others write the error meanwhile: one of the group reads it
    lines.push("var<workgroup> seen_error: u32;");
    body =
      "if (lane == 0u) { seen_error = atomicLoad(&errors[0]); }" +
      ` if (workgroupUniformLoad(&seen_error) != 0u) { return; } ${body}`;
  } else if (guarded) body = `if (errors[0] != 0u) { return; } ${body}`;
  lines.push(
    `const GROUP = ${group}u;`,
    ...[...linker.out.values()].filter(Boolean),
    `@compute @workgroup_size(${group}) fn main(@builtin(workgroup_id) wg: vec3u,` +
      ` @builtin(local_invocation_index) lane: u32) { ${body} }`,
    "",
  );
  return {
    text: lines.join("\n"),
    bindings,
    registers: linker.registers,
    fails: linker.fails,
    guarded,
  };
}
