// Tensors there and back as safetensors files.

import { readSafetensors, safetensorsHead } from "../../shared/checkpoints/safetensors.ts";
import { arrayOf, type Elements } from "../../shared/element-arrays.ts";
import { ModelError } from "../../shared/errors.ts";

/** A tensor, as of this library and of ONNX Runtime Web. */
export interface TensorLike {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: Elements | string[];
}

/** A safetensors file. @throws InputError for a type that it does not have, such as strings */
export function packTensors(tensors: Record<string, TensorLike>): Uint8Array<ArrayBuffer> {
  const infos = new Map(
    Object.entries(tensors).map(([name, { type, dims, data }]) => {
      const bytes = Array.isArray(data) ? 0 : data.byteLength;
      return [name, { dtype: type, shape: [...dims], bytes }];
    }),
  );
  const { head, order } = safetensorsHead(infos);
  const total = order.reduce((sum, name) => sum + infos.get(name)!.bytes, head.length);
  const file = new Uint8Array(total);
  file.set(head);
  let at = head.length;
  for (const name of order) {
    const { buffer, byteOffset, byteLength } = tensors[name]!.data as Elements;
    file.set(new Uint8Array(buffer, byteOffset, byteLength), at);
    at += byteLength;
  }
  return file;
}

/** The tensors of a safetensors file. @throws ModelError if it is damaged */
export async function unpackTensors(
  file: Uint8Array<ArrayBuffer>,
  where: string,
): Promise<Map<string, { type: string; dims: number[]; data: Elements }>> {
  const { tensors } = await readSafetensors(new Blob([file]), where);
  const found = new Map<string, { type: string; dims: number[]; data: Elements }>();
  for (const [name, { dtype, shape, offset, bytes }] of tensors) {
    const make = arrayOf(dtype);
    if (!make) throw new ModelError(`tensor '${name}' is ${dtype}`, where, "");
    const buffer = file.buffer.slice(file.byteOffset + offset, file.byteOffset + offset + bytes);
    found.set(name, { type: dtype, dims: shape, data: new make(buffer) });
  }
  return found;
}
