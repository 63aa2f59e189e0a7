// VectorIndex: search in many vectors.

import { throwIfAborted } from "../../shared/abort.ts";
import type { HandlersOf, Scope } from "../calls.ts";
import type { Vectors } from "../vectors/index.ts";

/** The methods of the index that a worker has. */
export function vectorMethods(scope: Scope): HandlersOf<"vectors"> {
  let index: Vectors | undefined;
  return {
    async vectors_open(request, { signal }) {
      const { Vectors } = await import("../vectors/index.ts");
      const { vectors, texts } = await Vectors.open(request);
      if (scope.ended.signal.aborted || signal.aborted) vectors.close();
      throwIfAborted(signal);
      index = vectors;
      return { info: vectors.info, texts };
    },
    vectors_add: (rows) =>
      scope.turn(0, () => {
        index!.add(rows);
        return index!.info;
      }),
    vectors_search({ queries, top_k, within }, { signal, order }) {
      const work = () => {
        throwIfAborted(signal);
        return index!.search(queries, top_k, within);
      };
      return scope.turn(0, work, order, signal);
    },
    vectors_save: ({ texts }) => scope.turn(0, () => index!.save(texts)),
  };
}
