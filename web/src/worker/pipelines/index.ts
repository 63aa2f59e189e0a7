// The part of the worker for pipelines other than text generation.

// That of text-to-image is given what it shares with this one.
export { resizeImage } from "../media/resize.ts";
export { runHead } from "./heads/heads.ts";
export { TaskHost } from "./host.ts";
export { readImage } from "./images/decode.ts";
export { pixelValues } from "./images/pictures.ts";
// What parts of their own share with this one: worker.mjs needs it to be exported here.
export { Options } from "./options.ts";
export { soundLength, soundPieces } from "./sounds/read.ts";
export { feedTask, openTask, runTask } from "./tasks.ts";
export { numbers } from "./texts/text.ts";
