// LanguageModel of a pipeline.

import type { GenerateOptions } from "../../page/text-generation.ts";
import { backendOf, type ChatPipeline, isChat } from "./backend.ts";
import {
  LanguageModelToolCall,
  LanguageModelToolError,
  LanguageModelToolSuccess,
} from "./content.ts";
import { checkOptions, isFor, samplingOf } from "./input.ts";
import { domError } from "./refusals.ts";
import { LanguageModel } from "./session.ts";
import type { LanguageModelCreateCoreOptions, LanguageModelCreateOptions } from "./types.ts";

/** `LanguageModel` of the browser's Prompt API. */
export interface LanguageModelClass {
  /**
   * Begins a session.
   * @throws DOMException: NotSupportedError for what the model cannot do; QuotaExceededError if the
   *   initial prompts are too long; the signal's reason
   * @throws TypeError, RangeError
   */
  create(options?: LanguageModelCreateOptions): Promise<LanguageModel>;
  /** Whether the model can do it: `available` or `unavailable`. @throws TypeError, RangeError */
  availability(options?: LanguageModelCreateCoreOptions): Promise<"available" | "unavailable">;
  readonly prototype: LanguageModel;
}

/**
 * The browser's Prompt API on a pipeline.
 * @param pipe a pipeline of text-generation, image-text-to-text or audio-text-to-text, whose model
 *   has a chat template
 * @param defaults options of each answer, such as `max_new_tokens`; sessions go before them
 */
export function createLanguageModel(
  pipe: ChatPipeline,
  defaults: GenerateOptions = {},
): LanguageModelClass {
  const backend = backendOf(pipe);
  const { media, calls } = backend;
  const Made = class extends LanguageModel {
    static async availability(options: LanguageModelCreateCoreOptions = {}) {
      checkOptions(options);
      const can = isFor(options, media, calls) && (await isChat(backend));
      return can ? "available" : "unavailable";
    }

    static async create(options: LanguageModelCreateOptions = {}): Promise<LanguageModel> {
      const { signal, monitor, initialPrompts = [], samplingMode = "balanced" } = options;
      signal?.throwIfAborted();
      if ((await Made.availability(options)) === "unavailable")
        throw domError(
          `this model is not for that: it takes ${["text", ...media].join(" and ")}, in chats ` +
            "if it has a template",
          "NotSupportedError",
        );
      const fields = { ...defaults, ...samplingOf(options) };
      const { tools = [], expectedInputs = [], expectedOutputs = [] } = options;
      const types = expectedInputs.map(({ type }) => type);
      const lists = expectedOutputs.some(({ type }) => type === "tool-call");
      const made = new Made({
        backend,
        fields,
        mode: samplingMode,
        tools,
        types,
        lists: lists && !tools.some(({ execute }) => execute),
      });
      if (monitor) await told(monitor, signal);
      await made.begin(initialPrompts, signal);
      return made;
    }
  };
  Object.defineProperty(Made, "name", { value: "LanguageModel" });
  return Made as unknown as LanguageModelClass;
}

/** Tells that a model is there, which was loaded before. */
async function told(monitor: (target: EventTarget) => void, signal: AbortSignal | undefined) {
  const target = new EventTarget();
  monitor(target);
  for (const loaded of [0, 1]) {
    const progress = { loaded, total: 1, lengthComputable: true };
    target.dispatchEvent(new ProgressEvent("downloadprogress", progress));
    await new Promise((resolve) => setTimeout(resolve)); // a listener may abort
    signal?.throwIfAborted();
  }
}

/**
 * Sets `globalThis.LanguageModel`, and the classes of calls of tools, where there is none.
 * @param pipe as of {@link createLanguageModel}
 * @param defaults the same
 * @returns the browser's, or that of the pipeline
 */
export function polyfill(pipe: ChatPipeline, defaults: GenerateOptions = {}): LanguageModelClass {
  const scope = globalThis as { LanguageModel?: LanguageModelClass };
  if (!scope.LanguageModel) {
    const values = {
      LanguageModel: createLanguageModel(pipe, defaults),
      LanguageModelToolCall,
      LanguageModelToolSuccess,
      LanguageModelToolError,
    };
    for (const [name, value] of Object.entries(values))
      Object.defineProperty(scope, name, { value, writable: true, configurable: true });
  }
  return scope.LanguageModel!;
}
