// threads: regions * channels * y_height * y_width
//
// An invocation computes one element: the mean or maximum of bilinear samples, or of pixels.

const FAR = 16777216f;

var<private> begin_: f32;
var<private> step_: f32;
var<private> count_: i32;

fn tame(v: f32) -> f32 {
  if (is_nan(v)) { return -FAR; }
  return clamp(v, -FAR, FAR);
}
fn away(v: f32) -> f32 { return select(ceil(v - 0.5f), floor(v + 0.5f), v >= 0f); }
// sets where the first bin begins, how long each is, and its samples
fn bins(p: f32, q: f32, bins_: u32) {
  var from_ = tame(p * scale - shift);
  var to = tame(q * scale - shift);
  if (op == 2) {
    from_ = away(from_);
    to = away(to) + 1f;
  }
  begin_ = from_;
  step_ = max(to - from_, tame(least)) / f32(bins_);
  var many = ceil(step_);
  if (samples != 0) { many = f32(samples); }
  count_ = i32(clamp(many, 0f, 4096f));
}
fn most_of(u: f32, v: f32) -> f32 {
  if (is_nan(u)) { return u; }
  return select(u, v, u < v);
}
// range of a bin's samples that may lie on the image, so that the number of pixels bounds the work
fn inside(tall: f32, many: i32, at: f32, size: u32) -> vec2i {
  let d = tall / f32(many);
  var range = vec2i(0, many);
  if (!(d > 0f)) { return range; }
  let low = floor((-1f - at) / d - 0.5f) - 1f;
  let high = ceil((f32(size) - at) / d - 0.5f) + 2f;
  if (low > 0f) { range.x = i32(min(low, f32(many))); }
  if (high < f32(many)) { range.y = i32(max(high, 0f)); }
  return range;
}
fn edge(v: f32, size: u32) -> u32 { return u32(clamp(v, 0f, f32(size))); }

fn element(i: u32) {
  let pw = i % y_width;
  let ph = i / y_width % y_height;
  let channel = i / (y_width * y_height) % channels;
  let r = i / (y_width * y_height * channels);
  let image = index_int(r);
  if (image < 0 || image >= i32(batch)) {
    if (i % (y_width * y_height * channels) == 0u) { fail(image); }
    return;
  }
  let plane = (u32(image) * channels + channel) * height * width;
  bins(region(4u * r + 1u), region(4u * r + 3u), y_height);
  let top0 = begin_;
  let tall = step_;
  let rows = count_;
  bins(region(4u * r), region(4u * r + 2u), y_width);
  if (op == 2) {
    let y1 = edge(ceil(f32(ph + 1u) * tall) + top0, height);
    let x1 = edge(ceil(f32(pw + 1u) * step_) + begin_, width);
    var most = 0f;
    var any_ = false;
    for (var y0 = edge(floor(f32(ph) * tall) + top0, height); y0 < y1; y0++) {
      for (var x0 = edge(floor(f32(pw) * step_) + begin_, width); x0 < x1; x0++) {
        let v = x(plane + y0 * width + x0);
        if (!any_ || is_nan(v)) { most = v; }
        most = most_of(most, v);
        any_ = true;
      }
    }
    y_set(i, most);
    return;
  }
  var total = 0f;
  var most = 0f;
  let top = top0 + f32(ph) * tall;
  let left = begin_ + f32(pw) * step_;
  let down = inside(tall, rows, top, height);
  let across = inside(step_, count_, left, width);
  // samples outside of the image are zeros
  var first = all(down == vec2i(0, rows)) && all(across == vec2i(0, count_));
  for (var j = down.x; j < down.y; j++) {
    let v = top + (f32(j) + 0.5f) * tall / f32(rows);
    for (var k = across.x; k < across.y; k++) {
      let u = left + (f32(k) + 0.5f) * step_ / f32(count_);
      var sum = 0f;
      var high = 0f;
      if (v >= -1f && v <= f32(height) && u >= -1f && u <= f32(width)) {
        let row = min(max(v, 0f), f32(height - 1u));
        let column = min(max(u, 0f), f32(width - 1u));
        let y0 = u32(row);
        let x0 = u32(column);
        let fy = row - f32(y0);
        let fx = column - f32(x0);
        let y1 = min(y0 + 1u, height - 1u);
        let x1 = min(x0 + 1u, width - 1u);
        let p = (1f - fy) * (1f - fx) * x(plane + y0 * width + x0);
        let q = (1f - fy) * fx * x(plane + y0 * width + x1);
        let s = fy * (1f - fx) * x(plane + y1 * width + x0);
        let t = fy * fx * x(plane + y1 * width + x1);
        sum = p + q + s + t;
        high = most_of(most_of(most_of(p, q), s), t);
      }
      total += sum;
      most = select(most_of(most, high), high, first);
      first = false;
    }
  }
  if (op == 0) { y_set(i, total / f32(max(rows * count_, 1i))); }
  else { y_set(i, most); }
}
