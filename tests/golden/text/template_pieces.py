"""Small templates for make_templates.py: each word of the language once or more, and the corners of each."""

PIECES = r"""
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1.5 * 2 }} {{ 1e3 }} {{ 1_000 }} {{ 3.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }}
{{ true }} {{ False }} {{ none }} {{ None is none }} {{ [1, 'a', "it's", 2.0, none, true] }} {{ (1,) }} {{ () }} {{ {'a': 1, 'b': [1, {'c': 'd'}]} }}
{{ 'a' 'b' }} {{ 'a' ~ 1 ~ none ~ [1] }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }} {{ 'x\n\ty\\\'\"\x41\u00e9' }} {{ '%s has %d and %.2f %%' % ('a', 3, 1.5) }} {{ '%5.1f|%-4d|%04d|%x' % (2.25, 7, 42, 255) }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1} }} {{ 'a' in 'abc' }} {{ 4 not in [1, 2] }} {{ 'k' in {'k': 1} }} {{ not 'x' == 'y' }}
{{ '' or 'b' }} {{ 'a' and 'b' }} {{ 0 or [] or 'x' }} {{ 'yes' if 1 else 'no' }} {{ 'yes' if 0 }} {{ 1 if 0 else 2 if 0 else 3 }} {{ not 1 or 2 }}
{{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ [1, 2, 3, 4][::2] }} {{ [1, 2, 3][5:] }} {{ 'abc'[1] }} {{ [1, 2][-1] }} {{ [1][7] is defined }} {{ 'abcdef'[4:1:-2] }} {{ (1, 2, 3)[1:] }} {{ [1, 2, 3][:-1] }} {{ 'abc'[:100] }}
{{ missing }}{{ missing is defined }} {{ missing | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | d('e') }} {{ {'a': 1}.b is undefined }} {{ {'a': 1}['b'] is defined }} {{ missing | length }} {% for x in missing %}x{% else %}none{% endfor %}
{{ missing.attribute }}
{{ missing + 1 }}
{{ none.x is defined }} {{ none['x'] is defined }} {{ 'abc'.x is defined }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ [1] < ['a'] }}
{{ 'x'() }}
{{ raise_exception('my words: ' ~ 1) }}
{% if missing is not defined and missing is undefined %}a{% elif true %}b{% endif %}{% if [] %}c{% else %}d{% endif %}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ 'a' is string }} {{ 1 is number }} {{ 1.0 is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ true is integer }} {{ true is number }} {{ [] is sequence }} {{ {} is mapping }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ (1,) is sequence }} {{ {} is sequence }} {{ none is none }} {{ 'A' is upper }} {{ 'a1' is lower }} {{ '1' is lower }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 2 is sameas 2 }} {{ 1 is in [1, 2] }} {{ range is callable }} {{ 1 is not string }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 'length' is filter }} {{ 'odd' is test }}
{{ '  a b '.strip() }}|{{ '  a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ 'a b c'.split(' ')[-1] }}|{{ 'a\nb\r\nc'.splitlines() }}|{{ ' a b  c '.split(none, 1) }}|{{ ' a b  c '.rsplit(none, 1) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'hello world'.title() }} {{ "they're bill's".title() }} {{ 'hello'.capitalize() }} {{ 'aBc'.upper() }} {{ 'ABC'.lower() }} {{ 'aBc'.swapcase() }} {{ 'a-b-a'.replace('a', 'xx') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ '-'.join(['a', 'b']) }} {{ 'banana'.count('an') }} {{ 'banana'.find('n') }} {{ 'banana'.rfind('n') }} {{ 'banana'.find('z') }} {{ 'banana'.index('n') }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'prefix'.removeprefix('pre') }} {{ 'suffix'.removesuffix('fix') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'x'.center(5, '*') }} {{ 'x'.ljust(3, '.') }} {{ 'x'.rjust(3) }} {{ '{} is {n}{{}}'.format(1, n='b') }}
{{ {'a': 1, 'b': 2}.items() | list }} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.get('a') }} {{ {'a': 1}.get('z') }} {{ {'a': 1}.get('z', 9) }} {% for k, v in {'x': 1, 'y': [2]}.items() %}{{ k }}={{ v }};{% endfor %} {{ {'items': 5}['items'] }} {{ dict(a=1, b='c') }} {{ [3, 1].index(1) }} {{ [1, 1].count(1) }}
{{ 'x' | upper }} {{ 'X' | lower }} {{ 'hello world-wide (x)' | title }} {{ 'aB' | capitalize }} {{ '  a ' | trim }}| {{ 'xax' | trim('x') }} {{ 'abc' | length }} {{ [1, 2] | count }} {{ 'a-a' | replace('a', 'b') }} {{ 'a-a' | replace('a', 'b', 1) }} {{ 42 | string + '!' }} {{ '42' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '4.7' | int }} {{ '1.5' | float }} {{ -3 | abs }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 42 | round }}
{{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ 'abc' | first }} {{ [] | first is defined }} {{ [1, 2] | join }} {{ ['a', 'b'] | join(', ') }} {{ [{'n': 1}, {'n': 2}] | join('+', attribute='n') }} {{ 'abc' | list }} {{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ [3, 1] | sort(reverse=true) }} {{ [{'n': 2}, {'n': 1}] | sort(attribute='n') }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1} | items | list }} {{ [1, 2, 1] | unique | list }} {{ [1, 2, 3] | sum }} {{ [{'a': 1.5}] | sum(attribute='a') }} {{ [1, 3, 2] | max }} {{ [1, 3] | min }} {{ [1, 2, 3] | batch(2) | list }} {{ 'a b c' | wordcount }}
{{ [{'a': 1, 'b': 'x'}, {'a': 2}, {'a': 1}] | map(attribute='a') | list }} {{ ['a', 'b'] | map('upper') | list }} {{ [{'a': {'b': 3}}] | map(attribute='a.b') | list }} {{ [[1, 2]] | map(attribute=1) | list }} {{ [{'a': 1}, {}] | map(attribute='a', default='-') | list }} {{ [0, 1, 2] | select | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [{'r': 'u'}, {'r': 's'}] | selectattr('r', 'equalto', 'u') | list }} {{ [{'r': 'u'}, {'r': 's'}] | rejectattr('r', '==', 'u') | list }} {{ [{'t': 1}, {}] | selectattr('t') | list | length }} {{ [{'t': 1}, {}] | selectattr('t', 'defined') | list | length }} {{ [1, 5] | select('gt', 2) | list }} {% for g in [{'k': 'b', 'v': 1}, {'k': 'a', 'v': 2}, {'k': 'b', 'v': 3}] | groupby('k') %}{{ g[0] }}:{{ g[1] | map(attribute='v') | list }} {% endfor %}
{{ {'a': [1, 2.0, none, true, 'x"y\n\u00e9\u2028<&>\x7f\x01']} | tojson }} {{ {'b': 1, 'a': {'c': []}} | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4} | tojson }} {{ 1.0 | tojson }} {{ (1, 2) | tojson }}
{{ missing | tojson }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(1, blank=true) }}|{{ 'a\nb' | indent('>> ') }}
{{ '<a href="x">\'&' | escape }} {{ '<b>' | e | e }} {{ '<b>' | safe + '<i>' }} {{ '<i>' + '<b>' | safe }} {{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ '%s-%s' | format('a', 2) }} {{ {'x': 1} | attr('y') is defined }}
{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }} {% endfor %}{{ range(2, 8, 3) | list }} {{ range(5, 0, -2) | list }}
{% for i in range(10) if i is odd %}{% if i == 7 %}{% break %}{% endif %}{% if i == 3 %}{% continue %}{% endif %}{{ i }}/{{ loop.index }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}
{% for n in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ n.v }}:{{ loop.depth }}({{ loop(n.c) }}){% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }} {% set ns = namespace(x=1, y='a') %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }} {% if true %}{% set z = 5 %}{% endif %}{{ z }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t %}block {{ a }}{% endset %}{{ t }}{{ t | upper }} {% set u | upper %}up{% endset %}{{ u }}
{% for i in [1, 2] %}{% if y is defined %}D{% endif %}{% set y = i %}{% endfor %}{{ y is defined }}
{% set x.y = 1 %}
{% macro m(a, b='B', c=none) %}[{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{{ caller is defined }}]{% endmacro %}{{ m('1') }}{{ m('1', '2', '3', '4', z='5') }}{{ m(b='2', a='1') }}{{ m() }}{% set later = 'L' %}{% macro sees() %}{{ later }}{% endmacro %}{{ sees() }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller('in') }}</{{ tag }}>{% endmacro %}{% call(x) wrap('b') %}said {{ x }}{% endcall %}{% filter upper | trim %} loud {{ 'er' }} {% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{% raw %}{{ not }} {% this %}{% endraw %}{# a comment {{ x }} #}
{%- macro fact(n) -%}{{ 1 if n < 2 else n * (fact(n - 1) | int) }}{%- endmacro -%}{{ fact(10) }}
{% generation %}{{ 'said' }}{% endgeneration %}
{{ messages[0].role }}{{ messages[0]['content'] | trim }}{{ messages | length }}{{ messages[-1].content[:4] }}{{ messages[0].tool_calls is defined }}{{ messages[0].get('name', 'nobody') }}{{ tools is none }}{{ documents }}{{ bos_token }}{{ eos_token }}
{{ strftime_now('%d %b %Y %H:%M:%S %A %j') }}
{{ 'Straße ÉCOLE'.lower() }} {{ 'é'.upper() }} {{ '\u00a0x\u2003'.strip() }}| {{ '日本語'[1] }} {{ '日本語' | length }} {{ ['日'] }} {{ '\x07\x9f' | list }}
{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}{{ [] }}{{ {} }}{{ -1 | abs }}{{ (-1) | abs }}{{ - 1 }}{{ +1 }}{{ 1 - -1 }}{{ 2 * -3 }}{{ not false and not none }}{{ 1, 2 }}
{{ {'a': {'b': [10, {'c': 'deep'}]}}.a.b[1].c }} {{ {'a': [1, 2]}.a.1 }} {{ [[1, 2], [3]][0][1] }} {{ 'a.b'.split('.')[1].upper() }} {{ ('x' ~ 'y').upper() }} {{ ('a' if true else 'b') + 'c' }}
  {% if true %}
    indented
  {% endif %}
  end
a  {%- if true -%}  b  {%- endif -%}  c
line one {{- 'x' -}} joined  {{ 'y' }}
x {# gone #}
y {#- gone -#} z
  {%+ if true %} kept{%+ endif %} {% if true +%}
newline kept{% endif %}
{{ undefined_function('x') }}
{{ 'abc' | nosuchfilter }}
{{ 'abc' is nosuchtest }}
{{ unclosed
{% if true %}no end
{% endif %}
{% for x in %}{% endfor %}
{{ 1 +* 2 }}
{{ 'a' if }}
{{ [1, 2 }}
{{ range(1000000) | length }}
{% macro r() %}{{ r() }}{% endmacro %}{{ r() }}
""".strip("\n").replace("\n  {%+ if true %} kept", "\f  {%+ if true %} kept")

# Lines are templates; these few are of several lines.
BLOCKS = ["  {% if true %}\n    indented\n  {% endif %}\n  end\n", "x {# gone #}\ny\n  {#- gone -#} z\n\n",
          "  {%+ if true %} kept{%+ endif %} {% if true +%}\nnewline kept{% endif %}", "a\r\nb{{ 'c' }}\r\n\n",
          "{% raw -%}  {{ x }}\n  {%- endraw %}\nend", "{% for i in [1, 2] %}\n  - {{ i }}\n{% endfor %}\nlast",
          "{{ {'a':\n  1}\n}}\n{%- set q =\n 'r' -%}\n{{ q }}\n", "\t{% set a = 1 %} \n\t{{ a }}\n"]
ALL = [line for line in PIECES.replace("\f", "\n").split("\n")] + BLOCKS
