// Runs logic that waits: generators of edgewise.logic, which yield requests. Mirrors
// python/edgewise/host/drive.py.

/**
 * What a generator returns.
 * @param answer does what a request asks for, and gives the answer; what it throws is thrown in
 *   the generator, which may handle it
 */
export async function drive<Request, Result>(
  steps: Generator<Request, Result, unknown>,
  answer: (request: Request) => unknown,
): Promise<Result> {
  try {
    let step = steps.next();
    while (!step.done) {
      let given: unknown;
      try {
        given = await answer(step.value);
      } catch (e) {
        step = steps.throw(e);
        continue;
      }
      step = steps.next(given);
    }
    return step.value;
  } finally {
    steps.return(undefined as never);
  }
}
