// A file system for Emscripten that behaves like JupyterLite's drive: opening a file fetches all of
// it (here: reads and counts it), its size is that of the stored file, and JSON is parsed and
// serialized again, which makes it shorter.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** Mounts `root` at `path`; returns counters. */
export function mountDrive(FS, root, path) {
  const counts = { opens: 0, stats: 0, bytes: 0 };
  const real = (node) => (node.parent === node ? root : join(real(node.parent), node.name));
  const stat = (file) => statSync(file, { throwIfNoEntry: false });
  const make = (parent, name, file) => {
    const node = FS.createNode(parent, name, stat(file).mode, 0);
    node.node_ops = nodeOps;
    node.stream_ops = streamOps;
    return node;
  };
  const nodeOps = {
    getattr(node) {
      counts.stats++;
      const s = stat(real(node));
      return {
        dev: 1,
        ino: node.id,
        mode: s.mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: s.size,
        atime: s.atime,
        mtime: s.mtime,
        ctime: s.ctime,
        blksize: 4096,
        blocks: 1,
      };
    },
    lookup(parent, name) {
      const file = join(real(parent), name);
      if (!stat(file)) throw new FS.ErrnoError(44);
      return make(parent, name, file);
    },
    readdir: (node) => [".", "..", ...readdirSync(real(node))],
  };
  const streamOps = {
    open(stream) {
      counts.opens++;
      const file = real(stream.node);
      if (stat(file).isDirectory()) return;
      stream.data = file.endsWith(".json")
        ? Buffer.from(JSON.stringify(JSON.parse(readFileSync(file, "utf8"))))
        : readFileSync(file);
      counts.bytes += stream.data.length;
    },
    close() {},
    read(stream, buffer, offset, length, position) {
      const part = stream.data.subarray(position, position + length);
      buffer.set(part, offset);
      return part.length;
    },
    llseek(stream, offset, whence) {
      return whence === 1
        ? stream.position + offset
        : whence === 2
          ? stream.data.length + offset
          : offset;
    },
  };
  FS.mkdirTree(path);
  FS.mount({ mount: () => make(null, "/", root) }, {}, path);
  return counts;
}
