// The report on a GPU.

import type { HandlersOf, Scope } from "../calls.ts";

/** The method of the report. */
export function gpuMethods(scope: Scope): HandlersOf<"gpu"> {
  return {
    gpu_report: (request, { signal, send }) =>
      scope.turn(0, async () => {
        const { reportOf } = await import("../gpu-report/index.ts");
        return reportOf(request, signal, (value) => send({ event: { name: "part", value } }));
      }),
  };
}
