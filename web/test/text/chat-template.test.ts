// Operations of chat templates that would take long in a page alone: they are refused before they
// begin. tests/conformance/chat_templates.json has what Python refuses as well.
import assert from "node:assert/strict";
import test from "node:test";
import { TokenizerError } from "../../src/shared/errors.ts";
import { ChatTemplate } from "../../src/worker/text/chat-template.ts";

const long = (c: string, doublings: number) =>
  `{% set ns = namespace(a='${c}') %}{% for i in range(${doublings}) %}` +
  "{% set ns.a = ns.a ~ ns.a %}{% endfor %}";
const render = (source: string) =>
  new ChatTemplate(source).render({ messages: [{ role: "user", content: "hi" }] });

for (const [name, source, says] of [
  // engines search for texts that differ in the middle in quadratic time
  ["in", "{{ (h ~ 'b' ~ h) in ns.a }}", "a search for"],
  ["not in", "{{ (h ~ 'b' ~ h) not in ns.a }}", "a search for"],
  ["split", "{{ ns.a.split(h ~ 'b' ~ h)|length }}", "a search for"],
  ["replace", "{{ ns.a.replace(h ~ 'b' ~ h, 'c')|length }}", "a search for"],
  // a list of all characters
  ["a slice", "{{ ns.a[1:]|length }}", "a list of"],
  ["join", "{{ ns.a|join('-')|length }}", "a list of"],
] as const)
  test(`a chat template with a long text: ${name}`, () => {
    const half =
      "{% set h = ns.a %}{% for i in range(4) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}";
    assert.throws(
      () => render(long("a", 17) + half + source),
      (e) => e instanceof TokenizerError && e.message.includes(says),
    );
  });

test("a chat template that reads a long path of attributes for each item", () => {
  for (const filter of ["sort", "map"])
    assert.throws(
      () =>
        render(
          `${long("a.", 20)}{{ messages|list|${filter}(attribute=ns.a)|length }}`.replace(
            "messages",
            "range(99999)",
          ),
        ),
      (e) => e instanceof TokenizerError && e.message.includes("a text of"),
    );
});

test("a chat template that makes many long lists", () => {
  const source =
    "{% set ns = namespace(a=range(99999)|list) %}{% for i in range(3) %}" +
    "{% set ns.a = ns.a + ns.a %}{% endfor %}{% for i in range(99) %}{% set x = ns.a + [] %}" +
    "{% endfor %}";
  assert.throws(
    () => render(source),
    (e) => e instanceof TokenizerError && e.message.includes("lists of more than"),
  );
});

test("what templates do with conversations is not refused", () => {
  const content = "A sentence of a few words.\n".repeat(4000);
  const text =
    "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + [m] %}" +
    "{% endfor %}{{ ns.all|tojson(indent=2)|length > 0 }}{{ 'few words' in messages[0].content }}" +
    "{{ messages[0].content.split('\\n')|length }}{{ messages[0].content[:-1]|length }}" +
    "{{ messages[0].content.replace('few', 'many')|indent(2)|length }}";
  const messages = Array.from({ length: 100 }, () => ({ role: "user", content }));
  assert.equal(
    new ChatTemplate(text).render({ messages }),
    `truetrue4001${content.length - 1}${content.length + 4000 + 2 * 3999}`,
  );
});
