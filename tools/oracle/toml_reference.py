#!/usr/bin/env python3
"""The reference for base/toml: cases written here, judged by Python's tomllib.

    python3 tools/oracle/toml_reference.py            compare tests/golden/toml with what tomllib says today
    python3 tools/oracle/toml_reference.py --write    write tests/golden/toml anew

valid/NAME.toml has valid/NAME.json: ["table", [[key, value], ...]], ["array", [...]], ["string", text], ["int", digits],
["float", 16 hexadecimal digits of its bits, or "nan"], ["bool", true], and the four kinds of time as text with microseconds.
invalid/NAME.toml must be refused. Where tomllib is wider than 64-bit integers, the case stands under invalid (OVERRULED).
"""
import datetime
import json
import pathlib
import random
import struct
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "toml"

VALID = {
    "empty": "",
    "only-blanks": " \t \n\n",
    "only-comment": "# nothing here",
    "comment-kinds": "# first\na = 1 # after a value\n# with tab\tand \"quotes\" and = and [x]\n[t] # after a header\nb = 2#close\n#",
    "no-newline-at-end": "a = 1",
    "crlf": "a = 1\r\n# c\r\n[t]\r\nb = \"x\"\r\nc = [\r\n1,\r\n2\r\n]\r\n",
    "blanks-everywhere": "  a\t=\t1  \n \t[ t . u ]\t\n  b  .  c = 2\n",
    "bare-keys": "a=1\nA=2\n-=3\n_=4\n1=5\na-b_9=6\n1234=7\n-1-=8\ntrue=9\ninf=10\nnan=11\n2020-01-01=12\n",
    "quoted-keys": "\"a b\" = 1\n'c.d' = 2\n\"e\\tf\" = 3\n\"\" = 4\n\"ключ\" = 5\n'\\x' = 6\n\"\\u00e9\" = 7\n",
    "empty-key-kinds": "'' = 1\n[t]\n\"\" = 2\n[u.'']\na = 3\n",
    "dotted-keys": "a.b.c = 1\na.b.d = 2\na.e = 3\n\"x\".'y'.z = 4\n",
    "dotted-key-float-like": "3.14 = \"pi\"\n1.2.3 = 4\n",
    "dotted-key-apart": "a.x = 1\nb.x = 2\na.y = 3\nb.y = 4\n",
    "dotted-in-table": "[t]\na.b = 1\na.c = 2\n[t.d]\ne.f = 3\n",
    "dotted-then-sub-table": "[fruit]\napple.color = \"red\"\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true\n",
    "dotted-into-open-table": "[a.b.c]\nz = 9\n[a]\nb.t = 1\n",
    "key-escapes-equal": "\"a\" = 1\n[b]\n'a' = 2\na-a = 3\n",
    "strings-basic": "a = \"\"\nb = \"plain\"\nc = \"tab\\tnl\\nquote\\\"back\\\\bs\\bff\\fcr\\r\"\nd = \"real\ttab\"\ne = \"# no comment\"\n",
    "strings-unicode-escapes": "a = \"\\u0041\\u00e9\\u20ac\\uD7FF\\uE000\\uFFFF\"\nb = \"\\U0001F600\\U0010FFFF\\U00000041\"\nc = \"\\u0000x\\u007f\\u001f\"\n",
    "strings-unicode-raw": "a = \"é€😀 中文 ру\"\nb = '\u0080\u00a0\u2028\ufeff'\nc = \"\"\"\U0001f3e0\n\u0301\"\"\"\n",
    "strings-literal": "a = ''\nb = 'C:\\Users\\n'\nc = 'say \"hi\"'\nd = 'tab\there'\n",
    "strings-multi-basic": "a = \"\"\"\nfirst gone\nkept\"\"\"\nb = \"\"\"one\n\n two\"\"\"\nc = \"\"\"\"\"\"\nd = \"\"\"\n\"\"\"\ne = \"\"\"\n\n\"\"\"\n",
    "strings-multi-fold": "a = \"\"\"one \\\n   two \\  \n\n\t three\"\"\"\nb = \"\"\"\\\n  \"\"\"\nc = \"\"\"a\\\\\nb\"\"\"\nd = \"\"\"x\\\n\\\n\\\ny\"\"\"\n",
    "strings-multi-quotes": "a = \"\"\"\"one\"\"\"\"\nb = \"\"\"\"\"two\"\"\"\"\"\nc = \"\"\"x\"\"y\"z\"\"\"\nd = \"\"\"\\\"\"\"\\\"\"\"\"\ne = \"\"\"\"\"\"\"\"\nf = \"\"\"\"\"\"\"\n",
    "strings-multi-literal": "a = '''\nfirst gone\n\\n stays'''\nb = ''''one''''\nc = '''''two'''''\nd = '''it's ''quoted''.'''\ne = ''''''\nf = '''x\\\ny'''\n",
    "strings-multi-crlf": "a = \"\"\"\r\none\r\ntwo\\\r\n  three\r\n\"\"\"\r\nb = '''\r\nx\r\ny'''\r\n",
    "strings-multi-escapes": "a = \"\"\"\\u00e9 \\t \\\" \\\\ \\U0001F600\"\"\"\n",
    "string-long": "a = \"" + "x" * 3000 + "\"\n",
    "integers": "a=0\nb=+0\nc=-0\nd=99\ne=+99\nf=-17\ng=1_000\nh=1_2_3\ni=9223372036854775807\nj=-9223372036854775808\n",
    "integers-prefixed": "a=0xDEADBEEF\nb=0xdead_beef\nc=0o01234567\nd=0o7_5_5\ne=0b1101_0110\nf=0x0\ng=0b0\nh=0o0\ni=0x7fffffffffffffff\nj=0x00000000000000000001\n",
    "floats": "a=1.0\nb=3.1415\nc=-0.01\nd=5e+22\ne=1e06\nf=-2E-2\ng=6.626e-34\nh=224_617.445_991_228\ni=0.0\nj=-0.0\nk=+1.5\nl=0e0\nm=1e1_0\nn=0.1e-1_0\n",
    "floats-special": "a=inf\nb=+inf\nc=-inf\nd=nan\ne=+nan\nf=-nan\n",
    "floats-extreme": "a=1e400\nb=-1e400\nc=1e-400\nd=4.9e-324\ne=1.7976931348623157e308\nf=2.2250738585072011e-308\ng=123456789012345678901234567890.5\n",
    "floats-rounding": "a=0.1\nb=0.3\nc=9007199254740993.0\nd=1.00000000000000011102230246251565\ne=1." + "0" * 400 + "1\n",
    "bools": "a = true\nb = false\n",
    "offset-datetimes": "a=1979-05-27T07:32:00Z\nb=1979-05-27T00:32:00-07:00\nc=1979-05-27T00:32:00.999999+05:30\nd=1979-05-27 07:32:00z\ne=1979-05-27t07:32:00.5Z\nf=2000-02-29T23:59:59-23:59\ng=1979-05-27T00:00:00+00:00\n",
    "local-datetimes": "a=1979-05-27T07:32:00\nb=1979-05-27T00:32:00.999999\nc=1979-05-27 07:32:00\nd=9999-12-31T23:59:59.123456789\ne=0001-01-01t00:00:00\n",
    "local-dates": "a=1979-05-27\nb=2000-02-29\nc=2024-02-29\nd=0001-01-01 # comment\ne=9999-12-31   \nf=[2020-01-01 , 2020-01-02]\n",
    "local-times": "a=07:32:00\nb=00:32:00.999999\nc=23:59:59.1\nd=00:00:00.1234567\n",
    "arrays": "a = []\nb = [1, 2, 3]\nc = [\"a\", 'b']\nd = [[1, 2], [\"x\"]]\ne = [1, \"two\", 3.0, true, [4], {f = 5}]\n",
    "arrays-layout": "a = [\n]\nb = [ # comment\n  1 , # one\n\n  2\n  # last\n]\nc = [1,2,]\nd = [\n1\n,\n2\n,\n]\ne = [[],[[]],]\n",
    "arrays-strings": "a = [\"]\", \"#\", \",\", '''\nx]\n''', \"\"\"\ny,\\\n   z\"\"\"]\n",
    "arrays-times": "a = [1979-05-27T07:32:00Z, 1979-05-27, 07:32:00]\n",
    "inline-tables": "a = {}\nb = { }\nc = {x=1}\nd = { x = 1, \"y z\" = 2, w.v = 3, w.u = 4 }\ne = {f={g={h=1}}}\n",
    "inline-tables-in-arrays": "points = [ { x = 1, y = 2 },\n  { x = 7, y = 8 }, {} ]\n",
    "inline-table-with-multi-line-values": "a = { b = [\n1,\n2\n], c = \"\"\"\nx\n\"\"\" }\n",
    "tables": "[a]\nx = 1\n[b]\n[c]\ny = 2\n",
    "tables-nested": "[a.b.c]\nx = 1\n[a.b]\ny = 2\n[a]\nz = 3\n[a.d]\nw = 4\n",
    "tables-out-of-order": "[x.y.z.w]\n[x]\n[b]\n[x.a]\n[b.c]\n",
    "tables-quoted": "[\"a.b\"]\nx = 1\n['c'.\"d e\".f]\ny = 2\n[j.\"ʞ\".'l']\n[\"\"]\nq=1\n",
    "tables-header-like-numbers": "[1]\na=1\n[1.2]\nb=2\n[-]\n[true]\n[2020-01-01]\n",
    "table-then-root-names": "a = 1\n[t]\na = 2\n[t.t]\na = 3\n",
    "arrays-of-tables": "[[a]]\nx = 1\n[[a]]\n[[a]]\nx = 3\n",
    "arrays-of-tables-nested": "[[fruit]]\nname = \"apple\"\n[fruit.physical]\ncolor = \"red\"\n[[fruit.variety]]\nname = \"a\"\n[[fruit.variety]]\nname = \"b\"\n[[fruit]]\nname = \"banana\"\n[[fruit.variety]]\nname = \"c\"\n[fruit.physical]\ncolor = \"y\"\n",
    "arrays-of-tables-in-table": "[a]\nx = 1\n[[a.b]]\ny = 2\n[[a.b]]\ny = 3\n[a.b.c]\nz = 4\n",
    "arrays-of-tables-under-implied": "[[a.b]]\nx = 1\n[a]\ny = 2\n",
    "arrays-of-tables-dotted": "[[a]]\nb.c = 1\nb.d = 2\n[[a]]\nb.c = 3\n",
    "inline-then-others": "a = {b = 1}\n[c]\nd = {e = 2}\nf.g = 3\n",
    "nan-in-array": "a = [nan, inf, -inf]\n",
    "depth-of-arrays": "a = " + "[" * 60 + "]" * 60 + "\n",
    "depth-of-inline-tables": "a = " + "{b=" * 60 + "1" + "}" * 60 + "\n",
    "depth-of-keys": ".".join("k%d" % i for i in range(60)) + " = 1\n",
    "many-keys": "".join("key-%d = %d\n" % (i, i * i) for i in range(500)),
    "many-tables": "".join("[t%d.u]\nx = %d\n" % (i, i) for i in range(100)),
    "readme-like": "title = \"home\"\n[owner]\nname = \"T\"\ndob = 1979-05-27T07:32:00-08:00\n[database]\nports = [8000, 8001]\ndata = [[\"delta\", \"phi\"], [3.14]]\ntargets = { cpu = 79.5, case = 72.0 }\n[servers.alpha]\nip = \"10.0.0.1\"\n[servers.beta]\nip = \"10.0.0.2\"\n",
    "equals-in-strings": "a = \"b = c\"\nd = '[e]'\n",
    "header-after-value-blank": "a = 1\n\n\n   [t]   # c\n",
}

INVALID = {
    "key-alone": "a",
    "key-without-value": "a =",
    "key-value-on-next-line": "a =\n1",
    "key-without-equals": "a 1",
    "key-with-colon": "a: 1",
    "key-empty": " = 1",
    "key-dot-first": ".a = 1",
    "key-dot-last": "a. = 1",
    "key-two-dots": "a..b = 1",
    "key-two-words": "a b = 1",
    "key-multi-line-string": "\"\"\"a\"\"\" = 1",
    "key-multi-line-literal": "'''a''' = 1",
    "key-newline": "\"a\nb\" = 1",
    "key-open-string": "\"a = 1",
    "key-bad-escape": "\"\\x\" = 1",
    "key-bare-unicode": "é = 1",
    "key-symbol": "a! = 1",
    "key-after-table": "[t] a = 1",
    "key-split-over-lines": "a.\nb = 1",
    "two-on-a-line": "a = 1 b = 2",
    "two-with-comma": "a = 1, b = 2",
    "duplicate-key": "a = 1\na = 2",
    "duplicate-quoted": "a = 1\n\"a\" = 2",
    "duplicate-escaped": "a = 1\n\"\\u0061\" = 2",
    "duplicate-in-table": "[t]\na = 1\nb = 2\na = 3",
    "duplicate-dotted": "a.b = 1\na.b = 2",
    "duplicate-inline": "t = {a = 1, a = 2}",
    "dotted-through-value": "a = 1\na.b = 2",
    "dotted-value-over-table": "a.b = 1\na = 2",
    "dotted-through-string": "a.b = \"x\"\na.b.c = 1",
    "dotted-through-array": "a = []\na.b = 1",
    "dotted-through-inline": "a = {b = 1}\na.c = 2",
    "dotted-into-header-table": "[a.b.c]\nz = 9\n[a]\nb.c.t = 1",
    "dotted-into-deeper-header-table": "[a.b.c.d]\nz = 9\n[a]\nb.c.d.k.t = 1",
    "dotted-into-array-of-tables": "[[a.b]]\n[a]\nb.y = 2",
    "dotted-over-sections": "[a]\nb.c = 1\n[x]\n[a.b]\nd = 2",
    "header-over-dotted": "[fruit]\napple.color = 1\n[fruit.apple]\ntaste = 2",
    "header-over-dotted-root": "a.b.c = 1\n[a]\nd = 2",
    "header-over-dotted-deep": "a.b.c = 1\n[a.b]\nd = 2",
    "header-over-open-then-dotted": "[a.b.c]\n[a]\nb.t = 1\n[a.b]",
    "header-over-open-then-dotted-deep": "[q.a.b.c]\n[q.a]\nb.t = 1\n[q]\na.b.u = 1",
    "header-twice": "[a]\n[a]",
    "header-twice-later": "[a]\nb = 1\n[c]\n[a]\nd = 2",
    "header-twice-nested": "[a.b]\n[a]\n[a.b]",
    "header-over-value": "a = 1\n[a]",
    "header-over-value-nested": "[a]\nb = 1\n[a.b]",
    "header-through-value": "a = 1\n[a.b]",
    "header-through-string": "[a]\nb = \"x\"\n[a.b.c]",
    "header-over-inline": "a = {}\n[a]",
    "header-through-inline": "a = {}\n[a.b]",
    "header-through-inline-deep": "a = {b = {c = 1}}\n[a.b.d]",
    "header-over-array": "a = [1]\n[a]",
    "header-through-array": "a = [{b = 1}]\n[a.c]",
    "header-over-array-of-tables": "[[a]]\n[a]",
    "header-open": "[a",
    "header-open-line": "[a\nb = 1",
    "header-empty": "[]",
    "header-empty-blank": "[ ]",
    "header-dot": "[.]",
    "header-dot-last": "[a.]",
    "header-two-dots": "[a..b]",
    "header-junk-after": "[a] b",
    "header-bracket-after": "[a]]",
    "header-of-two-words": "[a b]",
    "header-array-mixed": "[[a]\nb = 1",
    "header-array-apart": "[ [a] ]",
    "header-array-apart-close": "[[a] ]",
    "header-array-empty": "[[]]",
    "header-equals": "[a] = 1",
    "header-newline": "[a\n]",
    "array-of-tables-over-table": "[a]\n[[a]]",
    "array-of-tables-over-open": "[a.b]\n[[a]]",
    "array-of-tables-over-array": "a = []\n[[a]]",
    "array-of-tables-over-inline-array": "a = [{x = 1}]\n[[a]]",
    "array-of-tables-over-value": "a = 1\n[[a]]",
    "array-of-tables-through-array": "a = [{}]\n[[a.b]]",
    "array-of-tables-over-dotted": "a.b = 1\n[[a]]",
    "array-of-tables-nested-twice": "[[f]]\n[[f.v]]\n[f.v]",
    "array-of-tables-table-first": "[f.p]\n[[f]]",
    "value-bare-word": "a = word",
    "value-true-capital": "a = True",
    "value-false-capital": "a = FALSE",
    "value-true-cut": "a = tru",
    "value-true-more": "a = truer",
    "value-null": "a = null",
    "value-comma": "a = ,",
    "value-two": "a = 1 2",
    "value-comment": "a = # 1",
    "value-equals": "a = = 1",
    "string-open": "a = \"x",
    "string-open-line": "a = \"x\nb = \"y\"",
    "string-literal-open": "a = 'x",
    "string-literal-line": "a = 'x\ny'",
    "string-mixed-quotes": "a = 'x\"",
    "string-three-quotes": "a = \"\"\"",
    "string-multi-open": "a = \"\"\"x\"\"",
    "string-multi-literal-open": "a = '''x''",
    "string-six-quotes-end": "a = \"\"\"x\"\"\"\"\"\"",
    "string-literal-six-quotes-end": "a = '''x''''''",
    "string-literal-quote": "a = 'it's'",
    "string-escape-unknown": "a = \"\\a\"",
    "string-escape-slash": "a = \"\\/\"",
    "string-escape-x": "a = \"\\x41\"",
    "string-escape-e": "a = \"\\e\"",
    "string-escape-blank": "a = \"\\ x\"",
    "string-escape-newline": "a = \"x\\\ny\"",
    "string-escape-at-end": "a = \"\\",
    "string-escape-quote-at-end": "a = \"\\\"",
    "string-unicode-short": "a = \"\\u12\"",
    "string-unicode-short-8": "a = \"\\U0001F60\"",
    "string-unicode-not-hex": "a = \"\\u12g4\"",
    "string-unicode-surrogate": "a = \"\\uD800\"",
    "string-unicode-surrogate-pair": "a = \"\\uD83D\\uDE00\"",
    "string-unicode-too-large": "a = \"\\U00110000\"",
    "string-unicode-huge": "a = \"\\UFFFFFFFF\"",
    "string-multi-fold-text": "a = \"\"\"x\\ y\nz\"\"\"",
    "string-multi-escape-unknown": "a = \"\"\"\\q\"\"\"",
    "string-text-after": "a = \"x\" y",
    "integer-leading-zero": "a = 01",
    "integer-leading-zero-signed": "a = +01",
    "integer-leading-zeros": "a = 00",
    "integer-underscore-first": "a = _1",
    "integer-underscore-last": "a = 1_",
    "integer-underscores": "a = 1__2",
    "integer-underscore-after-zero": "a = 0_1",
    "integer-two-signs": "a = +-1",
    "integer-sign-alone": "a = +",
    "integer-sign-apart": "a = - 1",
    "integer-letters": "a = 12ab",
    "integer-hex-signed": "a = +0x1",
    "integer-hex-negative": "a = -0x1",
    "integer-hex-capital": "a = 0X1",
    "integer-hex-empty": "a = 0x",
    "integer-hex-underscore": "a = 0x_1",
    "integer-hex-underscore-last": "a = 0x1_",
    "integer-hex-letter": "a = 0xg",
    "integer-octal-digit": "a = 0o8",
    "integer-octal-capital": "a = 0O7",
    "integer-binary-digit": "a = 0b2",
    "integer-binary-capital": "a = 0B1",
    "integer-double-prefix": "a = 0x0x1",
    "float-no-fraction": "a = 1.",
    "float-no-integer": "a = .5",
    "float-no-integer-signed": "a = -.5",
    "float-point-exponent": "a = 1.e5",
    "float-no-exponent": "a = 1e",
    "float-exponent-sign": "a = 1e+",
    "float-two-points": "a = 1.2.3",
    "float-leading-zero": "a = 03.14",
    "float-underscore-at-point": "a = 1_.5",
    "float-underscore-after-point": "a = 1._5",
    "float-underscore-at-exponent": "a = 1e_5",
    "float-underscore-last": "a = 1.5_",
    "float-exponent-fraction": "a = 1e2.3",
    "float-exponent-twice": "a = 1e2e3",
    "float-inf-capital": "a = Inf",
    "float-infinity": "a = infinity",
    "float-nan-capital": "a = NaN",
    "float-sign-inf-twice": "a = ++inf",
    "float-comma": "a = 1,5",
    "time-no-seconds": "a = 07:32",
    "time-hour-24": "a = 24:00:00",
    "time-minute-60": "a = 00:60:00",
    "time-second-61": "a = 00:00:61",
    "time-one-digit": "a = 7:32:00",
    "time-fraction-empty": "a = 07:32:00.",
    "time-zone": "a = 07:32:00Z",
    "date-month-0": "a = 2020-00-01",
    "date-month-13": "a = 2020-13-01",
    "date-day-0": "a = 2020-01-00",
    "date-day-32": "a = 2020-01-32",
    "date-february-30": "a = 2020-02-30",
    "date-not-leap": "a = 2021-02-29",
    "date-not-leap-1900": "a = 1900-02-29",
    "date-april-31": "a = 2020-04-31",
    "date-short-year": "a = 987-07-05",
    "date-long-year": "a = 10000-01-01",
    "date-short-month": "a = 2020-1-01",
    "date-short-day": "a = 2020-01-1",
    "date-cut": "a = 2020-01",
    "date-slashes": "a = 2020/01/01",
    "date-open-t": "a = 2020-01-01T",
    "datetime-no-seconds": "a = 2020-01-01T07:32",
    "datetime-no-seconds-blank": "a = 2020-01-01 07:32",
    "datetime-two-blanks": "a = 2020-01-01  07:32:00",
    "datetime-hour-24": "a = 2020-01-01T24:00:00Z",
    "datetime-second-60": "a = 2016-12-31T23:59:60Z",
    "datetime-offset-hour": "a = 2020-01-01T00:00:00+24:00",
    "datetime-offset-minute": "a = 2020-01-01T00:00:00+01:60",
    "datetime-offset-short": "a = 2020-01-01T00:00:00+1:00",
    "datetime-offset-no-colon": "a = 2020-01-01T00:00:00+0100",
    "datetime-offset-cut": "a = 2020-01-01T00:00:00+01",
    "datetime-offset-blank": "a = 2020-01-01T00:00:00 +01:00",
    "datetime-two-zones": "a = 2020-01-01T00:00:00Z+01:00",
    "array-open": "a = [",
    "array-open-value": "a = [1",
    "array-open-comma": "a = [1,",
    "array-no-comma": "a = [1 2]",
    "array-two-commas": "a = [1,,2]",
    "array-comma-first": "a = [,1]",
    "array-comma-only": "a = [,]",
    "array-wrong-close": "a = [1}",
    "array-text-after": "a = [1] 2",
    "array-extra-close": "a = [1]]",
    "array-comment-swallows": "a = [1 # ]\n",
    "array-key": "a = [b = 1]",
    "array-semicolon": "a = [1; 2]",
    "inline-open": "a = {",
    "inline-open-value": "a = {b = 1",
    "inline-comma-last": "a = {b = 1,}",
    "inline-comma-first": "a = {,b = 1}",
    "inline-comma-only": "a = {,}",
    "inline-two-commas": "a = {b = 1,,c = 2}",
    "inline-no-comma": "a = {b = 1 c = 2}",
    "inline-newline": "a = {\nb = 1}",
    "inline-newline-last": "a = {b = 1\n}",
    "inline-newline-comma": "a = {b = 1,\nc = 2}",
    "inline-comment": "a = {b = 1 # c\n}",
    "inline-no-value": "a = {b}",
    "inline-no-value-equals": "a = {b = }",
    "inline-wrong-close": "a = {b = 1]",
    "inline-text-after": "a = {} b = 1",
    "inline-dotted-through-value": "a = {b = 1, b.c = 2}",
    "inline-value-over-dotted": "a = {b.c = 1, b = 2}",
    "inline-dotted-through-inline": "a = {b = {c = 1}, b.d = 2}",
    "inline-dotted-through-array": "a = {b = [], b.c = 1}",
    "inline-extended-dotted": "[t]\na = {b = 1}\na.c = 2",
    "inline-extended-header": "[t]\na = {b = 1}\n[t.a]\nc = 2",
    "inline-extended-array": "[t]\na = {b = []}\n[[t.a.b]]",
    "inline-nested-extended": "a = {b.c = 1}\n[a.b.d]",
    "control-nul": "a = \"x\x00y\"",
    "control-in-comment": "# x\x01\na = 1",
    "control-del-in-comment": "# x\x7f",
    "control-in-string": "a = \"x\x1fy\"",
    "control-del-in-string": "a = \"x\x7fy\"",
    "control-in-literal": "a = 'x\x08y'",
    "control-in-multi-line": "a = \"\"\"x\x0by\"\"\"",
    "control-in-multi-literal": "a = '''x\x0cy'''",
    "control-bare": "a = 1\x0b",
    "control-nul-alone": "\x00",
    "cr-alone": "a = 1\rb = 2",
    "cr-in-comment": "# x\ry\n",
    "cr-in-string": "a = \"x\ry\"",
    "cr-in-multi-line": "a = \"\"\"x\ry\"\"\"",
    "cr-in-literal": "a = '''x\r'''",
    "cr-at-end": "a = 1\r",
    "cr-twice": "a = 1\r\r\nb = 2",
    "unicode-blank": "a =\u00a01",
    "unicode-line-end": "a = 1\u2028b = 2",
    "byte-order-mark": "\ufeffa = 1",
    "byte-order-mark-later": "a = 1\n\ufeffb = 2",
}

# Bytes that are no UTF-8, so no text.
INVALID_BYTES = {
    "utf8-continuation": b"a = \"\x80\"",
    "utf8-cut": b"a = \"\xe2\x82\"",
    "utf8-cut-at-end": b"# \xf0\x9f\x98",
    "utf8-overlong": b"a = \"\xc0\xaf\"",
    "utf8-overlong-3": b"a = '\xe0\x80\xaf'",
    "utf8-surrogate": b"a = \"\xed\xa0\x80\"",
    "utf8-too-large": b"a = \"\xf4\x90\x80\x80\"",
    "utf8-in-comment": b"# \xff\n",
    "utf8-in-key": b"\"\xfe\" = 1",
    "utf16": b"\xff\xfea\x00=\x001\x00",
}

# tomllib accepts these: its integers have no end, and its nesting ends at Python's stack.
OVERRULED = {
    "integer-too-large": "a = 9223372036854775808",
    "integer-too-small": "a = -9223372036854775809",
    "integer-hex-too-large": "a = 0x8000000000000000",
    "integer-huge": "a = 1" + "0" * 100,
    "depth-of-arrays": "a = " + "[" * 70 + "]" * 70,
    "depth-of-inline-tables": "a = " + "{b=" * 70 + "1" + "}" * 70,
    "depth-of-keys": ".".join("k%d" % i for i in range(70)) + " = 1",
    "depth-of-header": "[" + ".".join("k%d" % i for i in range(70)) + "]",
}


def random_scalar(rng):
    kind = rng.randrange(7)
    if kind == 0:
        return str(rng.randrange(-10**rng.randrange(1, 18), 10**rng.randrange(1, 18)))
    if kind == 1:
        return repr(rng.uniform(-1, 1) * 10.0**rng.randrange(-300, 300))
    if kind == 2:
        return rng.choice(["true", "false", "inf", "-inf", "nan"])
    if kind == 3:
        return json.dumps("".join(rng.choice("ab \t\"\\é€😀#=[]'") for _ in range(rng.randrange(12))), ensure_ascii=False)
    if kind == 4:
        return "'%s'" % "".join(rng.choice("ab \t\"\\é€😀#=[]") for _ in range(rng.randrange(12)))
    if kind == 5:
        return "\"\"\"%s\"\"\"" % "".join(rng.choice(["a", "\n", " ", "\\\n  ", "\\t", "'", "é"]) for _ in range(rng.randrange(12)))
    return "%04d-%02d-%02dT%02d:%02d:%02d%s" % (
        rng.randrange(1, 9999), rng.randrange(1, 13), rng.randrange(1, 29), rng.randrange(24), rng.randrange(60),
        rng.randrange(60), rng.choice(["", "Z", ".25", "+01:30", ".123456-11:00"]))


def random_value(rng, depth):
    kind = rng.randrange(8 if depth < 4 else 6)
    if kind == 6:
        items = [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]
        return "[%s]" % rng.choice([", ", ",\n", " ,\t# c\n"]).join(items)
    if kind == 7:
        return "{%s}" % ", ".join("k%d = %s" % (i, random_value(rng, depth + 1)) for i in range(rng.randrange(4)))
    return random_scalar(rng)


# random_statements may make a document that is not TOML (a key set twice, a header over a value): tomllib decides.
def random_statements(rng):
    lines = []
    for _ in range(rng.randrange(3, 14)):
        path = ".".join(rng.choice("abc") for _ in range(rng.randrange(1, 4)))
        kind = rng.randrange(6)
        if kind == 0:
            lines.append("[%s]" % path)
        elif kind == 1:
            lines.append("[[%s]]" % path)
        elif kind == 2:
            lines.append("%s = {%s = %s}" % (path, rng.choice(["a", "a.b"]), random_scalar(rng)))
        else:
            lines.append("%s = %s" % (path, random_value(rng, 1)))
    return "\n".join(lines) + "\n"


def random_cases():
    rng = random.Random(20260101)
    cases = {}
    for i in range(40):
        text = "".join("k%d = %s\n" % (k, random_value(rng, 0)) for k in range(12))
        cases["random-values-%02d" % i] = text
    # Most random statements clash, so draw until there are enough of each kind.
    n = {True: 0, False: 0}
    while n[True] < 60 or n[False] < 60:
        text = random_statements(rng)
        ok = expected(text.encode()) is not None
        if n[ok] < 60:
            cases["random-statements-%s-%02d" % ("ok" if ok else "bad", n[ok])] = text
            n[ok] += 1
    return cases


def moment(value):
    text = value.isoformat(timespec="microseconds") if not type(value) is datetime.date else value.isoformat()
    return text


def typed(value):
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, str):
        return ["string", value]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", "nan" if value != value else struct.pack(">d", value).hex()]
    if isinstance(value, datetime.datetime):
        return ["offset-datetime" if value.tzinfo else "local-datetime", moment(value)]
    if isinstance(value, datetime.date):
        return ["local-date", moment(value)]
    if isinstance(value, datetime.time):
        return ["local-time", moment(value)]
    if isinstance(value, list):
        return ["array", [typed(v) for v in value]]
    return ["table", [[k, typed(v)] for k, v in value.items()]]


def expected(data):
    """The typed tree, or None when tomllib refuses the bytes."""
    try:
        return typed(tomllib.loads(data.decode("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None


def files():
    out = {}
    cases = {k: v.encode() for k, v in VALID.items()}
    bad = {k: v.encode() for k, v in INVALID.items()} | INVALID_BYTES
    for name, text in random_cases().items():
        (cases if expected(text.encode()) is not None else bad)[name] = text.encode()
    for name, data in cases.items():
        tree = expected(data)
        assert tree is not None, "tomllib refuses the valid case %s" % name
        out["valid/%s.toml" % name] = data
        out["valid/%s.json" % name] = (json.dumps(tree, ensure_ascii=True) + "\n").encode()
    for name, data in bad.items():
        assert expected(data) is None, "tomllib accepts the invalid case %s" % name
        out["invalid/%s.toml" % name] = data
    for name, text in OVERRULED.items():
        assert expected(text.encode()) is not None, "tomllib refuses %s, which is no longer overruled" % name
        out["invalid/over-%s.toml" % name] = text.encode()
    return out


def main():
    want = files()
    have = {str(p.relative_to(ROOT)): p.read_bytes() for p in ROOT.rglob("*") if p.is_file()}
    if "--write" in sys.argv[1:]:
        for name in have.keys() - want.keys():
            (ROOT / name).unlink()
        for name, data in want.items():
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_bytes(data)
        have = want
    wrong = sorted(n for n in want.keys() | have.keys() if want.get(n) != have.get(n))
    for name in wrong:
        print("tests/golden/toml/%s: differs from tomllib's (toml_reference.py --write makes it anew)" % name)
    print("toml: %d valid, %d invalid cases" % (sum(n.endswith(".json") for n in want), sum(n.startswith("invalid") for n in want)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
