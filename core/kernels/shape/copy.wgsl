// threads: volume(dims)
// alike: any
// takes: x if True

fn element(i: u32) { y_set(y_at(i), x(x_at(i))); }
