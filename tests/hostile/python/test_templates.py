"""Chat templates that ask for much in one step, and what the bounds leave as it is in jinja2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jinja2.defaults
import markupsafe
import pytest
from edgewise.errors import TokenizerError
from edgewise.host.text.templates import tables
from edgewise.text import ChatTemplate
from jinja2.sandbox import ImmutableSandboxedEnvironment

ATTACKS = {
    "widths of str.format": "{{ ('{0:9999}' * 1000000).format('a') | length }}",
    "a few widths of str.format": "{{ ('{0:9999}' * 8000).format('a') | length }}",
    "widths of %": "{{ ('%(a)9999d' * 900000) | format(a=1) | length }}",
    "a few widths of %": "{{ ('%(a)9999d' * 6000) | format(a=1) | length }}",
    "widths behind a key with parentheses": "{{ '%((a)%)2000000000d' % {'(a)%': 1} }}",
    "binary digits": "{{ ('{:b}' * 16000).format(2 ** 60000) | length }}",
    "bytes of an integer": "{{ (1).to_bytes(2000000000, 'big') | length }}",
    "wordwrap": "{{ ('a' * 8000000) | wordwrap(1) | length }}",
    "title": "{{ ('a ' * 7000000) | title | length }}",
    "sum of lists": "{{ ([[1, 2, 3]] * 100000) | sum(start=[]) | length }}",
    "striptags of Markup": "{{ (('<!---->' * 2000000) | safe).striptags() | length }}",
    "unescape": "{{ (('&#1;' * 4000000) | safe).unescape() | length }}",
    "is odd formats": "{{ '%1500000000d' is odd }}",
    "is divisibleby formats": "{{ '%1500000000d' is divisibleby(1) }}",
    "select by a test that formats": "{{ ['%1500000000d'] | select('even') | list }}",
    "round repeats": "{{ ('a' * 10000000) | round(100, 'ceil') }}",
    "slices": "{% set t = 'a' * 16000000 %}"
    + "".join("{% set a" + str(i) + " = t[1:] %}" for i in range(100)),
    "slices of lists": "{% set t = [1] * 1000000 %}"
    + "".join("{% set a" + str(i) + " = t[1:] %}" for i in range(200)),
    "keys of equal hash": "{{ {}.fromkeys(range(0, 230584300921369395100000, 2305843009213693951))"
    " | length }}",
    "strip by many": "{{ ('a' * 8000000).strip('b' * 8000000 ~ 'a') | length }}",
    "trim by many": "{{ ('a' * 8000000) | trim('b' * 8000000 ~ 'a') | length }}",
    "search from the end": "{{ ('a' * 8000000).rfind('ab' ~ 'a' * 400000) }}",
    "split from the end": "{{ ('a' * 8000000).rsplit('ab' ~ 'a' * 400000) }}",
    "names of characters": "{{ ('\u1f9f' * 16000000).encode('ascii', 'namereplace') | length }}",
    "punycode": "{{ ('\u1f9f' * 4000000).encode('punycode') | length }}",
    "translate by a list": "{{ ('\\x00' * 1000000).translate(['a' * 100000]) | length }}",
    "lines": "{{ ('\u0101\\r' * 8000000).splitlines() | length }}",
    "separators": "{{ ([1] * 100000) | tojson(separators=['a' * 100000, 'b']) | length }}",
    "indentation of what is nested": "{% set ns = namespace(a=[1] * 100000) %}"
    "{% for i in range(190) %}{% set ns.a = [ns.a] %}{% endfor %}"
    "{{ ns.a | tojson(indent=100) | length }}",
    "namespaces that change": "".join(
        "{% set n" + str(i) + " = namespace(a=1) %}" for i in range(60)
    )
    + "".join(f"{{% set l{i} = [n{i + 1}, n{i + 1}] %}}" for i in range(59))
    + "".join(f"{{% set n{i}.a = l{i} %}}" for i in range(59))
    + "{{ n0 }}",
    "views": "{% set d = {'a': 'b' * 1000000} %}{{ ([d.items()] * 100000) | string | length }}",
    "methods": "{% set m = ('a' * 1000000) | safe %}{{ ([m.upper] * 100000) | string | length }}",
    "defaults": "{% set t = 'a' * 10000000 %}"
    "{{ range(100000) | map(attribute='x', default=t) | sort | length }}",
    "long attributes": "{{ (['a'] * 1000) | sort(attribute='0.' * 1000000 ~ '0') | length }}",
    "lists in a list": "{{ ([range(100000)] * 1000) | map('list') | list | length }}",
    "arguments": "{{ cycler(*('\u0101' * 16000000)).current }}",
    "arguments of a filter": "{{ 'a' | format(*('\u0101' * 16000000)) }}",
    "tuples in tuples": "{% set ns = namespace(a=()) %}{% for i in range(970) %}"
    "{% for j in range(1000) %}{% set ns.a = (ns.a,) %}{% endfor %}{% endfor %}{{ {ns.a: 1} }}",
    "a dict that changes": "{% set d = {} %}{{ dict.update(d, {'a': 1}) }}",
    "a list that changes": "{{ messages[0].parts | indent }}",
    "escape": "{{ ('<' * 16000000) | e | length }}",
    "join of Markup": "{{ ('' | safe).join(['<' * 15000000]) | length }}",
    "replace by Markup": "{{ ('a' * 8000000) | replace('a', '&' | safe) | e | length }}",
    "pprint": "{{ ([1] * 900000) | pprint | length }}",
    "urlize": "{{ ('www.a.de ' * 100000) | urlize | length }}",
}
RUN = """
import json, resource, sys
from edgewise.errors import TokenizerError
from edgewise.text import ChatTemplate
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (200, 200))
for name, source in json.load(sys.stdin).items():
    parts = [1]
    try:
        result = ChatTemplate(source)([{"role": "user", "parts": parts}])[:80]
    except Exception as error:
        result = type(error).__name__
    print(json.dumps([name, result, parts]), flush=True)
"""


def test_one_step_takes_neither_gigabytes_nor_minutes():
    """Each attack is refused in a process that may have 1 GB and 200 s for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(ATTACKS),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "python")},
        capture_output=True,
        text=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row for row in found if row[1:] != ["TokenizerError", [1]]] == [], done.stderr[-500:]
    assert [row[0] for row in found] == list(ATTACKS), (done.returncode, done.stderr[-500:])


def test_every_filter_and_test_of_jinja2_has_a_bound():
    filters, tests = jinja2.defaults.DEFAULT_FILTERS, jinja2.defaults.DEFAULT_TESTS
    assert set(tables.FILTERS) == {*filters, "tojson"}
    assert set(tables.TESTS) == set(tests)


@pytest.mark.parametrize(
    "value", ["a", b"a", markupsafe.Markup("a"), 1, 1.5, [1], (1,), {"a": 1}, {1}, range(3)]
)
def test_a_method_has_a_bound_or_does_not_exist(value):
    _, known = tables.methods_of(value)
    for name in dir(value):
        if name.startswith("_"):
            continue
        if name not in known:
            with pytest.raises(TokenizerError, match="unsafe"):
                ChatTemplate("{{ x." + name + "() }}")([], x=value)


SAME = [
    "{{ 'aBc dE-f' | title }} {{ 'abc' | upper }} {{ 'ABC' | lower }} {{ 'ab c' | capitalize }}",
    "{{ '  x ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ ' a '.strip() }}|{{ 'abca'.strip('a') }}",
    "{{ 'a,b,c'.split(',') }} {{ 'a b  c'.split() }} {{ 'a,b,c'.rsplit(',', 1) }}",
    "{{ 'a\nb\r\nc'.splitlines() }} {{ 'a<sep>b'.partition('<sep>') }} {{ 'abcabc'.rfind('bc') }}",
    "{{ '{:>5}|{!r}|{a:.2f}|{{}}'.format(1, 'x', a=1.5) }} {{ '{a}'.format_map({'a': 2}) }}",
    "{{ '%5d|%s|%-4s|%%' % (1, [2], 'x') }} {{ '%(a)s' | format(a='b') }} {{ '%s' % 'x' }}",
    "{{ [3, 1, 2] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ 'bca' | sort }}",
    "{{ [{'a': {'b': 2}}, {'a': {'b': 1}}] | sort(attribute='a.b') }} {{ [1, 3] | max }}",
    "{{ [1, 2, 3] | sum }} {{ [{'a': 2}] | sum(attribute='a') }} {{ [[1], [2]] | sum(start=[]) }}",
    "{{ [1, 2, 3] | map('string') | join('-') }} {{ 'abc' | join(',') }} {{ [1, 2] | join }}",
    "{{ [{'a': 1}, {'b': 2}] | map(attribute='a', default=0) | list }} {{ 'abc' | list }}",
    "{{ [{'a': 1}] | join(',', attribute='a') }} {{ {'a': 1, 'b': 2} | join }}",
    "{{ [1, 2, 3, 4] | select('even') | list }} {{ [0, 1, none] | reject | list }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
    "{{ messages | rejectattr('role', 'in', ['user']) | list | length }}",
    "{{ [1, 1, 2] | unique | list }} {{ 'abA' | unique | list }} {{ [3, 2] | reverse | list }}",
    "{{ 'abc' | reverse }} {{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ [1, 2] | length }}",
    "{{ [1, 2, 3] | batch(2, 0) | list }} {{ [1, 2, 3] | slice(2) | list }} {{ 1.55 | round(1) }}",
    "{{ {'b': 1, 'a': 2} | dictsort }} {{ {'a': 1} | items | list }} {{ 2.5 | round }}",
    "{{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}] | groupby('a') }} {{ -1 | abs }} {{ '3' | int + 1 }}",
    "{{ '<a>' | e }} {{ '<a>' | forceescape }} {{ '<b>x</b>' | striptags }} {{ '<' | safe }}",
    "{{ 'a b' | urlencode }} {{ {'a': 'b c'} | urlencode }} {{ 'x www.a.de' | urlize }}",
    "{{ 'a b c d' | truncate(5) }} {{ 'a b c' | wordwrap(3) }} {{ 'a b' | wordcount }}",
    "{{ 'a\nb' | indent(2, true) }} {{ 'x' | center(5) }}| {{ 'aXa' | replace('a', 'bb', 1) }}",
    "{{ {'a': 1} | xmlattr }} {{ [1, {'a': 2}] | pprint }} {{ 1000 | filesizeformat }}",
    "{{ x | default('y') }} {{ '' | default('z', true) }} {{ '1.5' | float }} {{ 5 | string }}",
    "{{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 'a' is lower }} {{ 1 < 2 < 3 }}",
    "{{ [1, 2, 3][1:] }} {{ 'abc'[::-1] }} {{ messages[-1].role }} {{ messages[0]['content'] }}",
    "{{ dict(a=1) }} {{ dict([['a', 1]]) }} {{ dict({'a': 1}, b=2) }} {{ range(3) | list }}",
    "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ {'a': 1}.items() }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{% set j = joiner(',') %}{{ j() }}x"
    "{{ j() }}",
    "{% for m in messages %}{{ loop.index }}{{ m.content.split('</t>')[-1].lstrip('\n') }}"
    "{% endfor %}",
    "{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{% endmacro %}{{ f(*[1, 2, 3]) }}",
    "{{ 'abc'.encode('utf-8') | length }} {{ 'ab'.zfill(4) }} {{ 'a\tb'.expandtabs(4) }}",
    "{{ 'abc'.translate({97: 'x'}) }} {{ (255).bit_length() }} {{ (2).to_bytes(2, 'big') }}",
]


@pytest.mark.parametrize("source", SAME)
def test_what_is_small_is_as_in_jinja2(source):
    messages = [{"role": "user", "content": "hi</t>\nho"}, {"role": "assistant", "content": "x"}]
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    want = plain.from_string(source).render(messages=messages)
    assert ChatTemplate(source)(messages) == want


ESCAPES = [
    "{{ ('{0.__class__.__init__.__globals__}' | attr('format'))(cycler('a')) }}",
    "{{ ['{0.__class__}'] | map(attribute='format') | first }}",
    "{% set f = '{0.__class__.__mro__}'.format %}{{ f(messages) }}",
    "{{ '{0.__class__}'.format_map({'0': messages}) }}",
    "{{ ('{0.__class__}' | safe).format(messages) }}",
    "{{ cycler.__init__.__globals__ }}{{ raise_exception.__globals__ }}",
    "{{ messages | attr('__class__') }}{{ messages | map(attribute='__class__') | first }}",
    "{{ namespace.__call__.__self__ }}{{ self.__init__ }}{{ dict.mro() }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_templates_do_not_reach_objects_of_python(source):
    try:
        text = ChatTemplate(source)([{"role": "user"}])
    except TokenizerError:
        return
    assert "class" not in text and "{'__name__'" not in text


@pytest.mark.parametrize("version", ["3.1.5", "3.0", "2.11.3"])
def test_versions_of_jinja2_with_holes_are_refused(version, monkeypatch):
    """In 3.1.5 the first of ESCAPES gives the globals of a module (CVE-2025-27516)."""
    monkeypatch.setattr("jinja2.__version__", version)
    with pytest.raises(TokenizerError, match="jinja2>=3.1.6"):
        ChatTemplate("{{ 'never compiled before: " + version + "' }}")
