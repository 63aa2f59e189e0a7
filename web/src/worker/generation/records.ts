// Packing and unpacking of the structs in core/sampling/sampling.h.

export type Layout = {
  readonly bytes: number;
  readonly at: Readonly<Record<string, number>>;
  readonly kind: Readonly<Record<string, string>>;
};
export type Record_<L extends Layout> = { [K in keyof L["at"]]: number };

export function packRecord(layout: Layout, values: Record<string, number>): Uint8Array {
  const view = new DataView(new ArrayBuffer(layout.bytes));
  for (const [name, at] of Object.entries(layout.at)) {
    const value = values[name]!;
    if (layout.kind[name] === "f32") view.setFloat32(at, value, true);
    else if (layout.kind[name] === "i32") view.setInt32(at, value, true);
    else view.setUint32(at, value, true);
  }
  return new Uint8Array(view.buffer);
}

export function unpackRecord<L extends Layout>(
  layout: L,
  bytes: Uint8Array,
  offset = 0,
): Record_<L> {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, layout.bytes);
  const read = (name: string, at: number) =>
    layout.kind[name] === "f32"
      ? view.getFloat32(at, true)
      : layout.kind[name] === "i32"
        ? view.getInt32(at, true)
        : view.getUint32(at, true);
  return Object.fromEntries(
    Object.entries(layout.at).map(([name, at]) => [name, read(name, at)]),
  ) as Record_<L>;
}

export const viewBytes = (array: Int32Array | Uint32Array | Float32Array) =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
