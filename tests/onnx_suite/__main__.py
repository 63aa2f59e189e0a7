"""Lists the failures of ONNX's backend tests by operator: PYTHONPATH=python:tests python -m
onnx_suite [part of a test's name] [--engine native|wasm-simd128|wasm-relaxed-threads]
"""

import argparse
import time
from collections import defaultdict

from engines import close_engines, open_engine

from .suite import suite

p = argparse.ArgumentParser(prog="onnx_suite", description=__doc__)
p.add_argument("part", nargs="?", default="", help="part of the tests' names")
p.add_argument("--engine", default="native")
p.add_argument(
    "--all", action="store_true", help="every failure, not only the first of each operator"
)
a = p.parse_args()
chosen = [t for t in suite().values() if a.part in t.name]
failures, start = defaultdict(list), time.perf_counter()
for t in chosen:
    try:
        t.run(open_engine(a.engine))
    except Exception as e:
        ops = [
            n for n in t.model.graph.node if n.op_type not in ("Constant", "Identity")
        ] or t.model.graph.node
        failures[f"{ops[0].domain + '.' if ops[0].domain else ''}{ops[0].op_type}"].append(
            f"{t.name}: {type(e).__name__} {' '.join(str(e).split())[: 200 if not a.all else 600]}"
        )
close_engines()
for op, failed in sorted(failures.items()):
    print(f"{op} {len(failed)}", *(failed if a.all else failed[:1]), sep="\n    ")
print(
    f"{sum(map(len, failures.values()))} of {len(chosen)} fail on {a.engine};"
    f" {time.perf_counter() - start:.1f} s"
)
