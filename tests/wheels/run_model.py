"""run_model.py MODEL   Generates with the demo's model and the installed package, and prints the
instruction set and the tokens. For systems on which the tests do not run.
"""

import platform
import sys

import edgewise
from edgewise.engine import default_engine

# The tokens that onnxruntime gives.
TOKENS = [1017, 1017, 332, 262, 512, 296, 512, 35, 47, 288, 288, 262, 1067, 15, 200, 200]

model = edgewise.CausalLM(sys.argv[1], capacity=32)
[ids] = edgewise.generate(model, [5, 6, 7, 8], max_new_tokens=16, do_sample=False)
engine = default_engine()
print(platform.system(), platform.machine(), engine.flavour, engine.threads, ids)
if ids[4:] != TOKENS:
    sys.exit(f"onnxruntime gives {TOKENS}")
