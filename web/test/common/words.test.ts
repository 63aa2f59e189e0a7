// What errors quote from files.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ModelError } from "../../src/shared/errors.ts";
import { meant } from "../../src/shared/words.ts";

test("the name that was meant: letters, the first word, initials", () => {
  const known = ["top_p", "stop_strings", "learning_rate"];
  assert.equal(meant("top-p", known, ""), "Did you mean 'top_p'?");
  assert.equal(meant("stop", known, ""), "Did you mean 'stop_strings'?");
  assert.equal(meant("lr", known, ""), "Did you mean 'learning_rate'?");
  assert.equal(meant("anything", known, "No."), "No.");
});

test("errors hold no controls, and no marks of direction", () => {
  for (let code = 0; code < 0x3000; code++) {
    const c = String.fromCharCode(code);
    const { what, where, remedy } = new ModelError(`a${c}b`, c, c);
    assert.doesNotMatch(what + where + remedy, /[\p{Cc}\u202a-\u202e\u2066-\u2069]/u);
  }
  assert.equal(new ModelError("a\nb", "").what, "a b");
});
