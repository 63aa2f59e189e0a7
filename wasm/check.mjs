// check.mjs IN.wasm LIMIT BROTLI_LIMIT PAGES OUT.wasm: checks a built engine against the limits in
// Makefile, prints its size and copies it to OUT.wasm. An engine whose name lacks "threads" is made
// to import memory that is not shared.
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { setFlagsFromString } from "node:v8";
import { brotliCompressSync } from "node:zlib";

const [input, limit, brotliLimit, pages, output] = process.argv.slice(2);
const shared = basename(output).includes("threads");
const bytes = shared ? readFileSync(input) : unshared(readFileSync(input));
const wrong = [];

/** Clears the bit of the imported memory's limits that says that it is shared. */
function unshared(module) {
  const imports = Buffer.from("\x01\x03env\x06memory\x02\x03", "latin1"); // the import section
  const at = module.indexOf(imports);
  if (at < 0) throw new Error(`${input} does not import shared memory alone`);
  module[at + imports.length - 1] = 1;
  return module;
}

// Node 20 requires this flag; later versions ignore it
setFlagsFromString("--experimental-wasm-relaxed-simd");
const module = new WebAssembly.Module(bytes);

const imports = WebAssembly.Module.imports(module).map((i) => `${i.module}.${i.name}`);
for (const name of imports)
  if (name !== "env.memory")
    wrong.push(`imports ${name}: a host must offer nothing but env.memory. Which source calls it?`);

const exports = new Set(WebAssembly.Module.exports(module).map((e) => e.name));
const promised = ["malloc", "free", "__wasm_call_ctors"];
promised.push("__stack_pointer", "__tls_size", "__tls_align", "__wasm_init_tls");
for (const name of promised) if (!exports.has(name)) wrong.push(`does not export ${name}`);

if (!wrong.length) {
  const memory = new WebAssembly.Memory({ initial: +pages, maximum: 65536, shared });
  new WebAssembly.Instance(module, { env: { memory } }); // throws if INITIAL_PAGES is too small
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
