// bytecode.mjs WHEEL [OUT]   Adds bytecode to the pure wheel, made by the Python of
// web/node_modules/pyodide, the one that will run it.
//
// The .pyc files lie in __pycache__ beside their sources and are marked as not to be checked
// against them (an unpacked wheel has whatever dates), so the wheel stays py3-none-any: a Python of
// another version passes them over and compiles the sources as always.
//
// Measured with Pyodide 314.0.7 on two busy cores, medians: `import edgewise` 70 instead of 339 ms
// in Chromium (8 runs each), 145 instead of 542 ms in Node (5 runs), loadPackage as long with it as
// without. It costs 275 kB (499 instead of 224), which is less time than that from 8 Mbit/s on, and
// none on a later visit. Without column numbers (no_debug_ranges: tracebacks lack their ^^^^) it is
// a quarter smaller. Bytecode without sources would save 140 kB and leave no lines in tracebacks.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { loadPyodide } from "../../web/node_modules/pyodide/pyodide.mjs";

const [wheel, out = wheel] = process.argv.slice(2);
const pyodide = await loadPyodide({ args: ["-X", "no_debug_ranges"] });
pyodide.FS.writeFile("/in.whl", readFileSync(wheel));
pyodide.runPython(`
import base64, hashlib, py_compile, sys, zipfile

old = zipfile.ZipFile("/in.whl")
parts = {i.filename: old.read(i) for i in old.infolist() if "__pycache__" not in i.filename}
record = next(n for n in parts if n.endswith(".dist-info/RECORD"))
del parts[record]
for name in [n for n in parts if n.endswith(".py")]:
    with open("/source.py", "wb") as f:
        f.write(parts[name])
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile("/source.py", "/source.pyc", name, True, invalidation_mode=unchecked)
    folder, slash, file = name.rpartition("/")
    with open("/source.pyc", "rb") as f:
        tag = sys.implementation.cache_tag
        parts[f"{folder}{slash}__pycache__/{file[:-3]}.{tag}.pyc"] = f.read()

lines = []
with zipfile.ZipFile("/out.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
    def add(name, data):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same wheel from the same sources
        info.external_attr, info.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
        new.writestr(info, data)
    for name, data in parts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\\n")
        add(name, data)
    add(record, "".join(lines) + f"{record},,\\n")
`);
writeFileSync(`${out}.part`, pyodide.FS.readFile("/out.whl"));
renameSync(`${out}.part`, out);
process.exit(0); // Pyodide in Node keeps the process alive
