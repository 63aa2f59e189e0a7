// visual-question-answering with a classifier of answers (ViLT). Mirrors
// python/edgewise/host/pipelines/images/visual_question_answering.py.

import { answering, question_of, scored_answers } from "../../../logic/tasks/answers.ts";
import { textFeeds } from "../inputs.ts";
import { output, row } from "../outputs.ts";
import type { TaskRunner } from "../runner.ts";
import { imageOf, look, seen } from "./image-tasks.ts";

/** `pipe(picture, question, {top_k})` */
export const pictureQuestions: TaskRunner = {
  options: ["question", "top_k"],
  prepare(host, { given }) {
    const how = answering(given);
    const ids = host.needTokenizer().encode(question_of(given.question ?? null, host.task));
    const feeds = textFeeds(host.graph("model"), ids, 0);
    return async (input, ending) => {
      const image = await imageOf(host, input, ending);
      const { outputs } = seen(await look(host, image, ending, undefined, feeds));
      return scored_answers(row(output(host, outputs, "logits"), 0), host.config(), how);
    };
  },
};
