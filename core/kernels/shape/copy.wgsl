// threads: volume(dims)
// alike: any

fn element(i: u32) { y_set(y_at(i), x(x_at(i))); }
