# SPDX-License-Identifier: MulanPSL-2.0
"""One thread per way in which Python code calls Python code, each at rest in the innermost call.

usage: shapes.py VIEW_FILE [SHAPE...]

Writes what sys._current_frames() says of all of them to VIEW_FILE.
"""

import asyncio
import contextlib
import ctypes
import functools
import gc
import importlib.util
import itertools
import os
import re
import sys
import tempfile
import threading

import _thread
import view

gate = view.Gate()
SHAPES = {}


def shape(function):
    SHAPES[function.__name__] = function
    return function


# --- depth ---


def recurse(n):
    if n > 1:
        return recurse(n - 1)
    gate.park()


@shape
def recursion_32():
    recurse(32)


@shape
def recursion_900():
    recurse(900)


@shape
def recursion_3000():
    recurse(3000)


def even(n):
    return odd(n - 1) if n else gate.park()


def odd(n):
    return even(n - 1) if n else gate.park()


@shape
def mutual_recursion():
    even(61)


# --- lines ---


@shape
def call_over_many_lines():
    def inner(*values):
        gate.park(
            values[0],
            values[1],
            *values,
        )

    return inner(
        1,
        [
            2,
            3,
        ],
        {
            "four": 4,
        },
    )


@shape
def chained_calls():
    class Chain:
        def step(self):
            return self

        def last(self):
            gate.park()

    (
        Chain()
        .step()
        .step()
        .last()
    )


@shape
def line_far_away():
    source = "def far():\n" + "\n" * 70000 + "    return park()\n" + "\n" * 300 + "far()\n"
    exec(compile(source, "far.py", "exec"), {"park": gate.park})


@shape
def lines_backwards():
    for park in [
        gate.park
    ]: park()


@shape
def in_except_and_finally():
    try:
        try:
            raise ValueError("on purpose")
        except ValueError:
            raise KeyError
    except KeyError:
        try:
            pass
        finally:
            with contextlib.suppress(OSError):
                gate.park()


# --- generators and coroutines ---


def delegate(n):
    if n:
        yield from delegate(n - 1)
    else:
        yield gate.park()


@shape
def yield_from():
    never_started = delegate(3)
    next(delegate(12))
    del never_started


@shape
def generator_in_the_middle():
    def numbers():
        for i in range(10):
            if i == 5:
                gate.park()
            yield i

    suspended = itertools.count()
    next(suspended)
    return sum(i for i in numbers())


@shape
def generator_send_and_throw():
    def waits():
        try:
            yield 1
        except KeyError:
            answer = yield 2
            gate.park(answer)

    g = waits()
    next(g)
    g.throw(KeyError("thrown"))
    g.send("answer")


@shape
def asyncio_chain():
    async def leaf():
        await asyncio.sleep(0)
        gate.park()

    async def middle(n):
        if n:
            return await middle(n - 1)
        return await leaf()

    async def start():
        waiting = asyncio.ensure_future(asyncio.sleep(1000))
        await asyncio.gather(middle(6), waiting)

    asyncio.run(start())


@shape
def asyncio_helpers():
    class Manager:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            async for _ in numbers():
                pass

    async def numbers():
        yield 0
        [await last(i) async for i in more()]

    async def more():
        yield 1

    async def last(_i):
        gate.park()

    async def start():
        async with Manager():
            await asyncio.sleep(0)

    asyncio.run(start())


@shape
def awaitable_object():
    class Awaitable:
        def __await__(self):
            gate.park()
            yield

    async def waits():
        await Awaitable()

    waits().send(None)


# --- functions without a def of their own, or with too many ---


@shape
def comprehensions():
    def last():
        return {i: i for i in [gate.park() for _ in range(1)]}

    return [{last() for _ in range(2)} for _ in range(2)]


@shape
def lambdas():
    (lambda a: (lambda b: (lambda: gate.park(a, b))())(2))(1)


def plain_decorator(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class ClassDecorator:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)


@shape
@plain_decorator
@plain_decorator
def decorated():
    @ClassDecorator
    @contextlib.contextmanager
    def manager():
        yield gate.park()

    @functools.lru_cache(maxsize=None)
    def cached(_n):
        with manager():
            pass

    functools.partial(cached, 1)()


@shape
def class_bodies():
    class Meta(type):
        def __new__(mcs, name, bases, namespace):
            return super().__new__(mcs, name, bases, namespace)

        def __call__(cls, *args):
            return super().__call__(*args)

    class Outer(metaclass=Meta):
        class Inner:
            def __init_subclass__(cls):
                gate.park()

        def __init__(self):
            class Local(self.Inner):
                pass

    Outer()


@shape
def special_methods():
    class Object:
        @property
        def value(self):
            return self[3]

        def __getitem__(self, key):
            return self < key

        def __lt__(self, other):
            return f"{self}"

        def __str__(self):
            return self.missing

        def __getattr__(self, name):
            if name == "missing":
                with self:
                    pass
            raise AttributeError(name)

        def __enter__(self):
            for _ in self:
                pass

        def __iter__(self):
            return self

        def __next__(self):
            return hash(self)

        def __hash__(self):
            gate.park()

        def __exit__(self, *_):
            pass

    Object().value


@shape
def finaliser():
    class Dies:
        def __del__(self):
            gate.park()

    dies = Dies()
    dies = None
    return dies


@shape
def executed_text():
    names = {"gate": gate}
    exec("def inner():\n    eval('outer()')\n\n\ndef outer():\n    gate.park()\n\n\ninner()", names)


@shape
def executed_with_odd_names():
    code = compile("\n\n\n(lambda: park())()", "<string with \"quotes\" \\ and\ttabs\n>", "exec")
    exec(code, {"park": gate.park})


@shape
def no_name_at_all():
    code = compile("park()", "", "exec")
    exec(code, {"park": gate.park})


@shape
def very_long_names():
    name = "long_" * 200
    code = compile("def {0}():\n park()\n{0}()".format(name), "/" + "d" * 1500, "exec")
    exec(code, {"park": gate.park})


# --- C in between ---


@shape
def c_sorted_map_filter():
    def key(item):
        return list(map(second, [item]))

    def second(item):
        return list(filter(third, [item]))

    def third(item):
        return functools.reduce(fourth, [item, item])

    def fourth(_a, _b):
        return max([1, 2], key=lambda _: gate.park())

    sorted([3, 2, 1], key=key)


@shape
def c_re_sub():
    re.sub("b+", lambda match: gate.park(match), "abba")


@shape
def c_ctypes_callback():
    libc = ctypes.CDLL(None)
    pointer = ctypes.POINTER(ctypes.c_int)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)

    def compare(a, b):
        gate.park()
        return a[0] - b[0]

    numbers = (ctypes.c_int * 4)(4, 3, 2, 1)
    libc.qsort(numbers, 4, ctypes.sizeof(ctypes.c_int), prototype(compare))


@shape
def c_collector():
    """A finaliser that the collector calls."""

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            gate.park()

    Cycle()
    gc.collect()


@shape
def c_import():
    """A module in a file with blanks in its name that is at rest while it is imported."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "module with blanks.py")
        with open(path, "w") as f:
            f.write("import view\n\n\ndef loaded():\n    view.shared_gate.park()\n\n\nloaded()\n")
        view.shared_gate = gate
        sys.path.append(folder)
        __import__("module with blanks")


@shape
def c_trace_function():
    def trace(_frame, event, _arg):
        if event == "call":
            sys.settrace(None)
            gate.park()

    def traced():
        pass

    sys.settrace(trace)
    traced()


# --- names of the world ---


def named(function, folder):
    """Calls a function of this name in a file below a folder of that name."""
    with tempfile.TemporaryDirectory() as base:
        path = os.path.join(base, folder, "module.py")
        os.mkdir(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as f:
            f.write("def {0}(park):\n    return park()\n".format(function))
        spec = importlib.util.spec_from_file_location("named", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        getattr(module, function)(gate.park)


@shape
def chinese():
    named("训练一步", "数据 加载")


@shape
def cyrillic():
    named("обучение", "Модель")


@shape
def latin():
    named("größe_naïve_été", "ÿ-dossier-é")


@shape
def emoji():
    named("plain", "🚀 rocket 𝒳")


@shape
def wide_function_name():
    named("𐐀𐐁名前", "ok")


@shape
def renamed_code():
    """A name that no source could have."""

    def plain():
        gate.park()

    if hasattr(plain.__code__, "replace"):
        more = {"co_qualname": "💥.\ud800<x>"} if hasattr(plain.__code__, "co_qualname") else {}
        plain.__code__ = plain.__code__.replace(co_name="💥 bang", **more)
    plain()


# --- the whole ---


def bare_thread():
    """One that the threading module does not know."""
    gate.park()


def in_thread(function):
    function()


def main():
    wanted = sys.argv[2:] or list(SHAPES)
    sys.setrecursionlimit(6000)
    threading.stack_size(256 << 20)
    for name in wanted:
        threading.Thread(target=in_thread, args=(SHAPES[name],), name=name, daemon=True).start()
    threading.stack_size(0)
    _thread.start_new_thread(bare_thread, ())
    threading.Thread(target=witness, args=(len(wanted) + 2,), name="witness", daemon=True).start()
    gate.park()


def witness(expected):
    found = gate.still(expected, leave_out=(threading.get_ident(),))
    view.write(sys.argv[1], {"threads": found})
    view.wait_for_the_end()


if __name__ == "__main__":
    main()
