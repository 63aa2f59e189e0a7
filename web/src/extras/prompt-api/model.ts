// LanguageModel of a pipeline.

import type { GenerateOptions, TextGenerationPipeline } from "../../page/text-generation.ts";
import { checkOptions, domError, isText, samplingOf } from "./input.ts";
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
 * @param pipe a pipeline of text generation, whose model has a chat template
 * @param defaults options of each answer, such as `max_new_tokens`; sessions go before them
 */
export function createLanguageModel(
  pipe: TextGenerationPipeline,
  defaults: GenerateOptions = {},
): LanguageModelClass {
  const isChat = async () => {
    try {
      await pipe.tokenizer.apply_chat_template([{ role: "user", content: "" }]);
      return true;
    } catch {
      return false;
    }
  };
  const Made = class extends LanguageModel {
    static async availability(options: LanguageModelCreateCoreOptions = {}) {
      checkOptions(options);
      return isText(options) && (await isChat()) ? "available" : "unavailable";
    }

    static async create(options: LanguageModelCreateOptions = {}): Promise<LanguageModel> {
      const { signal, monitor, initialPrompts = [], samplingMode = "balanced" } = options;
      signal?.throwIfAborted();
      if ((await Made.availability(options)) === "unavailable")
        throw domError(
          "this model is not for that: it takes texts, in chats if it has a template",
          "NotSupportedError",
        );
      const fields = { ...defaults, ...samplingOf(options) };
      const made = new Made({ pipe, fields, mode: samplingMode, tools: options.tools ?? [] });
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
 * Sets `globalThis.LanguageModel` where there is none.
 * @param pipe as of {@link createLanguageModel}
 * @param defaults the same
 * @returns the browser's, or that of the pipeline
 */
export function polyfill(
  pipe: TextGenerationPipeline,
  defaults: GenerateOptions = {},
): LanguageModelClass {
  const scope = globalThis as { LanguageModel?: LanguageModelClass };
  if (!scope.LanguageModel)
    Object.defineProperty(scope, "LanguageModel", {
      value: createLanguageModel(pipe, defaults),
      writable: true,
      configurable: true,
    });
  return scope.LanguageModel!;
}
