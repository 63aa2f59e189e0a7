// compiler.js: the script of the compiler's worker.

import { serveCompiler } from "../compiler/index.ts";

serveCompiler();
