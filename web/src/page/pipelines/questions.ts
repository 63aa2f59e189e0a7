// visual-question-answering in a page: each question about each picture.

import type { PipelineBase } from "./base-types.ts";
import type { DocumentAnswer, PictureTextOptions } from "./generation-types.ts";
import type { ImageInput } from "./pictures.ts";

/** Options of questions about pictures. */
export interface QuestionOptions extends PictureTextOptions {
  /** Of models that choose among answers: how many are given. Default: 5. */
  top_k?: number;
}

/** An answer; `score` is that of a model that chooses among answers. */
export interface PictureAnswer extends DocumentAnswer {
  score?: number;
}

/** A picture with a question about it. */
export interface PictureQuestion {
  image: ImageInput;
  question: string;
}

/**
 * Answers questions about pictures: `pipe(picture, question)`. Each of several questions is asked
 * about each of several pictures. Models are ViLT, and those of image-text-to-text.
 */
export interface VisualQuestionAnsweringPipeline extends PipelineBase {
  (image: ImageInput, question: string, options?: QuestionOptions): Promise<PictureAnswer[]>;
  (input: PictureQuestion, options?: QuestionOptions): Promise<PictureAnswer[]>;
  (
    images: ImageInput | readonly ImageInput[],
    questions: string | readonly string[],
    options?: QuestionOptions,
  ): Promise<PictureAnswer[][]>;
}

/** A pipeline that asks another one, whose calls take a picture and a question. */
export function questionPipeline(
  pipe: PipelineBase & ((...given: unknown[]) => Promise<unknown>),
): VisualQuestionAnsweringPipeline {
  const call = async (first: unknown, second?: unknown, third?: object): Promise<unknown> => {
    const whole = typeof first === "object" && first !== null && "question" in first;
    const options = (whole ? second : third) ?? {};
    const { image, question } = whole
      ? (first as Partial<PictureQuestion>)
      : { image: first, question: second };
    if (!Array.isArray(image) && !Array.isArray(question)) return pipe(image, question, options);
    const answers: unknown[] = [];
    for (const text of Array.isArray(question) ? question : [question])
      for (const picture of Array.isArray(image) ? image : [image])
        answers.push(await pipe(picture, text, options));
    return answers;
  };
  return Object.assign(call, { task: pipe.task, info: pipe.info, dispose: pipe.dispose }) as never;
}
