// Thumbs up and down on answers, and what is learned from them: KTO's loss, whose reference is the
// model without the adapter.

import {
  InputError,
  type InterruptableStoppingCriteria,
  type Message,
  type PipelineOptions,
  type TextGenerationPipeline,
  Trainer,
  type TrainingRecord,
} from "edgewise";
import { $, input, number } from "../page.ts";
import { previewOf } from "../seen.ts";
import { count } from "./room.ts";

const NAME = "thumbs"; // of the adapter
const SEQUENCE = 256; // tokens of a question with its answer
const SECONDS = 60; // for learning
const STEPS = 30;
const AT_ONCE = 4; // answers of an update

/** How a model is compiled to learn from thumbs. */
export const TRAINING: PipelineOptions["training"] = {
  r: 8,
  batch_size: 1,
  sequence_length: SEQUENCE,
};

interface Thumb {
  prompt: Message[];
  answer: Message;
  good: boolean;
}

/** The thumbs of a conversation. They stay when an answer is made again. */
export class Thumbs {
  private readonly given = new Map<object, Thumb>();
  /** What was learned from last. */
  private seen: { model: TextGenerationPipeline; data: TrainingRecord[] } | undefined;
  private readonly changed = previewOf(() => this.seen);

  /** @param ready called when the thumbs have changed */
  constructor(private readonly ready: () => void) {}

  /** Whether there is enough to learn from: KTO compares an answer with another one. */
  get enough(): boolean {
    return this.given.size > 1;
  }

  /** Forgets them all: the model is another one. */
  clear(): void {
    this.given.clear();
    this.seen = undefined;
    this.tell();
    $("learned-row").hidden = true;
    $("seen").hidden = true;
  }

  /**
   * The two buttons of an answer.
   * @param turn that they belong to
   * @param prompt what the model had read
   * @param answer its message
   */
  buttons(turn: object, prompt: Message[], answer: Message): HTMLElement {
    const group = document.createElement("span");
    group.className = "thumbs";
    const both = [true, false].map((good) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain";
      button.textContent = good ? "👍 Good" : "👎 Bad";
      const words = String(answer.content).slice(0, 40);
      button.setAttribute("aria-label", `${good ? "Good" : "Bad"} answer: ${words}`);
      button.addEventListener("click", () => {
        if (this.given.get(turn)?.good === good) this.given.delete(turn);
        else this.given.set(turn, { prompt, answer, good });
        press();
        this.tell();
        this.ready();
      });
      group.append(button);
      return { button, good };
    });
    const press = () => {
      for (const { button, good } of both)
        button.setAttribute("aria-pressed", String(this.given.get(turn)?.good === good));
    };
    press();
    return group;
  }

  private tell(words = ""): void {
    const good = [...this.given.values()].filter((one) => one.good).length;
    const bad = this.given.size - good;
    const answers = good + bad === 1 ? "answer" : "answers";
    const counted = `${number(good)} good and ${number(bad)} bad ${answers}.`;
    const missing = this.enough ? "" : " It learns from two or more.";
    $("thumbs-words").textContent = words || (good + bad ? counted + missing : "");
  }

  /**
   * Learns from the thumbs for a minute.
   * @param model compiled with TRAINING
   * @param stop ends it early; what was learned so far counts
   */
  async learn(model: TextGenerationPipeline, stop: InterruptableStoppingCriteria): Promise<void> {
    const data = await Promise.all(
      [...this.given.values()].map(async ({ prompt, answer, good }) => ({
        prompt: await fitting(model, prompt, answer),
        completion: [answer],
        label: good,
      })),
    );
    this.seen = { model, data };
    $("seen").hidden = false;
    this.changed();
    this.tell("Reading the answers");
    const trainer = await Trainer.create(model, data, {
      name: NAME,
      loss: "kto",
      max_steps: STEPS,
      learning_rate: 1e-3,
      gradient_accumulation_steps: Math.min(data.length, AT_ONCE),
      seed: 1,
    });
    try {
      const end = performance.now() + 1000 * SECONDS;
      let last: { step: number; total: number } = { step: 0, total: STEPS };
      while (last.step < last.total && !stop.interrupted && performance.now() < end) {
        last = await trainer.step();
        this.tell(`Learning: step ${number(last.step)} of ${number(last.total)}`);
      }
      const { losses, step, seconds } = await trainer.result();
      if (!step) throw new InputError("it was stopped before the first step", "", "Learn again.");
      this.tell(
        `Learned from ${number(data.length)} answers in ${number(step)} steps and ` +
          `${number(seconds, 1)} s. Its loss went from ${number(losses[0]!, 3)} to ` +
          `${number(losses.at(-1)!, 3)}.`,
      );
    } catch (e) {
      this.tell();
      throw e;
    } finally {
      await trainer.close();
    }
    $("learned-row").hidden = false;
    input("learned").checked = true;
    count("learned");
  }

  /** Answers with what was learned, or as the model came. */
  async use(model: TextGenerationPipeline, learned: boolean): Promise<void> {
    await model.setAdapter(learned ? NAME : null);
    this.tell(learned ? "It answers as it has learned." : "It answers as it came.");
  }
}

/** The last messages that fit into a row with the answer; at least the question. */
async function fitting(
  { tokenizer }: TextGenerationPipeline,
  prompt: Message[],
  answer: Message,
): Promise<Message[]> {
  const asks = prompt.map(({ role }, i) => (role === "user" ? i : -1)).filter((i) => i > 0);
  for (const first of [0, ...asks]) {
    const part = prompt.slice(first);
    const how = { tokenize: true as const };
    const ids = await tokenizer.apply_chat_template([...part, answer], how);
    if (ids.length <= SEQUENCE || first === (asks.at(-1) ?? 0)) return part;
  }
  return prompt;
}
