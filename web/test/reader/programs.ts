// Prints the WGSL programs of plans as JSON, for tests/conformance/test_programs.py: of each step a
// list of texts. Reads plans as JSON from standard input: a list of base64.
import { readFileSync } from "node:fs";
import { arrange } from "../../src/device/webgpu/arrange.ts";
import { loadParts } from "../../src/device/webgpu/shader-parts.ts";
import { partsOf } from "../../src/device/webgpu/steps.ts";
import { stagesOf } from "../../src/device/webgpu/variants.ts";
import { decimal, programOf } from "../../src/device/webgpu/wgsl.ts";

const { plans, numbers } = JSON.parse(readFileSync(0, "utf8")) as {
  plans: string[];
  numbers: number[];
};
await loadParts(["images", "training"]);
const printed = plans.map((plan) => {
  const { steps, registers } = partsOf(Buffer.from(plan, "base64"));
  const largest = registers.map(([, high]) => high);
  return steps.map((step, i) => {
    const spans = step.operands.map((v) =>
      v && v.buffer > 0 ? { number: v.buffer, begin: 0, end: 1 << 20, zero: v.offset } : undefined,
    );
    return stagesOf(step, largest).map((variant) => {
      const { roles, bindings, ranges, offsets } = arrange(step, spans);
      const { text } = programOf(step, variant, roles, bindings, i % 2 === 1);
      return [text, ranges, offsets];
    });
  });
});
process.stdout.write(JSON.stringify({ printed, numbers: numbers.map(decimal) }));
