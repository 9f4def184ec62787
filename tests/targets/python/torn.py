# SPDX-License-Identifier: MulanPSL-2.0
"""Stacks that change as fast as Python can, made so that a mixture of two of them can be told.

usage: torn.py [SECONDS]

Prints, before it starts, one line for every call that this file can make: function that calls,
its line, function that is called; then "ready". A stack in which a line is followed by a function
that is not called there never existed. Four threads: chains of equal depth, a stair, generators
that are resumed by different functions, and calls through C.
"""

import ast
import sys
import threading
import time

import view

END = time.time() + (float(sys.argv[1]) if len(sys.argv) > 1 else 1e9)

# --- a, b, c, d and x, y, z, w at the same depths ---


def chains():
    while time.time() < END:
        a()
        x()


def a():
    b()
    b()


def b():
    c()
    y1()
    c()


def c():
    d()
    d()


def d():
    pass


def x():
    y()
    y()


def y():
    z()
    c1()
    z()


def z():
    w()
    w()


def w():
    pass


def y1():
    pass


def c1():
    pass


# --- a stair: from depth 1 to 9 and back ---


def stair():
    while time.time() < END:
        s1()
        s5()
        s9()


def s1():
    s2()


def s2():
    s3()
    s9()


def s3():
    s4()


def s4():
    s5()
    s9()


def s5():
    s6()


def s6():
    s7()
    s9()


def s7():
    s8()


def s8():
    s9()


def s9():
    pass


# --- one generator, resumed here and there ---


def resumers():
    while time.time() < END:
        g = generator()
        first_resumer(g)
        second_resumer(g)
        third_resumer(g)


def first_resumer(g):
    g.send(None)  # calls: generator


def second_resumer(g):
    g.send(None)  # calls: generator


def third_resumer(g):
    for _ in g:  # calls: generator
        pass


def generator():
    in_first()
    yield 1
    in_second()
    yield 2
    yield from inner_generator()


def inner_generator():
    in_third()
    yield 3


def in_first():
    pass


def in_second():
    pass


def in_third():
    pass


# --- through C and back ---


def through_c():
    numbers = [3, 1, 2]
    while time.time() < END:
        sorted(numbers, key=by_key)  # calls: by_key
        list(map(by_map, numbers))  # calls: by_map


def by_key(n):
    return p(n)


def by_map(n):
    return q(n)


def p(n):
    return last_p(n)


def q(n):
    return last_q(n)


def last_p(n):
    return n


def last_q(n):
    return n


# --- what can call what ---

PAIRS = [  # true of whole stacks: the second is never above the first
    ("first_resumer", "in_second"),
    ("first_resumer", "in_third"),
    ("first_resumer", "inner_generator"),
    ("second_resumer", "in_first"),
    ("second_resumer", "in_third"),
    ("second_resumer", "inner_generator"),
    ("third_resumer", "in_first"),
    ("third_resumer", "in_second"),
]


def edges():
    """(caller, line, called) of every call of a function of this file."""
    with open(__file__, encoding="utf-8") as f:
        text = f.read()
    module = ast.parse(text)
    known = {n.name for n in module.body if isinstance(n, ast.FunctionDef)}
    said = {
        number: line.partition("# calls: ")[2].split()
        for number, line in enumerate(text.splitlines(), 1)
        if "# calls: " in line
    }
    for function in module.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in known:
                yield function.name, node.lineno, node.func.id
        last = max(n.lineno for n in ast.walk(function) if hasattr(n, "lineno"))
        for number, names in said.items():
            if function.lineno <= number <= last:
                for name in names:
                    yield function.name, number, name


def main():
    for caller, line, called in sorted(set(edges())):
        print("edge", caller, line, called)
    for below, above in PAIRS:
        print("never", below, above)
    threads = [
        threading.Thread(target=f, name=f.__name__, daemon=True)
        for f in (chains, stair, resumers, through_c)
    ]
    for t in threads:
        t.start()
    print("ready", flush=True)
    if len(sys.argv) > 1:
        for t in threads:
            t.join()
    else:
        view.wait_for_the_end()


if __name__ == "__main__":
    main()
