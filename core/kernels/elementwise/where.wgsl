// threads: volume(dims)

fn element(i: u32) {
  if (condition(condition_at(i)) != 0u) { y_set(y_at(i), a(a_at(i))); }
  else { y_set(y_at(i), b(b_at(i))); }
}
