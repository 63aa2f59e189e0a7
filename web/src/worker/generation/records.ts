// Packing and unpacking of the structs in core/sampling/sampling.h.

export type Layout = { readonly members: readonly string[]; readonly kinds: string };
export type Record_<L extends Layout> = { [K in L["members"][number]]: number };

/** Bytes of a struct: all members take four. */
export const sizeOf = ({ members }: Layout): number => 4 * members.length;

const METHODS: Readonly<Record<string, "Uint32" | "Int32" | "Float32">> = {
  u: "Uint32",
  i: "Int32",
  f: "Float32",
};

export function packRecord(layout: Layout, values: Record<string, number>): Uint8Array {
  const view = new DataView(new ArrayBuffer(sizeOf(layout)));
  layout.members.forEach((name, i) => {
    view[`set${METHODS[layout.kinds[i]!]!}`](4 * i, values[name]!, true);
  });
  return new Uint8Array(view.buffer);
}

export function unpackRecord<L extends Layout>(
  layout: L,
  bytes: Uint8Array,
  offset = 0,
): Record_<L> {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, sizeOf(layout));
  return Object.fromEntries(
    layout.members.map((name, i) => [name, view[`get${METHODS[layout.kinds[i]!]!}`](4 * i, true)]),
  ) as Record_<L>;
}

export const viewBytes = (array: Int32Array | Uint32Array | Float32Array) =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
