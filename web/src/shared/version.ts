// Constants defined by build.mjs.

declare const __VERSION__: string;
declare const __COMPILER__: string;

/** Version of Edgewise. */
export const VERSION: string = __VERSION__;
/** Fingerprint of the compiler's sources; compiled plans are kept as long as it is unchanged. */
export const COMPILER: string = __COMPILER__;
