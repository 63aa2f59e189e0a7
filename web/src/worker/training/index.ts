// The part of the worker that trains. The worker loads it when it is first needed (parts.ts).

export { ArtifactSession } from "./artifacts.ts";
export { mergedOnnx } from "./merge.ts";
export { TrainingRun } from "./trainer.ts";
