// Models of one graph, whose rules call it "model", with their small files.

import { parseConfig } from "../text/tokenizer.ts";
import { findGraphs } from "./files.ts";
import type { GraphModel, OpenGraphs } from "./kinds.ts";
import { Graphs } from "./model.ts";

const TEXTS = ["preprocessor_config.json", "config.json"];

/** A model of one graph. */
export interface One {
  graphs: Graphs;
  /** Its name among the graphs. */
  name: string;
  processor: Record<string, unknown>;
  config: Record<string, unknown>;
}

/** Opens models of one graph. If making one fails, all resources are freed. */
export function opensOne(
  make: (one: One, request: Parameters<OpenGraphs>[0]) => Promise<GraphModel>,
): OpenGraphs {
  return async (request, ended, progress) => {
    const found = await findGraphs(request, [request.model_file_name], TEXTS, ended, progress);
    const graphs = await Graphs.of(request, found, ended, progress);
    try {
      const [processor, config] = TEXTS.map((name) => parseConfig(found.texts.get(name), name));
      const name = graphs.names[0]!;
      return await make({ graphs, name, processor: processor!, config: config! }, request);
    } catch (e) {
      graphs.close();
      throw e;
    }
  };
}
