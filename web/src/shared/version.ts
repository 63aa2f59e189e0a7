// What the build fills in.

declare const __VERSION__: string;
declare const __COMPILER__: string;

/** Edgewise's version. */
export const VERSION: string = __VERSION__;
/** Stands for the compiler in the wheel: what it makes is kept as long as this stays the same. */
export const COMPILER: string = __COMPILER__;
