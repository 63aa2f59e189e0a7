// visual-question-answering in a page: questions to models of image-text-to-text.

import { answers_of, asked_options, chat_of } from "../../logic/multimodal/questions.ts";
import type { ImageTextToTextPipeline } from "./asking.ts";
import type { PipelineBase } from "./base-types.ts";
import type { DocumentAnswer, PictureTextOptions } from "./generation-types.ts";
import type { ImageInput } from "./pictures.ts";

const TASK = "visual-question-answering";

/** A picture with a question about it. */
export interface PictureQuestion {
  image: ImageInput;
  question: string;
}

/**
 * Answers questions about pictures: `pipe(picture, question)`. Each of several questions is asked
 * about each of several pictures.
 */
export interface VisualQuestionAnsweringPipeline extends PipelineBase {
  (image: ImageInput, question: string, options?: PictureTextOptions): Promise<DocumentAnswer[]>;
  (input: PictureQuestion, options?: PictureTextOptions): Promise<DocumentAnswer[]>;
  (
    images: ImageInput | readonly ImageInput[],
    questions: string | readonly string[],
    options?: PictureTextOptions,
  ): Promise<DocumentAnswer[][]>;
}

/** A pipeline that asks another one. */
export function questionPipeline(pipe: ImageTextToTextPipeline): VisualQuestionAnsweringPipeline {
  const one = async (image: unknown, question: unknown, options: PictureTextOptions) => {
    const chat = chat_of(image, question, TASK);
    return answers_of(await pipe(chat as never, options));
  };
  const call = async (first: unknown, second?: unknown, third?: object): Promise<unknown> => {
    const whole = typeof first === "object" && first !== null && "question" in first;
    const options = asked_options(((whole ? second : third) ?? {}) as PictureTextOptions);
    const { image, question } = whole
      ? (first as Partial<PictureQuestion>)
      : { image: first, question: second };
    if (!Array.isArray(image) && !Array.isArray(question)) return one(image, question, options);
    const answers: unknown[] = [];
    for (const text of Array.isArray(question) ? question : [question])
      for (const picture of Array.isArray(image) ? image : [image])
        answers.push(await one(picture, text, options));
    return answers;
  };
  return Object.assign(call, { task: TASK, info: pipe.info, dispose: pipe.dispose }) as never;
}
