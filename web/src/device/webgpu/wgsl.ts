// Whole WGSL programs for the steps of plans, from the bodies beside the kernels in C. The twin of
// python/edgewise/compiler/gpu/wgsl.py, which says what a body may use: both print the same text
// (tests/gpu/test_programs.py).

import { classOf, type Machine, TYPES } from "./accessors.ts";
import {
  type Binding,
  Linker,
  RECORD_BYTES,
  type Role,
  recordWord,
  u32,
  WORD,
  wordOf,
} from "./link.ts";
import { elementType, type Number_, type PlanStep, valuesOf } from "./steps.ts";
import { FOLD, type Variant, variantsOf } from "./variants.ts";

/** Registers that a plan may have. */
export const REGISTERS = 32;
/** Bindings of the record, the registers, the error, and the first operand. */
export const BINDING = { RECORD: 0, REGISTERS: 1, ERRORS: 2, OPERANDS: 3 } as const;

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
  /** Steps that it runs. */
  records: number;
}

/** Steps with a body of their own in a dispatch. */
export interface Kind {
  /** The first of them, and its number. */
  step: PlanStep;
  first: number;
  variant: Variant;
  roles: readonly Role[];
  varied: readonly string[];
}

/**
 * A step behind products that takes the result of one of them, an element or two at a time, instead
 * of reading it.
 */
export interface Taker {
  step: PlanStep;
  variant: Variant;
  roles: readonly Role[];
}

/** What a dispatch of several steps runs. */
export interface Batch {
  /** Number of its steps. */
  records: number;
  /** Parameters in which those that its body runs differ. */
  varied: readonly string[];
  /** The first step, where it computes an operand of the others instead of writing it. */
  head: PlanStep | undefined;
  /** The last one, where it joins the results of the two before it instead of reading them. */
  tail: PlanStep | undefined;
  headRoles: readonly Role[];
  tailRoles: readonly Role[];
  /** Whether the first of these two is the second operand of the last step. */
  swapped: boolean;
  /** Further kinds of steps, behind those of the program's own body. */
  others: readonly Kind[];
  /** The last steps, one for each that the body runs. */
  takers: readonly Taker[];
  /** A workgroup computes elements that are so far apart, so many of each. */
  apart: number;
  columns: number;
  /** Whether one workgroup runs one kind after the other. */
  chain: boolean;
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
      if (linker.varied.includes(name)) return `${name}_()`;
      return value === undefined || Array.isArray(value) || step.floats.has(name)
        ? name
        : u32(value);
    });
  return linker.add(text);
}

/**
 * The program of a step, or of several.
 * @param step the step, or the first one that the body runs
 * @param roles of its operands
 * @param bindings that the roles name
 * @param guarded whether it must do nothing once an index was out of range
 * @param batch what else the dispatch runs
 * @param machine what differs between machines
 */
export function programOf(
  step: PlanStep,
  variant: Variant,
  roles: readonly Role[],
  bindings: readonly Binding[],
  guarded: boolean,
  batch?: Batch,
  machine?: Machine,
): Program {
  const own = batch ? "batch_part" : "";
  const linker = new Linker(step, variant, roles, bindings, batch?.varied, own, machine);
  const linkers = [
    linker,
    ...(batch ? [ends, others, takers].flatMap((add) => add(linker, batch)) : []),
  ];
  linker.need(variant.parts.has("element") ? "element" : "run");
  let body = bodyOf(step, variant, linker, batch);
  const registers = linkers.some((one) => one.registers);
  const fails = linkers.some((one) => one.fails);
  const records = batch?.records ?? 1;
  const bound = (binding: number, space: string, name: string, type: string): string =>
    `@group(0) @binding(${binding}) var<${space}> ${name}: ${type};`;
  const lines = [bound(0, "uniform", "record", `array<vec4u, ${(RECORD_BYTES / 16) * records}>`)];
  if (registers) lines.push(bound(1, "uniform", "registers", `array<vec4i, ${REGISTERS / 4}>`));
  if (fails) lines.push(bound(2, "storage, read_write", "errors", "array<atomic<u32>>"));
  else if (guarded) lines.push(bound(2, "storage, read", "errors", "array<u32>"));
  bindings.forEach(({ written, stored }, i) => {
    const mode = written ? "read_write" : "read";
    lines.push(bound(BINDING.OPERANDS + i, `storage, ${mode}`, `bound${i}`, `array<${stored}>`));
  });
  const { group } = variant;
  if (guarded && fails && variant.parts.has("element") && !batch?.chain)
    body = `if (atomicLoad(&errors[0]) != 0u) { return; } ${body}`;
  else if (guarded && fails) {
    // others write the error meanwhile: one of the group reads it
    lines.push("var<workgroup> seen_error: u32;");
    body =
      "if (lane == 0u) { seen_error = atomicLoad(&errors[0]); }" +
      ` if (workgroupUniformLoad(&seen_error) != 0u) { return; } ${body}`;
  } else if (guarded) body = `if (errors[0] != 0u) { return; } ${body}`;
  lines.push(
    `const GROUP = ${group}u;`,
    ...[...linker.out.values()].filter(Boolean),
    ...(batch ? [beginOf(linker)] : []),
    `@compute @workgroup_size(${group}) fn main(@builtin(workgroup_id) wg: vec3u,` +
      ` @builtin(local_invocation_index) lane: u32) { ${body} }`,
    "",
  );
  return {
    text: lines.join("\n"),
    bindings,
    registers,
    fails,
    guarded,
    records,
  };
}

/** Adds what the first and the last step of a batch compute; returns their linkers. */
function ends(linker: Linker, batch: Batch): Linker[] {
  const out: Linker[] = [];
  const add = (name: string, text: string): void => {
    linker.out.set(name, text);
  };
  if (batch.head) {
    const variant = variantsOf(batch.head.kernel).find(({ computes }) => computes)!;
    const head = new Linker(batch.head, variant, batch.headRoles, linker.bindings, [], "0u");
    head.need("prepare");
    head.need("value");
    const [name] = linker.variant.before!;
    for (const part of head.renamed("before_")) add(...part);
    add(name, `fn ${name}(i: u32) -> f32 { return before_value(i); }`);
    out.push(head);
  }
  if (batch.tail) {
    const variant = variantsOf(batch.tail.kernel).find(({ joins }) => joins)!;
    const row = `${batch.records - 1}u`;
    const tail = new Linker(batch.tail, variant, batch.tailRoles, linker.bindings, [], row);
    const result = variant.joins!.split(" ")[2]!;
    const apply = tail.add("apply");
    tail.need(`${result}_set`);
    const [name] = linker.variant.after!;
    const both = batch.swapped ? "v, batch_kept" : "batch_kept, v";
    for (const part of tail.renamed("after_")) add(...part);
    linker.add("batch_part");
    add("batch_kept", "var<private> batch_kept: f32;");
    add(
      `${name}_set`,
      `fn ${name}_set(i: u32, v: f32) { if (batch_part == ${batch.records - 3}u)` +
        ` { batch_kept = v; } else { after_${result}_set(i, after_${apply}(${both})); } }`,
    );
    out.push(tail);
  }
  return out;
}

/** Links the bodies of further kinds of steps: kind1_element, kind1_total, ... */
function others(linker: Linker, batch: Batch): Linker[] {
  return batch.others.map(({ step, variant, roles, varied }, i) => {
    const { bindings, machine } = linker;
    const other = new Linker(step, variant, roles, bindings, varied, "batch_part", machine);
    other.need("element");
    const total = countOf(variant, step, other);
    other.out.set("total", `fn total() -> u32 { return ${total}; }`);
    for (const [name, text] of other.renamed(`kind${i + 1}_`)) linker.out.set(name, text);
    return other;
  });
}

/**
 * Links the bodies of the steps that take results: take0_element, ... A workgroup computes elements
 * twice; with the second ones these bodies run.
 */
function takers(linker: Linker, { takers: of, records, apart, head }: Batch): Linker[] {
  const calls: string[] = [];
  const found = of.map(({ step, variant, roles }, n) => {
    const { bindings, machine } = linker;
    const row = `${records - of.length + n}u`;
    const taker = new Linker(step, variant, roles, bindings, [], row, machine);
    const [name] = variant.takes!;
    const index = step.contract!.operands.findIndex((operand) => operand.name === name);
    const type = TYPES[classOf(...elementType(step, index))!];
    const taken = `bitcast<${type}>(select(batch_last, batch_kept, i == batch_at))`;
    taker.out.set(name, `fn ${name}(i: u32) -> ${type} { return ${taken}; }`);
    taker.need("element");
    for (const part of taker.renamed(`take${n}_`)) linker.out.set(...part);
    const run = `take${n}_element(`;
    const pair = `batch_at / ${2 * apart}u * ${apart}u + batch_at % ${2 * apart}u`;
    const all = variant.apart ? `${run}${pair});` : `${run}batch_at); ${run}i);`;
    calls.push(`if (batch_part == ${+!!head + n}u) { ${all} }`);
    return taker;
  });
  if (!of.length) return found;
  linker.add("batch_part");
  for (const field of ["kept: f32", "last: f32", "at: u32", "second: bool"])
    linker.out.set(`batch_${field.split(":")[0]!}`, `var<private> batch_${field};`);
  const [name] = linker.variant.after!;
  linker.out.set(
    `${name}_set`,
    `fn ${name}_set(i: u32, v: f32) { if (!batch_second) { batch_kept = v; batch_at = i;` +
      ` return; } batch_last = v; ${calls.join(" else ")} }`,
  );
  return found;
}

/** The function that a batch begins a step with: compilers do not all move reads out of loops. */
function beginOf(linker: Linker): string {
  const words = [...linker.out.keys()].flatMap((name) => wordOf(name)?.[1] ?? []);
  const reads = words
    .map(Number)
    .sort((a, b) => a - b)
    .map((i) => ` word${i} = ${recordWord("batch_part", i)};`);
  return `fn begin_part(part: u32) { batch_part = part;${reads.join("")} }`;
}

/** The statements of a program's entry point. */
function bodyOf(step: PlanStep, variant: Variant, linker: Linker, batch?: Batch): string {
  const count = countOf(variant, step, linker);
  const element = variant.parts.has("element");
  const { group } = variant;
  const at = `wg.y * ${FOLD}u + wg.x`;
  if (!batch)
    return element
      ? `let i = (${at}) * ${group}u + lane; if (i < ${count}) { element(i); }`
      : `let at = ${at}; if (at >= ${count}) { return; } run(at, lane);`;
  linker.add("batch_part");
  const prepare = batch.head ? "before_prepare(lane); " : "";
  if (batch.tail) {
    // both results by one invocation, one after the other
    const first = batch.records - 3;
    return (
      `let at = ${at}; if (at >= ${count}) { return; } ${prepare}begin_part(${first}u);` +
      ` run(at, lane); workgroupBarrier(); begin_part(${first + 1}u); run(at, lane);`
    );
  }
  // No barrier may depend on `batch_part`: compilers take it to differ between invocations.
  const low = batch.head ? 1 : 0;
  const row = RECORD_BYTES / 16;
  const of = (index: number): string => `${index >> 2}u][${index & 3}]`;
  const total = `record[${low * row + (WORD.TOTAL >> 2)}][${WORD.TOTAL & 3}]`;
  const search =
    `let place = ${at}; if (place >= ${total}) { return; }` +
    ` ${prepare}var low = ${low}u; var high = ${batch.records}u;` +
    " while (high - low > 1u) { let middle = (low + high) / 2u;" +
    ` if (record[middle * ${row}u + ${of(WORD.START)} <= place)` +
    " { low = middle; } else { high = middle; } }" +
    ` begin_part(low); let at = place - ${linker.word(WORD.START)};`;
  if (batch.chain) {
    const firsts = [0, ...batch.others.map(({ first }) => first), batch.records];
    const run = (begin: number, i: number): string => {
      const prefix = i ? `kind${i}_` : "";
      const most = i ? `${prefix}total()` : count;
      return (
        `for (var p = ${begin}u; p < ${firsts[i + 1]!}u; p++) { begin_part(p);` +
        ` for (var i = lane; i < ${most}; i += GROUP) { ${prefix}element(i); } }`
      );
    };
    return firsts.slice(0, -1).map(run).join(" storageBarrier(); ");
  }
  if (batch.takers.length) {
    const many = Math.floor(batch.apart / batch.columns);
    return (
      `${search} let own = at / ${many}u * ${2 * many}u + at % ${many}u; run(own, lane);` +
      ` workgroupBarrier(); batch_second = true; run(own + ${many}u, lane);`
    );
  }
  if (!element) return `${search} run(at, lane);`;
  const starts = batch.others.map(({ first }) => first);
  let text = `${search} let i = at * ${group}u + lane; `;
  if (starts.length) text += `if (batch_part < ${starts[0]!}u) { `;
  text += `if (i < ${count}) { element(i); }`;
  starts.forEach((_, i) => {
    const end = starts[i + 1];
    const body = `if (i < kind${i + 1}_total()) { kind${i + 1}_element(i); }`;
    text += ` } else ${end === undefined ? "" : `if (batch_part < ${end}u) `}{ ${body}`;
  });
  return starts.length ? `${text} }` : text;
}
