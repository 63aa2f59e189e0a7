// Profiles of language models and sessions.

import { InputError } from "../../shared/errors.ts";
import { type HandlersOf, released, type Scope } from "../calls.ts";
import type { Recorder } from "../profile/index.ts";

/** The methods of profiles. */
export function profileMethods(scope: Scope): HandlersOf<"profile"> {
  /** Active profiles by model; undefined: of the session. */
  const recorders = new Map<number | undefined, Recorder>();

  function device(model: number | undefined) {
    if (model !== undefined) return scope.model(model).device;
    if (!scope.device) throw released("profile");
    return scope.device();
  }

  return {
    async profile_start({ model }) {
      const watched = device(model);
      const { Recorder } = await import("../profile/index.ts");
      recorders.set(model, new Recorder(watched));
    },
    async profile_stop({ model, wanted }) {
      const recorder = recorders.get(model);
      if (!recorder) throw new InputError("no profile is active", "profile", "Begin one.");
      recorders.delete(model);
      if (wanted) return recorder.stop();
      recorder.release();
      return undefined;
    },
    async profile_trace({ data }) {
      const { trace_of } = await import("../profile/index.ts");
      return new Blob([JSON.stringify(trace_of(data.flavour, data.threads, data.plans))], {
        type: "application/json",
      });
    },
  };
}
