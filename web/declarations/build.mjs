// dist/*.d.ts: the declarations of each public module in one file. Needs the declarations that
// ../build.mjs writes. A package of its own, since rollup-plugin-dts needs TypeScript 6.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rollup } from "rollup";
import { dts } from "rollup-plugin-dts";
import { modules } from "../modules.mjs";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
for (const [module, name] of [["page", "edgewise"], ...modules.map((name) => [name, name])]) {
  const bundle = await rollup({
    input: join(dist, `types/${module}/index.d.ts`),
    plugins: [dts()],
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
