// The kinds of models of several graphs, each a part of the worker of its own.

import type { GraphsCall, GraphsInfo } from "../../protocol/graphs.ts";
import type { LoadRequest } from "../../protocol/loading.ts";
import type { Progress } from "../files/reports.ts";

/** A model that was opened. */
export interface GraphModel {
  readonly info: GraphsInfo;
  /** A call of one of its methods; what it sends goes to the page while it runs. */
  call(
    call: GraphsCall,
    signal: AbortSignal,
    send: (name: string, value: unknown) => void,
  ): Promise<Record<string, unknown>>;
  close(): void;
}

/** Opens a model. `ended`: aborted when the worker ends. */
export type OpenGraphs = (
  request: LoadRequest,
  ended: AbortSignal,
  progress: Progress,
) => Promise<GraphModel>;
