// check.mjs IN.wasm LIMIT BROTLI_LIMIT PAGES OUT.wasm: checks a built engine against the limits in
// Makefile, prints its size and copies it to OUT.wasm. An engine whose name lacks "threads" is made
// to import memory that is not shared. One with 64-bit addresses gets the section `edgewise.wide`,
// which tells hosts the calls that have some.
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { setFlagsFromString } from "node:v8";
import { brotliCompressSync } from "node:zlib";
import { read } from "./module.mjs";

const [input, limit, brotliLimit, pages, output] = process.argv.slice(2);
const shared = basename(output).includes("threads");
const built = readFileSync(input);
const { imports, exports, wide, initial, calls } = read(built);
const bytes = wide ? withSection(built, "edgewise.wide", calls) : shared ? built : unshared(built);
const wrong = [];

/** Clears the bit of the imported memory's limits that says that it is shared. */
function unshared(module) {
  const imports = Buffer.from("\x01\x03env\x06memory\x02\x03", "latin1"); // the import section
  const at = module.indexOf(imports);
  if (at < 0) throw new Error(`${input} does not import shared memory alone`);
  module[at + imports.length - 1] = 1;
  return module;
}

/** A module with a further custom section, which contains JSON. */
function withSection(module, name, value) {
  const size = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...size(n >> 7)]);
  const content = Buffer.from(String.fromCharCode(name.length) + name + JSON.stringify(value));
  return Buffer.concat([module, Buffer.from([0, ...size(content.length)]), content]);
}

// Node 20 requires this flag; later versions ignore it
setFlagsFromString("--experimental-wasm-relaxed-simd");
for (const name of imports)
  if (name !== "env.memory")
    wrong.push(`imports ${name}: a host must offer nothing but env.memory. Which source calls it?`);

const promised = ["malloc", "free", "__wasm_call_ctors"];
promised.push("__stack_pointer", "__tls_size", "__tls_align", "__wasm_init_tls");
for (const name of promised) if (!exports.has(name)) wrong.push(`does not export ${name}`);

if (initial > +pages)
  wrong.push(`begins with ${initial} pages; INITIAL_PAGES, which hosts give it, is ${pages}.`);

// A table and a memory of 64-bit addresses, which Node before version 24 lacks: there tests alone
// run such an engine, in a browser.
const WIDE = Buffer.from("\0asm\x01\0\0\0\x04\x04\x01\x70\x04\0\x05\x03\x01\x04\0", "latin1");
if (!wrong.length && (!wide || WebAssembly.validate(WIDE))) {
  const limits = wide
    ? { initial: BigInt(pages), maximum: 65536n, address: "i64" }
    : { initial: +pages, maximum: 65536 };
  const memory = new WebAssembly.Memory({ ...limits, shared });
  // throws if the module is invalid
  new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } });
}
const compressed = brotliCompressSync(bytes).length;
const remedy = "Compose from smaller kernels, or declare what few models need `rare`.";
if (bytes.length > +limit)
  wrong.push(`has ${bytes.length} bytes; the limit is ${limit}. ${remedy}`);
if (compressed > +brotliLimit)
  wrong.push(`has ${compressed} bytes as brotli; the limit is ${brotliLimit}. ${remedy}`);

if (wrong.length) {
  for (const line of wrong) console.error(`${basename(output)} ${line}`);
  process.exit(1);
}
const kB = (n) => `${(n / 1000).toFixed(1)} kB`;
writeFileSync(output, bytes);
console.log(
  `${basename(output)}: ${kB(bytes.length)}, ${kB(compressed)} as brotli (limits ` +
    `${kB(+limit)}, ${kB(+brotliLimit)})`,
);
