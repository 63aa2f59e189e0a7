// The workers of pipelines, for what is made of pipelines.

import type { Client } from "../client.ts";

/** The worker of each pipeline, and its task. */
export const workers = new WeakMap<object, { client: Client; task: string }>();
