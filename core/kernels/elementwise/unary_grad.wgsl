// threads: volume(dims)
// apply: slope = slope_{op}
// alike: any
//
// slope_<op> is generated from the contract's formulas.

fn element(i: u32) { dx_set(dx_at(i), slope(dy(dy_at(i)), x(x_at(i)))); }
