// biome-ignore-all lint/suspicious/noExplicitAny: values of any module pass through
// Runs printed modules for tests/logic/forms.py: reads a message a line, writes an answer a line.
// Reading and writing wait, so that a function that was passed can be asked for in the middle of a
// call.

import { readSync, writeSync } from "node:fs";
import * as errors from "../../web/src/shared/errors.ts";

type Call = Record<string, any>;
type Module = Record<string, any>;

const objects: unknown[] = [];
let thrown: unknown; // the last error of an answer
const buffer = Buffer.alloc(1 << 16);
let rest = "";

function readLine(): string | undefined {
  for (;;) {
    const at = rest.indexOf("\n");
    if (at >= 0) {
      const line = rest.slice(0, at);
      rest = rest.slice(at + 1);
      return line;
    }
    const count = readSync(0, buffer);
    if (!count) return undefined;
    rest += buffer.toString("latin1", 0, count); // lines are ASCII
  }
}

function write(message: unknown): void {
  const bytes = Buffer.from(`${JSON.stringify(message)}\n`);
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

const ARRAYS: Record<string, any> = {
  f: Float32Array,
  d: Float64Array,
  i: Int32Array,
  B: Uint8Array,
};

function decode(value: any): any {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== "object") return value;
  if ("$number" in value) return Number(value.$number);
  if ("$bigint" in value) return BigInt(value.$bigint);
  if ("$map" in value) return new Map(value.$map.map(decode));
  if ("$set" in value) return new Set(value.$set.map(decode));
  if ("$bytes" in value) return new Uint8Array(Buffer.from(value.$bytes, "base64"));
  if ("$array" in value) return ARRAYS[value.$array].from(value.values.map(decode));
  if ("$object" in value) return objects[value.$object];
  if ("$missing" in value) return undefined;
  if ("$function" in value) return (...args: unknown[]) => ask(value.$function, args);
  return Object.fromEntries(value.$plain.map(decode));
}

function encode(value: any): any {
  if (value === undefined) return { $missing: 1 };
  if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0)))
    return { $number: Object.is(value, -0) ? "-0" : String(value) };
  if (typeof value === "bigint") return { $bigint: String(value) };
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(encode);
  if (value instanceof Map) return { $map: [...value].map(encode) };
  if (value instanceof Set) return { $set: [...value].map(encode) };
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  for (const [code, type] of Object.entries(ARRAYS))
    if (value instanceof type) return { $array: code, values: Array.from(value, encode) };
  const plain = Object.getPrototypeOf(value);
  if (plain === Object.prototype || plain === null)
    return { $plain: Object.entries(value).map(encode) };
  objects.push(value);
  return { $object: objects.length - 1, class: value.constructor.name };
}

function ask(id: number, args: unknown[]): unknown {
  write({ ask: id, args: args.map(encode) });
  const answer = JSON.parse(readLine() ?? "{}");
  if (answer.failed) throw new Error("the function that was passed failed");
  return decode(answer.value);
}

function answer(call: Call, modules: Record<string, Module>): unknown {
  const args = (call.args ?? []).map(decode);
  if (call.kind === "call") return modules[call.module]![call.name](...args);
  if (call.kind === "new") return new modules[call.module]![call.name](...args);
  const target: any = objects[call.object];
  if (call.kind === "get") {
    const found = target[call.name];
    return typeof found === "function" ? "$method" : found;
  }
  if (call.kind === "set") target[call.name] = args[0];
  else if (call.kind === "method") return target[call.name](...args);
  else if (call.kind === "next") {
    const { value, done } = target.next(...args);
    return { value, done: Boolean(done) };
  } else if (call.kind === "throw") {
    const { name, what, where, remedy } = call.error;
    const Class = (errors as any)[name];
    thrown = Class ? new Class(what, where, remedy) : new Error(what);
    const { value, done } = target.throw(thrown);
    return { value, done: Boolean(done) };
  } else if (call.kind === "return") target.return();
  return null;
}

export function serve(modules: Record<string, Module>): void {
  for (let line = readLine(); line !== undefined; line = readLine()) {
    try {
      write({ value: encode(answer(JSON.parse(line), modules)) });
    } catch (error) {
      const e = error as any;
      if (e && e === thrown) {
        write({ error: { same: true } });
        continue;
      }
      const name = e?.constructor?.className ?? e?.constructor?.name ?? "Error";
      const [what, where, remedy] = [e?.what ?? String(e?.message ?? e), e?.where, e?.remedy];
      write({ error: { name, what, where: where ?? "", remedy: remedy ?? "", stack: e?.stack } });
    }
  }
}
