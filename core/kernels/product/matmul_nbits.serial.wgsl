// threads: m * ceil_div(n, 4)
// group: 8
// when: serial and m < 4 and format == 0 and transposed == 0 and block * bits % 32 == 0
// apply: activate = activate_{activation}; zero_of = zero_of_{zero_type}
//
// For GPUs in software: an invocation computes 4 elements of a row of y, and there are no barriers.

const EACH = 32 / bits;
const BLOCKS = (k + block - 1) / block;
const WORDS = block * bits / 32;

fn element(i: u32) {
  let across = ceil_div(n, 4u);
  let row = i / across;
  let first = i % across * 4u;
  let column = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(n - 1u));
  let s = four_columns(column, row * a_row);
  for (var j = 0u; j < 4u; j++) {
    if (first + j < n) { ended(row * y_row + first + j, first + j, s[j]); }
  }
}
