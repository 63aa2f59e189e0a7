// Made by python/edgewise/session/emit.py; do not edit.

/** Bits of an element, by the names that NumPy and ml_dtypes give to element types. */
export const ELEMENT_BITS: Readonly<Record<string, number>> = {"float32": 32, "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "int32": 32, "int64": 64, "bool": 8, "float16": 16, "float64": 64, "uint32": 32, "uint64": 64, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8, "uint4": 4, "int4": 4, "float4_e2m1fn": 4, "float8_e8m0fnu": 8, "uint2": 2, "int2": 2, "float6_e2m3fn": 6, "float6_e3m2fn": 6};
/** Most elements of a tensor that a shape depends on. */
export const MAX_SHAPE_NUMBERS = 65536;
/** How deep functions and subgraphs may be nested. */
export const MAX_NESTING = 32;
/** Version of the operator set in which operators of the driver's own are written. */
export const LATEST_OPSET = 23;
