// Chat templates: Hugging Face's Jinja interpreter with limits on steps, characters and seconds.
//
// A template is an untrusted program. python/edgewise/host/text/templates/sandbox.py has the same
// limits for jinja2's sandbox.

import { Interpreter, Template } from "@huggingface/jinja";
import { COPY, LIMITS } from "../../logic/text/limits.ts";
import { check_template } from "../../logic/text/template_limits.ts";
import { TokenizerError } from "../../shared/errors.ts";
import { message } from "../../shared/words.ts";
import { BoundedInterpreter } from "./template-interpreter.ts";
import { TemplateLimit } from "./template-weights.ts";

/** The limit of jinja2's sandbox. */
const MAX_RANGE = 100_000;
const WHERE = "chat template";

/**
 * `range` with jinja2's limit. The interpreter materializes the list, so its numbers count as
 * steps.
 */
function rangeFor(
  interpreter: BoundedInterpreter,
): (start: number, stop?: number, step?: number) => number[] {
  return (start, stop, step = 1) => {
    if (step === 0) throw new Error("range() step must not be zero");
    const [from, to] = stop === undefined || stop === null ? [0, start] : [start, stop];
    const count = Math.max(0, Math.ceil((to - from) / step));
    if (!(count <= MAX_RANGE)) throw new TemplateLimit(`a range of ${count} numbers`);
    interpreter.count(count);
    return Array.from({ length: count }, (_, i) => from + i * step);
  };
}

/** A model's chat template. */
export class ChatTemplate {
  private readonly template: Template;

  /** @throws TokenizerError if the source is not text, too long, or not a valid template */
  constructor(source: unknown) {
    if (typeof source !== "string")
      throw new TokenizerError(
        `the chat template is a ${Array.isArray(source) ? "list" : typeof source}, not text`,
        WHERE,
        COPY,
      );
    check_template(source, WHERE);
    try {
      this.template = new Template(source);
    } catch (e) {
      throw new TokenizerError(`the chat template is invalid: ${message(e)}`, WHERE, COPY);
    }
  }

  /**
   * Renders the template.
   * @throws TokenizerError if it rejects the messages, or exceeds a limit
   */
  render(variables: Record<string, unknown>): string {
    // The library's `render` creates an environment with its functions; keep that part and replace
    // only the interpreter.
    const { run } = Interpreter.prototype;
    Interpreter.prototype.run = function (this: Interpreter, program) {
      const scope = this.global as unknown as {
        variables: Map<string, unknown>;
        set(name: string, value: unknown): unknown;
      };
      scope.variables.delete("range");
      const interpreter = new BoundedInterpreter(this.global);
      scope.set("range", rangeFor(interpreter));
      return run.call(interpreter, program);
    };
    try {
      const text = this.template.render(variables);
      if (text.length > LIMITS.template_chars_made)
        throw new TemplateLimit(`an output of more than ${LIMITS.template_chars_made} characters`);
      return text;
    } catch (e) {
      if (e instanceof TemplateLimit)
        throw new TokenizerError(`the chat template exceeds a limit: ${e.message}`, WHERE, COPY);
      throw new TokenizerError(
        `the chat template refused the messages: ${message(e)}`,
        WHERE,
        "Check the roles and their order; each model's template has its own rules.",
      );
    } finally {
      Interpreter.prototype.run = run;
    }
  }
}
