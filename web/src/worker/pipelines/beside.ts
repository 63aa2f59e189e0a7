// A graph that is run in a session beside the plans of a pipeline, which compiles plans for the
// shapes of its inputs: an encoder of pictures of any size, or a graph whose shapes depend on data.

import { BOUNDS, type OpenInfo, type OpenRequest } from "../../protocol/inference.ts";
import type { TaskTensor } from "../../protocol/tasks.ts";
import { PackageError } from "../../shared/errors.ts";
import { InferenceService } from "../inference/service.ts";
import type { Filled } from "../model/load.ts";

/** An open session. */
export class Beside {
  private constructor(
    private readonly service: InferenceService,
    readonly info: OpenInfo,
  ) {}

  /**
   * Opens a file of a model that was loaded.
   * @param file its name, as the manifest says it
   * @param what it is, for the error
   * @throws PackageError if the model is a package, which has no such file; as openModel
   */
  static async open({ job, found }: Filled, file: string, what: string): Promise<Beside> {
    if (!found.beside)
      throw new PackageError(
        `its ${what}, and is not in it`,
        found.where,
        "Give the page the model's folder, or the id of the model.",
      );
    const { urls, device, flavour, threads, cache, cache_files, fetch_options } = job.request;
    const request: OpenRequest = {
      ...found.beside(file),
      ...{ urls, device, flavour, threads, cache, cache_files, fetch_options },
      ...BOUNDS,
    };
    const service = new InferenceService();
    return new Beside(service, await service.open(request, job.progress, job.signal));
  }

  /**
   * Runs it.
   * @param outputs names of those that are wanted
   * @throws InputError, UnsupportedOp, OutOfMemory, Aborted
   */
  async run(
    feeds: Record<string, TaskTensor>,
    outputs: string[],
    ending: { readonly aborted: boolean },
  ): Promise<TaskTensor[]> {
    const request = { feeds, outputs, seed: undefined, pinned: undefined, copied: false };
    const { value } = await this.service.run(request, ending, () => undefined);
    return value.values as TaskTensor[];
  }
}
