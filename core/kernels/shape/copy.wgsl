// threads: volume(dims)

fn element(i: u32) { y_set(y_at(i), x(x_at(i))); }
