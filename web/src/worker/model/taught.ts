// What training needs of a decoder.

import type { PlanFile } from "../../gen/schema.ts";
import type { EngineDecoder } from "./decoder.ts";

/** A decoder whose adapters are trained. */
export type Taught = Pick<
  EngineDecoder,
  "adapter" | "clearCache" | "useWeights" | "recover" | "vocab_size"
> & { readonly info: { readonly plans: readonly Pick<PlanFile, "slots">[] } };
