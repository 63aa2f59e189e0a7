// Which model an address belongs to.

import { sha256 } from "../sha256.ts";

/** A model at an address. */
export interface ModelAddress {
  /** Id on a hub (`org/name`); for other models the address of the package, or of the folder. */
  readonly id: string;
  /** Revision on a hub, URL-encoded. */
  readonly revision: string | undefined;
  /** Address of the folder, ending in `/`; of the package. */
  readonly folder: string;
  /** Address of the hub's listing of the model's files. */
  readonly tree: string | undefined;
  /** Name of the model in the browser's storage: 16 hexadecimal digits. */
  readonly key: string;
}

/**
 * The model that a file or folder belongs to. Addresses of the form
 * `https://host/org/name/resolve/revision/path` are those of a hub.
 * @param url absolute address of a file, or of a folder (ending in `/`)
 */
export function modelAddress(url: string): ModelAddress {
  const [plain = ""] = url.split(/[?#]/);
  const hub = /^(https?:\/\/[^/]+\/(?:.+\/)?)([^/]+\/[^/]+)\/resolve\/([^/]+)\//.exec(plain);
  if (hub) {
    const [folder, host, id, revision] = hub as unknown as [string, string, string, string];
    const tree = `${host}api/models/${id}/tree/${revision}?recursive=true`;
    return { id, revision, folder, tree, key: keyOf(folder) };
  }
  let folder = url;
  if (plain.endsWith(".onnx")) {
    folder = new URL(".", plain).href;
    if (folder.endsWith("/onnx/")) folder = new URL("..", folder).href;
  }
  return { id: folder, revision: undefined, folder, tree: undefined, key: keyOf(folder) };
}

function keyOf(folder: string): string {
  return sha256(folder).slice(0, 16);
}
