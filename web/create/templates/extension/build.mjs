// npm run build: dist/ is the extension, to be loaded unpacked from chrome://extensions.
import { cpSync, readdirSync, rmSync } from "node:fs";

const library = "node_modules/edgewise/dist";
rmSync("dist", { recursive: true, force: true });
cpSync("src", "dist", { recursive: true });
for (const name of readdirSync(library))
  if (/^(edgewise|extension|worker(-\w+)?)\.js$/.test(name) || name === "engine")
    cpSync(`${library}/${name}`, `dist/edgewise/${name}`, { recursive: true });
