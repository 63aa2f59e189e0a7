// The part of the WebExtensions API that this library uses, as Chrome and Firefox have it.

/** An event of the API. */
interface ApiEvent<T extends unknown[]> {
  addListener(listener: (...values: T) => void): void;
}

/** Who sent a message or opened a port. */
export interface Sender {
  /** Id of the sending extension. */
  id?: string;
  /** Address of the sending page or frame. */
  url?: string;
  /** The tab, if the sender is in one: content scripts, and pages of the extension in a tab. */
  tab?: { id?: number };
}

/** A connection between two parts of the extension. */
export interface Port {
  readonly name: string;
  readonly sender?: Sender;
  readonly onMessage: ApiEvent<[message: unknown]>;
  readonly onDisconnect: ApiEvent<[]>;
  postMessage(message: unknown): void;
  disconnect(): void;
}

/** `chrome` or `browser`. */
export interface Api {
  runtime: {
    id: string;
    lastError?: { message?: string };
    onConnect: ApiEvent<[port: Port]>;
    connect(options: { name: string }): Port;
    getURL(path: string): string;
    getContexts?(filter: {
      contextTypes: string[];
      documentUrls?: string[];
    }): Promise<{ documentUrl?: string }[]>;
  };
  offscreen?: {
    createDocument(options: {
      url: string;
      reasons: string[];
      justification: string;
    }): Promise<void>;
  };
}

/** The API of this browser. */
export function api(): Api {
  const { browser, chrome } = globalThis as { browser?: Api; chrome?: Api };
  const found = browser?.runtime ? browser : chrome;
  if (!found?.runtime?.connect) throw new Error("this page is not part of a browser extension");
  return found;
}
