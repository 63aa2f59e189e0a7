// threads: volume(dims)
// apply: apply = unary_{op}_{type}
// alike: any
//
// One function for each op and class of element types: f floats, i signed integers, u unsigned ones
// and bool, l int64.

fn element(i: u32) { y_set(y_at(i), apply(x(x_at(i)))); }

fn unary_neg_f(v: f32) -> f32 { return -v; }
fn unary_abs_f(v: f32) -> f32 { return abs(v); }
fn unary_sign_f(v: f32) -> f32 { return select(select(v, -1f, v < 0f), 1f, v > 0f); }
fn unary_floor_f(v: f32) -> f32 { return floor(v); }
fn unary_ceil_f(v: f32) -> f32 { return ceil(v); }
fn unary_round_f(v: f32) -> f32 { return round(v); }
fn unary_sqrt_f(v: f32) -> f32 { return sqrt(v); }
fn unary_reciprocal_f(v: f32) -> f32 { return 1f / v; }
fn unary_exp_f(v: f32) -> f32 { return exp(v); }
fn unary_log_f(v: f32) -> f32 { return log(v); }
fn unary_sin_f(v: f32) -> f32 { return sin(v); }
fn unary_cos_f(v: f32) -> f32 { return cos(v); }
fn unary_tan_f(v: f32) -> f32 { return sin(v) / cos(v); }
fn unary_tanh_f(v: f32) -> f32 { return safe_tanh(v); }
fn unary_erf_f(v: f32) -> f32 { return erf(v); }
fn unary_sigmoid_f(v: f32) -> f32 { return sigmoid(v); }
fn unary_relu_f(v: f32) -> f32 { return select(v, 0f, v < 0f); }
fn unary_leaky_relu_f(v: f32) -> f32 { return select(v, alpha * v, v < 0f); }
fn unary_elu_f(v: f32) -> f32 { return select(v, alpha * expm1(v), v < 0f); }
fn unary_selu_f(v: f32) -> f32 { return beta * select(v, alpha * expm1(v), v < 0f); }
fn unary_celu_f(v: f32) -> f32 { return select(v, alpha * expm1(v / alpha), v < 0f); }
fn unary_softplus_f(v: f32) -> f32 { return softplus(v); }
fn unary_softsign_f(v: f32) -> f32 { return v / (1f + abs(v)); }
fn unary_hard_sigmoid_f(v: f32) -> f32 { return clamped(alpha * v + beta, 0f, 1f); }
fn unary_hard_swish_f(v: f32) -> f32 { return v * clamped(v * (1f / 6f) + 0.5f, 0f, 1f); }
fn unary_mish_f(v: f32) -> f32 {
  let e = exp(min(v, 20f));
  let w = e * (e + 2f);
  return v * (w / (w + 2f));
}
fn unary_gelu_f(v: f32) -> f32 { return gelu(v); }
fn unary_gelu_tanh_f(v: f32) -> f32 { return gelu_tanh(v); }
fn unary_quick_gelu_f(v: f32) -> f32 { return v * sigmoid(alpha * v); }
fn unary_silu_f(v: f32) -> f32 { return silu(v); }
fn unary_thresholded_relu_f(v: f32) -> f32 { return select(0f, v, v > alpha); }
fn unary_clip_f(v: f32) -> f32 { return clamped(v, alpha, beta); }
fn unary_rsqrt_f(v: f32) -> f32 { return 1f / sqrt(v); }
fn unary_square_f(v: f32) -> f32 { return v * v; }
fn unary_linear_f(v: f32) -> f32 { return alpha * v + beta; }
fn unary_is_nan_f(v: f32) -> u32 { return u32(is_nan(v)); }
fn unary_is_inf_f(v: f32) -> u32 { return u32(is_inf(v)); }

fn unary_neg_i(v: i32) -> i32 { return -v; }
fn unary_abs_i(v: i32) -> i32 { return abs(v); }
fn unary_sign_i(v: i32) -> i32 { return sign(v); }
fn unary_relu_i(v: i32) -> i32 { return max(v, 0); }
fn unary_square_i(v: i32) -> i32 { return v * v; }
fn unary_bit_not_i(v: i32) -> i32 { return ~v; }

fn unary_neg_u(v: u32) -> u32 { return 0u - v; }
fn unary_abs_u(v: u32) -> u32 { return v; }
fn unary_sign_u(v: u32) -> u32 { return min(v, 1u); }
fn unary_relu_u(v: u32) -> u32 { return v; }
fn unary_square_u(v: u32) -> u32 { return v * v; }
fn unary_bit_not_u(v: u32) -> u32 { return ~v; }
fn unary_not_u(v: u32) -> u32 { return select(0u, 1u, v == 0u); }

fn unary_neg_l(v: vec2u) -> vec2u { return long_neg(v); }
fn unary_abs_l(v: vec2u) -> vec2u { return long_abs(v); }
fn unary_sign_l(v: vec2u) -> vec2u {
  if ((v.y >> 31u) == 1u) { return vec2u(0xffffffffu); }
  return vec2u(select(0u, 1u, any(v != vec2u(0u))), 0u);
}
fn unary_relu_l(v: vec2u) -> vec2u { return select(v, vec2u(0u), (v.y >> 31u) == 1u); }
fn unary_square_l(v: vec2u) -> vec2u { return long_mul(v, v); }
fn unary_bit_not_l(v: vec2u) -> vec2u { return ~v; }
