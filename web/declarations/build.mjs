// dist/*.d.ts: the declarations of each public module in one file. Needs the declarations that
// ../build.mjs writes. A package of its own, since rollup-plugin-dts needs TypeScript 6.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rollup } from "rollup";
import { dts } from "rollup-plugin-dts";
import { additions, modules } from "../modules.mjs";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
/** What adds to the library has its types from it. */
const library = {
  name: "the library's declarations",
  resolveId: (id) =>
    /\/page\/index(\.d)?\.[jt]s$/.test(id) ? { id: "./edgewise.js", external: true } : null,
};
for (const [module, name] of [
  ["page", "edgewise"],
  ...modules.map((name) => [`extras/${name}`, name]),
]) {
  const bundle = await rollup({
    input: join(dist, `types/${module}/index.d.ts`),
    plugins: [...(name in additions ? [library] : []), dts()],
    onwarn(warning) {
      throw new Error(warning.message);
    },
  });
  await bundle.write({ file: join(dist, `${name}.d.ts`) });
  await bundle.close();
}
writeFileSync(
  join(dist, "edgewise.global.d.ts"),
  "// The classic script defines `edgewise`.\n" +
    'declare global {\n  var edgewise: typeof import("./edgewise.js");\n}\nexport {};\n',
);
