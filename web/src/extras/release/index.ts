/**
 * Releases: new versions of a package, a model or an adapter, signed with The Update Framework, of
 * which only what changed is downloaded.
 *
 * ```js
 * import { pipeline } from "edgewise";
 * import { ModelUpdates } from "edgewise/release";
 * const options = { name: "letters", root };
 * const updates = await ModelUpdates.open("https://models.example.org/", options);
 * await updates.update();
 * const write = await pipeline("text-generation", updates.model);
 * ```
 *
 * `edgewise release` makes them.
 * @module
 */

export {
  Aborted,
  EdgewiseError,
  EngineError,
  InputError,
  StorageError,
} from "../../shared/errors.ts";
export { ReleaseError, type ReleaseProblem } from "./errors.ts";
export {
  type AvailableVersion,
  ModelUpdates,
  type ReleaseVersion,
  type UpdateOptions,
  type UpdatesOptions,
} from "./updates.ts";
