// The part of the worker for text-to-image.

export { draw } from "./draw.ts";
export { DiffusionHost } from "./host.ts";
