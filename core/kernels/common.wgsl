// Functions that shaders share. Each is part of a program only where something refers to it.
//
// WGSL promises nothing about infinities and NaN: they are recognised by their bits, and no constant
// is one of them.

const LOWEST = -3.4028234e38f;

fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) == 0x7f800000u; }
fn infinity(sign: u32) -> f32 { return bitcast<f32>((min(sign, 1u) << 31u) | 0x7f800000u); }
fn quiet_nan(one: u32) -> f32 { return bitcast<f32>(max(one, 1u) | 0x7fc00000u); }
fn ceil_div(p: u32, q: u32) -> u32 { return (p + q - 1u) / q; }

// An int64 as i32; beyond it, the largest or the lowest one.
fn saturated(v: vec2u) -> i32 {
  let low = bitcast<i32>(v.x);
  if (bitcast<i32>(v.y) == (low >> 31u)) { return low; }
  return select(0x7fffffff, -0x7fffffff - 1, (v.y >> 31u) == 1u);
}

// float16 and bfloat16, rounded to nearest even; core/scalar_math.h
fn half_bits(v: f32) -> u32 {
  let sign = bitcast<u32>(v) & 0x80000000u;
  let u = bitcast<u32>(v) ^ sign;
  let small = bitcast<u32>(bitcast<f32>(u) + 0.5f) - 0x3f000000u;
  let normal = (u - 0x38000000u + 0xfffu + ((u >> 13u) & 1u)) >> 13u;
  var h = select(normal, small, u < 0x38800000u);
  h = select(h, 0x7c00u, u >= 0x47800000u);
  h = select(h, 0x7e00u, u > 0x7f800000u);
  return h | (sign >> 16u);
}
fn bfloat_bits(v: f32) -> u32 {
  let u = bitcast<u32>(v);
  let r = (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;
  return select(r, (u >> 16u) | 0x40u, (u & 0x7fffffffu) > 0x7f800000u);
}

// Elementary functions whose built-in versions are inexact or overflow; core/vector_math.h. Those
// that are formulas of others are generated, and so is activate_<name>, which a kernel does to its
// results while they are in registers: python/edgewise/compiler/ops/elementwise/formulas.py.
fn expm1(v: f32) -> f32 {
  if (is_nan(v)) { return v; }
  if (abs(v) > 0.35f) { return exp(v) - 1f; }
  return v * (1f + v * (0.5f + v * (0.16666667f + v * (0.041666668f + v * (0.0083333338f
    + v * (0.0013888889f + v * 0.00019841270f))))));
}
fn log1p(v: f32) -> f32 {
  let w = 1f + v;
  let d = w - 1f;
  if (d == 0f) { return v; }
  return log(w) * (v / d);
}
fn sigmoid(v: f32) -> f32 {
  let e = exp(-abs(v));
  return select(e, 1f, v >= 0f) / (1f + e) + select(0f, v, is_nan(v));
}
fn safe_tanh(v: f32) -> f32 {
  if (is_nan(v)) { return v; }
  let t = expm1(min(abs(v) * 2f, 40f));
  return select(1f, -1f, v < 0f) * (t / (t + 2f));
}
fn erf(v: f32) -> f32 {
  if (is_nan(v)) { return v; }
  let q = min(abs(v), 3.95f);
  var p = -4.0707869639e-5f;
  p = fma(p, q, 3.8100022357e-4f);
  p = fma(p, q, -1.2517453870e-3f);
  p = fma(p, q, -2.0571774803e-4f);
  p = fma(p, q, 1.9321717322e-2f);
  p = fma(p, q, -1.0281441361e-1f);
  p = fma(p, q, -6.3661646843e-1f);
  p = fma(p, q, -1.1283792257f);
  return select(-1f, 1f, v < 0f) * expm1(p * q);
}
fn clamped(v: f32, low: f32, high: f32) -> f32 {
  if (is_nan(v)) { return v; }
  return min(max(v, low), high);
}
fn minimum(u: f32, v: f32) -> f32 {
  if (is_nan(u)) { return u; }
  if (is_nan(v)) { return v; }
  return min(u, v);
}
fn maximum(u: f32, v: f32) -> f32 {
  if (is_nan(u)) { return u; }
  if (is_nan(v)) { return v; }
  return max(u, v);
}
// Built-in sines are inexact: 2^-11 within a turn, and anything beyond. The angle in quarters of a
// turn is the product of its 24 bits with 64 bits of 2 / pi, modulo 4, in integers: no compiler
// rounds those.
fn two_over_pi(i: u32) -> u32 {
  switch i {
    case 1u: { return 0xa2f9836eu; }
    case 2u: { return 0x4e441529u; }
    case 3u: { return 0xfc2757d1u; }
    case 4u: { return 0xf534ddc0u; }
    case 5u: { return 0xdb629599u; }
    case 6u: { return 0x3c439041u; }
    default: { return 0u; }
  }
}
// 32 bits of 2 / pi from one on; 32 zeros stand before the point
fn bits_of_two_over_pi(at: u32) -> u32 {
  let high = two_over_pi(at >> 5u);
  let shift = at & 31u;
  if (shift == 0u) { return high; }
  return (high << shift) | (two_over_pi((at >> 5u) + 1u) >> (32u - shift));
}
// sin(v + quarters of a turn)
fn sine(v: f32, quarters: u32) -> f32 {
  let bits = bitcast<u32>(v) & 0x7fffffffu;
  if (bits >= 0x7f800000u) { return quiet_nan(bits); }
  var quarter = quarters;
  var y = abs(v);
  if (bits > 0x3f490fdau) {
    let m = (bits & 0x7fffffu) | 0x800000u;
    let at = (bits >> 23u) - 120u;
    let product = word_product(m, bits_of_two_over_pi(at + 32u));
    let high = product.y + m * bits_of_two_over_pi(at);
    let part = (high << 2u) | (product.x >> 30u);
    quarter += (high >> 30u) + (part >> 31u);
    y = f32(bitcast<i32>(part)) * 3.6572951e-10f;
  }
  if (bitcast<i32>(v) < 0) {
    y = -y;
    quarter = 2u * quarters - quarter;
  }
  let z = y * y;
  let odd = y + y * z * (-0.16666654611f + z * (0.0083321608736f - z * 0.00019515295891f));
  let even = 1f - 0.5f * z
    + z * z * (0.041666645683f + z * (-0.0013887316255f + z * 0.000024433157118f));
  let w = select(odd, even, (quarter & 1u) == 1u);
  return select(w, -w, (quarter & 2u) == 2u);
}
fn safe_sin(v: f32) -> f32 { return sine(v, 0u); }
fn safe_cos(v: f32) -> f32 { return sine(v, 1u); }
// The exponent decides: powers of negative numbers exist for integers only.
fn power(u: f32, v: f32) -> f32 {
  if (v == 2f) { return u * u; }
  if (v == 3f) { return u * u * u; }
  if (v == 0.5f) { return sqrt(u); }
  if (v == 0f || u == 1f) { return 1f; }
  let r = exp2(v * log2(abs(u)));
  if (u >= 0f || is_nan(u)) { return r; }
  if (v != round(v)) { return quiet_nan(bitcast<u32>(v) >> 31u); }
  return select(r, -r, fract(v * 0.5f) != 0f);
}

// 64-bit integers as their low and high words
fn long_of(v: i32) -> vec2u { return vec2u(bitcast<u32>(v), bitcast<u32>(v >> 31u)); }
fn long_add(p: vec2u, q: vec2u) -> vec2u {
  let low = p.x + q.x;
  return vec2u(low, p.y + q.y + select(0u, 1u, low < p.x));
}
fn long_neg(p: vec2u) -> vec2u { return long_add(~p, vec2u(1u, 0u)); }
fn long_less(p: vec2u, q: vec2u) -> bool {
  let s = bitcast<i32>(p.y);
  let t = bitcast<i32>(q.y);
  return s < t || (s == t && p.x < q.x);
}
fn word_product(p: u32, q: u32) -> vec2u {
  let pl = p & 0xffffu;
  let ph = p >> 16u;
  let ql = q & 0xffffu;
  let qh = q >> 16u;
  let mid = pl * qh + ((pl * ql) >> 16u);
  let mid2 = ph * ql + (mid & 0xffffu);
  return vec2u(p * q, ph * qh + (mid >> 16u) + (mid2 >> 16u));
}
fn long_mul(p: vec2u, q: vec2u) -> vec2u {
  let w = word_product(p.x, q.x);
  return vec2u(w.x, w.y + p.x * q.y + p.y * q.x);
}
// (quotient, remainder) without signs, by shifting and subtracting; of division by 0: 0
fn long_divided(p: vec2u, q: vec2u) -> vec4u {
  var quotient = vec2u(0u);
  var rest = vec2u(0u);
  if (all(q == vec2u(0u))) { return vec4u(0u); }
  for (var bit = 63i; bit >= 0i; bit--) {
    let carry = rest.y >> 31u;
    let word = select(p.x, p.y, bit >= 32i);
    let next = (word >> (u32(bit) & 31u)) & 1u;
    rest = vec2u((rest.x << 1u) | next, (rest.y << 1u) | (rest.x >> 31u));
    if (carry == 1u || rest.y > q.y || (rest.y == q.y && rest.x >= q.x)) {
      rest = long_add(rest, long_neg(q));
      if (bit >= 32i) { quotient.y |= 1u << (u32(bit) & 31u); }
      else { quotient.x |= 1u << u32(bit); }
    }
  }
  return vec4u(quotient, rest);
}
fn long_abs(p: vec2u) -> vec2u {
  if ((p.y >> 31u) == 1u) { return long_neg(p); }
  return p;
}
fn long_div(p: vec2u, q: vec2u) -> vec2u {
  let r = long_divided(long_abs(p), long_abs(q)).xy;
  if (((p.y ^ q.y) >> 31u) == 1u) { return long_neg(r); }
  return r;
}
fn long_rem(p: vec2u, q: vec2u) -> vec2u {
  let r = long_divided(long_abs(p), long_abs(q)).zw;
  if ((p.y >> 31u) == 1u) { return long_neg(r); }
  return r;
}

// Reductions over the invocations of a workgroup, which all call them. The order of additions is
// fixed, so that results are the same in every run.
var<workgroup> lanes: array<f32, GROUP>;
fn sum_of_lanes(lane: u32, v: f32) -> f32 {
  workgroupBarrier();
  lanes[lane] = v;
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { lanes[lane] += lanes[lane + half]; }
  }
  workgroupBarrier();
  return lanes[0];
}
fn highest_of_lanes(lane: u32, v: f32) -> f32 {
  workgroupBarrier();
  lanes[lane] = v;
  for (var half = GROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { lanes[lane] = max(lanes[lane], lanes[lane + half]); }
  }
  workgroupBarrier();
  return lanes[0];
}
// The sum over 16 neighbours, for the first of them; of a workgroup of 64.
var<workgroup> neighbours: array<f32, GROUP>;
fn sum_of_sixteen(lane: u32, v: f32) -> f32 {
  neighbours[lane] = v;
  workgroupBarrier();
  var s = 0f;
  if (lane % 16u == 0u) {
    for (var i = 0u; i < 16u; i++) { s += neighbours[lane + i]; }
  }
  return s;
}

// For the first four invocations: the sum of an element of all vectors; of a workgroup of 64.
var<workgroup> fours: array<vec4f, GROUP>;
fn sum_of_four(lane: u32, v: vec4f) -> f32 {
  fours[lane] = v;
  workgroupBarrier();
  if (lane < 16u) {
    fours[lane] = v + fours[lane + 16u] + fours[lane + 32u] + fours[lane + 48u];
  }
  workgroupBarrier();
  var s = 0f;
  if (lane < 4u) {
    for (var i = 0u; i < 16u; i++) { s += fours[i][lane]; }
  }
  return s;
}

// WGSL's log, for kernels that have a parameter `log`
fn logarithm(v: f32) -> f32 { return log2(v) * 0.69314718f; }

// An element of a class of types (accessors.py) as a float, for `apply`.
fn number_f(v: f32) -> f32 { return v; }
fn number_u(v: u32) -> f32 { return f32(v); }
fn number_i(v: i32) -> f32 { return f32(v); }
