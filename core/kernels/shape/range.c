/* y[i] = start + i * delta (ONNX Range), on one thread. */
#include "kernels/elementwise/each.h"

int32_t ew_k_range(ew_context *c, const ew_range_params *p, void *const *operand) {
  (void)c;
  void *y = operand[EW_RANGE_Y];
  if (p->type == EW_F16 || p->type == EW_BF16 || p->type == EW_BOOL) return EW_E_PARAM;
  for (int32_t i = 0; i < p->n; i++) {
    const int64_t v = p->start + (int64_t)i * p->delta;
    switch (p->type) {
    case EW_F32: ((m_f32 *)y)[i] = p->f_start + (float)i * p->f_delta; break;
    case EW_F64: ((m_f64 *)y)[i] = (double)p->f_start + (double)i * (double)p->f_delta; break;
    case EW_U8:
    case EW_I8: ((m_u8 *)y)[i] = (uint8_t)v; break;
    case EW_U16:
    case EW_I16: ((m_u16 *)y)[i] = (uint16_t)v; break;
    case EW_U32:
    case EW_I32: ((m_u32 *)y)[i] = (uint32_t)v; break;
    case EW_U64:
    case EW_I64: ((m_i64 *)y)[i] = v; break;
    default: return EW_E_PARAM;
    }
  }
  return EW_OK;
}
