# SPDX-License-Identifier: BSD-2-Clause
"""Generates the inputs of the programs that bench/programs runs: a file for each, about a second
of work at scale 1. They are the same in every run."""
import os
import random

PYTHON = """\
import sys
kept = []
for turn in range({n}):
    words = [str(i * turn) * (i % 7) for i in range(9000)]
    table = {{word: [i, {{i: word}}] for i, word in enumerate(words)}}
    kept.append(sorted(table)[::3])
    if len(kept) > 9:
        del kept[::2]
"""

SQLITE = """\
import sqlite3
base = sqlite3.connect(":memory:")
base.execute("create table a (id integer primary key, name text, n integer)")
base.execute("create index names on a (name)")
for turn in range({n}):
    rows = [(f"{{turn}}-{{i * 7919 % 10007}}", i * turn % 997) for i in range(4000)]
    base.executemany("insert into a (name, n) values (?, ?)", rows)
    base.execute("select n, count(*), group_concat(name) from a group by n").fetchall()
    base.execute("delete from a where n % 5 = ?", (turn % 5,))
"""

NUMPY = """\
import numpy
kept = []
for turn in range({n}):
    a = numpy.arange(20000 + 7919 * (turn % 40), dtype=float)
    b = numpy.sqrt(a * a + a / 3) + a[::-1] * 2
    kept.append(numpy.concatenate((b, numpy.cumsum(b))))
    del kept[:len(kept) - turn % 9]
"""

RUBY = """\
kept = []
{n}.times do |turn|
  words = (0...6000).map {{ |i| "#{{turn}}-#{{i * turn % 7919}}" * (i % 5 + 1) }}
  table = words.each_with_index.to_h {{ |word, i| [word, [i, word[0, 8].upcase, {{i => turn}}]] }}
  kept << table.keys.sort.join(",").split(",").each_slice(3).map(&:first)
  kept.shift(4) if kept.size > 9
end
"""

# Strings of up to 40 characters, most of them short-lived: after the string stress test in
# SamSaffron's allocator_bench, with its parameters.
RUBY_STRESS = """\
NUMBERS = Random.new(1)
$kept = []

def churn(n, n_kept, most)
  list = []
  while n > 0 || n_kept > 0
    if n_kept == 0 || (NUMBERS.rand < 0.5 && n > 0)
      list << " " * (10 * NUMBERS.rand(5))
      n -= 1
      list = [" " * 1000 * 100] if list.size > most
    else
      $kept << " " * (10 * NUMBERS.rand(5))
      n_kept -= 1
    end
  end
end

threads = ARGV[0].to_i
parts = [{n}, {n} / 20, {n} / 60].map {{ |all| all / threads }}
Array.new(threads) {{ Thread.new {{ churn(*parts) }} }}.each(&:join)
"""

LUA = """\
local kept = {{}}
for turn = 1, {n} do
  local words, table_of = {{}}, {{}}
  for i = 1, 6000 do
    words[i] = (turn .. "-" .. i * turn % 7919):rep(i % 5 + 1)
  end
  for i, word in ipairs(words) do
    table_of[word] = {{ i, word:sub(1, 8):upper(), function() return word, {{ turn = i }} end }}
  end
  table.sort(words)
  kept[#kept + 1] = table.concat(words, ",")
  if #kept > 9 then
    table.remove(kept, turn % 9 + 1)
  end
end
"""

PERL = """\
my @kept;
for my $turn (1 .. {n}) {{
    my %table = map {{ ("key$_" x ($_ % 5 + 1)) => [$_, "$turn:$_"] }} 1 .. 6000;
    push @kept, join ",", map {{ $table{{$_}}[1] }} sort keys %table;
    splice @kept, 0, 5 if @kept > 9;
}}
"""

C_FUNCTION = """\
int f{i}(int *a, int n)
{{
    int s = {i};

    for (int i = 0; i < n; i++) {{
        if (a[i] % {a} == 0)
            s += a[i] * {i};
        else
            a[i] ^= s << {b};
    }}
    return s;
}}
"""

CXX = """\
#include <map>
#include <memory>
#include <string>
#include <vector>
{more}
template <int N> struct node {{
    std::map<std::string, std::vector<std::unique_ptr<node<N - 1>>>> below;
    void add(const std::string &key) {{ below[key].push_back(std::make_unique<node<N - 1>>()); }}
}};
template <> struct node<0> {{}};
void all(node<{n}> &top) {{ top.add("a"); }}
{uses}
"""

# Molecular dynamics of a melting crystal: neighbour lists are rebuilt again and again.
LAMMPS = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 4 delay 0 check no
fix 1 all nve
run {steps}
"""


def times(scale, n):
    return max(1, round(scale * n))


def c_file(scale):
    functions = range(times(scale, 150))
    return "".join(C_FUNCTION.format(i=i, a=i % 9 + 2, b=i % 13) for i in functions)


def cxx_file(scale):
    more = "#include <functional>\n#include <regex>\n#include <unordered_map>" if scale >= 0.5 else ""
    depth = times(scale, 7)
    uses = "\n".join(f"void use{i}(node<{i}> &at) {{ at.add(\"b\"); }}" for i in range(1, depth))
    return CXX.format(more=more, n=depth, uses=uses)


def json_file(scale):
    lines = (f'{{"number":{i * 7919 % 1000003},"text":"text {i}","list":[{i},{{"deep":{i}}}]}}'
             for i in range(times(scale, 30000)))
    return "[" + ",\n".join(lines) + "]\n"


def xml_file(scale):
    lines = (f'<entry n="{i}" name="entry {i % 97}"><title>text {i * 7919 % 1000003}</title>'
             f'<list><item>{i}</item><item deep="{i % 5}"/></list></entry>'
             for i in range(times(scale, 90000)))
    return "<all>\n" + "\n".join(lines) + "\n</all>\n"


def smt_problem(numbers, n):
    """Clauses of comparisons of sums, and bits whose product is given."""
    names = [f"x{i}" for i in range(n)]
    factors = numbers.choice([(251, 241), (239, 233), (229, 227)])
    yield from (f"(declare-const {name} Int)\n(assert (<= 0 {name} 1000))" for name in names)
    for _ in range(4 * n):
        sums = [f"(+ {numbers.randint(-90, 90)} (* {numbers.randint(2, 9)} {numbers.choice(names)}))"
                for _ in range(6)]
        yield "(assert (or {}))".format(" ".join(map("(<= {} {})".format, sums[::2], sums[1::2])))
    yield "(declare-const a (_ BitVec 16))\n(declare-const b (_ BitVec 16))"
    yield f"(assert (= (bvmul a b) (_ bv{factors[0] * factors[1]} 16)))"
    yield "(assert (and (bvult #x0001 a) (bvult a #x0100) (bvult #x0001 b) (bvult b #x0100)))"
    yield "(check-sat)\n(reset)"


def smt_file(scale):
    numbers = random.Random(7)
    return "\n".join(line for _ in range(times(scale, 12)) for line in smt_problem(numbers, 20))


def write_all(directory, scale):
    files = {
        "script.py": PYTHON.format(n=times(scale, 130)),
        "tables.py": SQLITE.format(n=times(scale, 35)),
        "arrays.py": NUMPY.format(n=times(scale, 400)),
        "script.lua": LUA.format(n=times(scale, 140)),
        "script.rb": RUBY.format(n=times(scale, 60)),
        "stress.rb": RUBY_STRESS.format(n=times(scale, 12e6)),
        "script.pl": PERL.format(n=times(scale, 70)),
        "generated.c": c_file(scale),
        "generated.cc": cxx_file(scale),
        "data.json": json_file(scale),
        "data.xml": xml_file(scale),
        "problem.smt2": smt_file(scale),
        "melt.in": LAMMPS.format(cells=10, steps=times(scale, 200)),
    }
    os.makedirs(directory)
    for name, text in files.items():
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
