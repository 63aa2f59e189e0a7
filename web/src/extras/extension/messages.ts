// Messages between the two ends of a port.

/** What an error keeps on its way. Errors of Edgewise have `what`, `where` and `remedy`. */
export interface ErrorFields {
  name: string;
  message: string;
  what?: string;
  where?: string;
  remedy?: string;
}

/** From the caller. `id` numbers the calls of a port. `alive` keeps the other side running. */
export type Call =
  | { id: number; method: string; argument: unknown }
  | { id: number; abort: true }
  | { alive: true };

/** To the caller: that calls are accepted; an event of a call; its end. */
export type Answer =
  | { ready: true }
  | { id: number; event: unknown }
  | { id: number; result: unknown }
  | { id: number; error: ErrorFields };
