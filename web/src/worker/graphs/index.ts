// The part of the worker for models of several graphs that no package has: finds their files, opens
// them, and answers the rules that run them.

export { findGraphs, noGraphs } from "./files.ts";
export { GraphHost, numbersOf, packed } from "./host.ts";
export { Graphs } from "./model.ts";
export { type One, opensOne } from "./one.ts";
