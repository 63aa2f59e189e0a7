// What Python's built-in types do and JavaScript's do not: the helpers of the files that
// core/generate/logic prints from python/edgewise/logic. Texts count code points here, and numbers
// are written as Python writes them. Only what Python's annotations leave open comes here;
// everything else is printed as plain TypeScript.

export * from "./python/bytes.ts";
export * from "./python/errors.ts";
export * from "./python/formats.ts";
export * from "./python/numbers.ts";
export * from "./python/pipelines.ts";
export * from "./python/texts.ts";
export * from "./python/types.ts";
export * from "./python/values.ts";
