// Reads what check.mjs needs of a WebAssembly module, also where Node cannot compile it.

const FUNCTION = 0;
const TABLE = 1;
const MEMORY = 2;
const I64 = 0x7e;
const WIDE = 4; // bit of limits: 64-bit addresses
const SECTIONS = { types: 1, imports: 2, functions: 3, exports: 7 };

class Reader {
  constructor(module) {
    this.module = module;
    this.at = 8;
    this.sections = new Map();
    while (this.at < module.length) {
      const id = this.byte();
      const end = this.number() + this.at;
      if (id) this.sections.set(id, this.at);
      this.at = end;
    }
  }

  byte = () => this.module[this.at++];

  number = () => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = this.byte();
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };

  list(item) {
    return Array.from({ length: this.number() }, item);
  }

  section(id, item) {
    this.at = this.sections.get(id);
    return this.at === undefined ? [] : this.list(item);
  }

  name() {
    const length = this.number();
    this.at += length;
    return this.module.toString("latin1", this.at - length, this.at);
  }

  /** Of a memory or table: whether it is 64-bit, and its least size. */
  limits() {
    const bits = this.byte();
    const initial = this.number();
    if (bits & 1) this.number();
    return { wide: (bits & WIDE) !== 0, initial };
  }

  imported() {
    const name = `${this.name()}.${this.name()}`;
    const kind = this.byte();
    if (kind === FUNCTION) this.number();
    else if (kind !== MEMORY) this.byte(); // type of a table's elements or of a global
    if (kind > MEMORY) this.byte(); // whether the global is mutable
    return { name, kind, ...(kind === MEMORY || kind === TABLE ? this.limits() : {}) };
  }
}

/**
 * Names of a module's imports and exports; whether its memory has 64-bit addresses, and the pages
 * that it must begin with, in which static data and the stack lie; and of the exported functions
 * that take or return 64 bits {name: [each parameter..., the result]}, with 1 for 64 bits.
 */
export function read(module) {
  const r = new Reader(module);
  const types = r.section(SECTIONS.types, () => {
    r.byte();
    return { takes: r.list(r.byte), gives: r.list(r.byte) };
  });
  const imports = r.section(SECTIONS.imports, () => r.imported());
  const functions = r.section(SECTIONS.functions, r.number);
  const first = imports.filter(({ kind }) => kind === FUNCTION).length;
  const calls = {};
  const exports = r.section(SECTIONS.exports, () => {
    const [name, kind, index] = [r.name(), r.byte(), r.number()];
    if (kind !== FUNCTION) return name;
    const { takes, gives } = types[functions[index - first]];
    const is = [...takes, gives[0]].map((type) => Number(type === I64));
    if (is.includes(1)) calls[name] = is;
    return name;
  });
  return {
    imports: imports.map(({ name }) => name),
    exports: new Set(exports),
    wide: imports.some(({ wide }) => wide),
    initial: imports.find(({ kind }) => kind === MEMORY)?.initial,
    calls,
  };
}
