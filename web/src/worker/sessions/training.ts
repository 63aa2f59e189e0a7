// Fine-tuning of loaded language models, and their adapters.

import type { AdapterInfo } from "../../protocol/training.ts";
import { InputError } from "../../shared/errors.ts";
import type { HandlersOf, Scope } from "../calls.ts";
import type { Learner } from "../model/model.ts";
import type { Adapters } from "../training/adapters.ts";
import type { TrainingRun } from "../training/trainer.ts";

/** The training run of each model that has one. */
type Runs = WeakMap<Learner, TrainingRun>;

/** The methods of training runs and adapters. */
export function trainingMethods(scope: Scope): HandlersOf<"train"> & HandlersOf<"adapter"> {
  const runs: Runs = new WeakMap();
  return { ...runMethods(scope, runs), ...adapterMethods(scope) };
}

/** Changes the adapters of a model in its turn, and returns the updated list. */
function changed(
  scope: Scope,
  id: number,
  change: (adapters: Adapters, model: Learner) => unknown,
): Promise<AdapterInfo[]> {
  return scope.turn(id, async () => {
    const model = await scope.learner(id);
    const { adaptersOf } = await import("../training/index.ts");
    const all = adaptersOf(model);
    await change(all, model);
    return all.list();
  });
}

function runMethods(scope: Scope, runs: Runs): HandlersOf<"train"> {
  function refuseSecond(model: Learner): void {
    if (runs.has(model))
      throw new InputError(
        "another training run is active",
        "",
        "Wait for it, or close its Trainer.",
      );
  }

  async function training(id: number): Promise<TrainingRun> {
    const found = runs.get(await scope.learner(id));
    if (!found) throw new InputError("no training run is active", "", "Make a Trainer.");
    return found;
  }

  return {
    train({ model: id, texts, fields }, { signal, order }) {
      const work = async () => {
        const model = await scope.learner(id);
        refuseSecond(model);
        const { TrainingRun } = await import("../training/index.ts");
        const run = await TrainingRun.open(model, texts, fields, signal);
        runs.set(model, run);
        return run.info;
      };
      return scope.turn(id, work, order, signal);
    },
    train_estimate({ model: id, texts, fields, measure }, { signal, order }) {
      const work = async () => {
        const model = await scope.learner(id);
        refuseSecond(model);
        const { estimate } = await import("../training/index.ts");
        return estimate(model, texts, fields, measure, signal);
      };
      return scope.turn(id, work, order, signal);
    },
    async train_preview({ model: id, data, count, adapter }) {
      const model = await scope.learner(id);
      const { chooseProgram, preview } = await import("../training/index.ts");
      return preview(model, chooseProgram(model, adapter), data, count);
    },
    train_fit: async ({ model }, { signal, send, order }) =>
      (await training(model)).fit(
        (work) => scope.turn(model, work, order),
        (step) => send({ step }),
        signal,
      ),
    train_step: ({ model }, { order }) =>
      scope.turn(model, async () => (await training(model)).advance(), order),
    train_pause: async ({ model, paused }) => (await training(model)).pause(paused),
    train_evaluate: ({ model }, { order }) =>
      scope.turn(model, async () => (await training(model)).evaluate(), order),
    train_optimizer: ({ model }) =>
      scope.turn(model, async () => (await training(model)).optimizerState()),
    train_save: ({ model }) => scope.turn(model, async () => (await training(model)).save()),
    train_result: async ({ model }) => (await training(model)).result(),
    train_close: ({ model: id }) =>
      changed(scope, id, async (_, model) => {
        const run = runs.get(model);
        runs.delete(model);
        await run?.close();
      }),
  };
}

function adapterMethods(scope: Scope): HandlersOf<"adapter"> {
  return {
    adapters: ({ model }) =>
      scope.turn(model, async () => (await scope.learner(model)).adapters?.list() ?? []),
    adapter_load: ({ model, files, name }) =>
      changed(scope, model, async (all, one) => {
        const { readKept } = await import("../training/index.ts");
        return all.load(files ?? (await readKept(one, name)), name);
      }),
    adapter_use: ({ model, name, scale }) => changed(scope, model, (all) => all.use(name, scale)),
    adapter_save: ({ model, name }) =>
      scope.turn(model, async () => {
        const { adaptersOf } = await import("../training/index.ts");
        return adaptersOf(await scope.learner(model)).save(name);
      }),
    adapter_rename: ({ model, name, to }) => changed(scope, model, (all) => all.rename(name, to)),
    adapter_remove: ({ model, name }) => changed(scope, model, (all) => all.remove(name)),
    adapter_keep: ({ model, name }) =>
      scope.turn(model, async () => {
        const { adaptersOf, keep } = await import("../training/index.ts");
        const one = await scope.learner(model);
        return keep({ key: one.key, adapters: adaptersOf(one) }, name);
      }),
    async adapter_kept({ model }) {
      const { listKept } = await import("../training/index.ts");
      return listKept(await scope.learner(model));
    },
    async adapter_forget({ model, name }) {
      const { forget } = await import("../training/index.ts");
      return forget(await scope.learner(model), name);
    },
    async adapter_merge({ model, name, files }, { signal }) {
      const { mergedOnnx } = await import("../training/index.ts");
      return mergedOnnx(await scope.learner(model), name, files, signal);
    },
    async adapter_export({ model, ...request }, { signal }) {
      const { exported } = await import("../training/index.ts");
      return exported(await scope.learner(model), request, signal);
    },
  };
}
