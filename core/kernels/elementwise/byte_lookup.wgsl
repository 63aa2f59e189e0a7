// threads: n

fn element(i: u32) { y_set(i, table(x(i) & 0xffu)); }
