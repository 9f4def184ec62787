# SPDX-License-Identifier: MulanPSL-2.0
"""Checks hijacker and the table of versions in this interpreter."""

import asyncio
import functools
import importlib
import inspect
import os
import pickle
import sys
import tempfile
import threading
import traceback

from msmemscope import hijacker
from msmemscope.hijacker import _targets, _versions, hijack, release

HERE = tempfile.mkdtemp()
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
SUBJECT = '''
import functools

def add(a, b=2, *, c=3):
    """Adds."""
    return a + b + c

def fail():
    raise LookupError("inside")

def steps(n):
    got = []
    for i in range(n):
        got.append((yield i))
    return got

async def waits(a):
    return a + 1

async def counts(n):
    for i in range(n):
        yield i

class Base:
    def inherited(self, a):
        return ("base", a)

    @classmethod
    def inherited_class(cls, a):
        return (cls.__name__, a)

    @staticmethod
    def inherited_static(a):
        return ("static", a)

class Thing(Base):
    number = 5

    def __init__(self, n=0):
        self.n = n

    def method(self, a):
        """Of a thing."""
        return (self.n, a)

    @staticmethod
    def static(a):
        return ("static", a)

    @classmethod
    def klass(cls, a):
        return (cls.__name__, a)

    @property
    def prop(self):
        return self.n

    class Inner:
        def deep(self):
            return "deep"

class Mixin:
    pass

class Callable:
    def __call__(self, a):
        return ("called", a)

class Mixed(Mixin, Callable):
    pass

partial = functools.partial(add, 1)
'''
count = 0


def subject():
    """A module that nobody has seen."""
    global count
    count += 1
    name = f"subject_{count}"
    with open(os.path.join(HERE, name + ".py"), "w") as f:
        f.write(SUBJECT)
    importlib.invalidate_caches()
    return name


def noted(notes, mark="x"):
    def pre(*args, **kwargs):
        notes.append((mark, args, kwargs))
        return args, kwargs

    def post(ret, *args, **kwargs):
        notes.append((mark, ret, args))
        return ret

    return {"pre": pre, "post": post}


def check_function_and_restore():
    m = importlib.import_module(subject())
    before, notes = dict(vars(m)), []
    handle = hijack(m.__name__, None, "add", **noted(notes))
    assert m.add is not before["add"]
    assert m.add(1, c=5) == 8
    assert notes == [("x", (1,), {"c": 5}), ("x", 8, (1,))]
    assert inspect.signature(m.add) == inspect.signature(before["add"])
    assert (m.add.__name__, m.add.__doc__, m.add.__wrapped__) == ("add", "Adds.", before["add"])
    release(handle)
    assert dict(vars(m)) == before and m.add is before["add"]
    release(handle)


def check_imported_later():
    name, notes = subject(), []
    handle = hijack(name, "Thing", "method", **noted(notes))
    assert name not in sys.modules
    m = importlib.import_module(name)
    assert m.Thing(4).method(2) == (4, 2) and len(notes) == 2
    release(handle)
    assert m.Thing(4).method(2) == (4, 2) and len(notes) == 2
    released = hijack(subject(), None, "add")
    release(released)


def check_hooks_may_change_things():
    m = importlib.import_module(subject())
    handle = hijack(
        m.__name__,
        None,
        "add",
        pre=lambda a, b=2, c=3: ((a * 10,), {"c": c}),
        post=lambda ret, *a, **k: -ret,
    )
    assert m.add(1, c=1) == -(10 + 2 + 1)
    release(handle)


def check_priorities():
    m = importlib.import_module(subject())
    notes = []
    for priority, mark in ((300, "late"), (None, "middle"), (5, "early")):
        more = {} if priority is None else {"priority": priority}
        hijack(m.__name__, None, "add", **noted(notes, mark), **more)
    m.add(1)
    assert [n[0] for n in notes] == ["early", "middle", "late"] * 2
    hijacker.release_all()
    assert not hasattr(m.add, "__wrapped__")


def check_every_kind_of_method():
    m = importlib.import_module(subject())
    kept = {c: dict(vars(c)) for c in (m.Thing, m.Base, m.Mixin, m.Thing.Inner)}
    notes = []
    for cls, name in (
        ("Thing", "method"),
        ("Thing", "static"),
        ("Thing", "klass"),
        ("Thing", "inherited"),
        ("Thing", "inherited_class"),
        ("Thing", "inherited_static"),
        ("Thing.Inner", "deep"),
    ):
        hijack(m.__name__, cls, name, post=lambda ret, *a, **k: notes.append(ret) or ret)
    thing = m.Thing(7)
    assert thing.method(1) == (7, 1) and m.Thing.method(thing, 2) == (7, 2)
    assert m.Thing.static(3) == thing.static(3) == ("static", 3)
    assert m.Thing.klass(4) == thing.klass(4) == ("Thing", 4)
    assert thing.inherited(5) == ("base", 5)
    assert m.Thing.inherited_class(6) == thing.inherited_class(6) == ("Thing", 6)
    assert m.Thing.inherited_static(7) == ("static", 7)
    assert m.Thing.Inner().deep() == "deep"
    assert len(notes) == 11, notes
    assert m.Base().inherited(1) == ("base", 1) and len(notes) == 11
    assert isinstance(vars(m.Thing)["klass"], classmethod)
    assert isinstance(vars(m.Thing)["static"], staticmethod)
    assert inspect.signature(m.Thing.inherited) == inspect.signature(m.Base.inherited)
    hijacker.release_all()
    assert kept == {c: dict(vars(c)) for c in kept}


def check_what_is_not_a_function_stays():
    m = importlib.import_module(subject())
    before = dict(vars(m.Thing))
    for cls, name in (
        ("Thing", "prop"),
        ("Thing", "number"),
        ("Thing", "missing"),
        ("Missing", "method"),
        (None, "Thing"),
        (None, "missing"),
        ("add", "x"),
    ):
        hijack(m.__name__, cls, name)
    assert dict(vars(m.Thing)) == before
    hijacker.release_all()
    assert dict(vars(m.Thing)) == before


def check_callable_object():
    m = importlib.import_module(subject())
    notes, before = [], m.partial
    handle = hijack(m.__name__, None, "partial", **noted(notes))
    assert m.partial(2, c=0) == 3 and len(notes) == 2
    release(handle)
    assert m.partial is before


def check_mixin():
    m = importlib.import_module(subject())
    key = (m.__name__, "Mixin", "__call__")
    notes = []
    existing = m.Mixed()
    hook = _targets.Functions(None, lambda ret, *a: notes.append(ret) or ret, 100, "x")
    handle = _targets.add(key, hook, mixin=True)
    assert existing(3) == ("called", 3) and notes == [("called", 3)]
    release(handle)
    assert "__call__" not in vars(m.Mixin) and existing(4) == ("called", 4) and len(notes) == 1


def check_exceptions_pass():
    m = importlib.import_module(subject())
    notes = []
    handle = hijack(m.__name__, None, "fail", **noted(notes))
    try:
        m.fail()
    except LookupError as why:
        text = "".join(traceback.format_exception(type(why), why, why.__traceback__))
        assert why.args == ("inside",) and why.__cause__ is None and why.__context__ is None
        assert "in fail" in text and text.count("msmemscope/hijacker/") == 1, text
    else:
        raise AssertionError("passed")
    assert len(notes) == 1
    release(handle)


def check_hooks_that_fail():
    m = importlib.import_module(subject())

    def bad(*args, **kwargs):
        raise OSError("of the hook")

    hijack(m.__name__, None, "add", pre=bad, post=bad)
    hijack(m.__name__, None, "add", pre=lambda *a, **k: None)
    assert m.add(1) == 6 and m.add(1, 1) == 5
    hijacker.release_all()


def check_imported_by_name():
    """Both names of a function hooked, before and after the second was made."""
    for late in (False, True):
        first, second = subject(), subject()
        with open(os.path.join(HERE, second + ".py"), "w") as f:
            f.write(f"from {first} import add\n\ndef use():\n    return add(1)\n")
        if late:
            importlib.import_module(second)
        calls = []

        def count_calls(ret, *args, **kwargs):
            calls.append(ret)
            return ret

        handles = [hijack(name, None, "add", post=count_calls) for name in (first, second)]
        one, two = importlib.import_module(first), importlib.import_module(second)
        original = one.add.__wrapped__
        assert two.use() == 6 and one.add(1) == 6 and calls == [6, 6]
        release(handles[0])
        assert one.add is original
        assert two.use() == 6 and calls == [6, 6, 6]
        release(handles[1])
        assert two.add is original and one.add is original
        assert two.use() == 6 and calls == [6, 6, 6]


def check_same_hook_twice():
    m = importlib.import_module(subject())
    calls = []

    def post(ret, *args, **kwargs):
        calls.append(ret)
        return ret

    one = hijack(m.__name__, None, "add", post=post)
    two = hijack(m.__name__, None, "add", post=post)
    m.add(1)
    assert one is two and calls == [6]
    release(one)
    assert not hasattr(m.add, "__wrapped__")


def check_kept_wrapper_works_again():
    """Somebody kept the wrapper: inert when released, at work when hooked again."""
    m = importlib.import_module(subject())
    calls = []

    def post(ret, *args, **kwargs):
        calls.append(ret)
        return ret

    handle = hijack(m.__name__, "Thing", "method", post=post)
    kept = m.Thing(1).method
    release(handle)
    assert kept(2) == (1, 2) and not calls
    handle = hijack(m.__name__, "Thing", "method", post=post)
    assert kept(2) == (1, 2) and calls == [(1, 2)]
    release(handle)


def check_somebody_wraps_us():
    m = importlib.import_module(subject())
    calls = []

    def post(ret, *args, **kwargs):
        calls.append(ret)
        return ret

    handle = hijack(m.__name__, None, "add", post=post)
    ours = m.add

    def theirs(*args, **kwargs):
        return ours(*args, **kwargs) + 100

    theirs.__wrapped__ = ours
    m.add = theirs
    release(handle)
    assert m.add is theirs and m.add(1) == 106 and not calls
    handle = hijack(m.__name__, None, "add", post=post)
    assert m.add is theirs and m.add(1) == 106 and calls == [6]
    release(handle)


def check_somebody_wraps_us_and_is_imported_by_name():
    first, second = subject(), subject()
    with open(os.path.join(HERE, second + ".py"), "w") as f:
        f.write(f"from {first} import add\n")
    one = importlib.import_module(first)
    handles = [hijack(first, None, "add", pre=lambda *a, **k: (a, k))]
    ours = one.add

    @functools.wraps(ours)
    def theirs(*args, **kwargs):
        return ours(*args, **kwargs) + 100

    one.add = theirs
    two = importlib.import_module(second)
    handles.append(hijack(second, None, "add", pre=lambda *a, **k: (a, k)))
    assert two.add(1) == 106
    for handle in handles:
        release(handle)
    assert one.add is theirs and two.add is theirs


def check_reload():
    m = importlib.import_module(subject())
    handle = hijack(m.__name__, "Thing", "method", pre=lambda *a, **k: (a, k))
    importlib.reload(m)
    fresh = vars(m.Thing)["method"]
    release(handle)
    assert vars(m.Thing)["method"] is fresh
    handle = hijack(m.__name__, "Thing", "method", pre=lambda *a, **k: (a, k))
    assert vars(m.Thing)["method"] is not fresh
    release(handle)
    assert vars(m.Thing)["method"] is fresh


class Steps(_targets.Functions):
    """Notes when it is in force."""

    per_step = True

    def __init__(self):
        super().__init__(None, None, 100, "steps")
        self.identity, self.notes, self.inside = None, [], False

    def enter(self, args, kwargs):
        self.inside = True
        return args, kwargs, None

    def leave(self, token, ok):
        self.inside = False
        self.notes.append(ok)


def check_generators():
    m = importlib.import_module(subject())
    hook = Steps()
    handle = _targets.add((m.__name__, None, "steps"), hook)
    assert inspect.isgeneratorfunction(m.steps)
    it = m.steps(2)
    assert next(it) == 0 and not hook.inside and it.send("a") == 1
    try:
        it.send("b")
    except StopIteration as end:
        assert end.value == ["a", "b"]
    assert hook.notes == [True] * 3
    it = m.steps(5)
    next(it)
    it.close()
    it = m.steps(5)
    next(it)
    try:
        it.throw(ZeroDivisionError("thrown"))
    except ZeroDivisionError:
        assert hook.notes[-1] is False
    release(handle)


def check_coroutines():
    m = importlib.import_module(subject())
    hook, seen = Steps(), []

    async def body(a):
        seen.append(hook.inside)
        await asyncio.sleep(0.01)
        seen.append(hook.inside)
        return a

    async def fail():
        await asyncio.sleep(0)
        raise KeyError("late")

    m.waits, m.breaks = body, fail
    _targets.add((m.__name__, None, "waits"), hook)
    _targets.add((m.__name__, None, "breaks"), hook)
    _targets.add((m.__name__, None, "counts"), hook)

    async def elsewhere():
        for _ in range(5):
            seen.append(("elsewhere", hook.inside))
            await asyncio.sleep(0.001)

    async def run():
        result = await asyncio.gather(m.waits(3), elsewhere())
        try:
            await m.breaks()
        except KeyError as why:
            assert why.args == ("late",) and hook.notes[-1] is False
        task = asyncio.ensure_future(m.waits(1))
        await asyncio.sleep(0.001)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        items = [i async for i in m.counts(3)]
        async for _ in m.counts(9):
            break
        return result[0], items

    assert inspect.iscoroutinefunction(m.waits) and inspect.isasyncgenfunction(m.counts)
    assert asyncio.run(run()) == (3, [0, 1, 2])
    assert seen[0] is True and True in seen[1:]
    assert all(not s[1] for s in seen if isinstance(s, tuple)) and not hook.inside
    hijacker.release_all()
    assert m.waits is body


def check_threads_hook_and_call():
    m = importlib.import_module(subject())
    original, stop, wrong = m.add, [], []

    def call():
        while not stop:
            if m.add(1) != 6:
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(2)]
    for thread in callers:
        thread.start()
    for _ in range(300):
        release(hijack(m.__name__, None, "add", pre=lambda *a, **k: (a, k)))
    stop.append(1)
    for thread in callers:
        thread.join()
    assert not wrong and m.add is original


def check_pickled_by_value():
    m = importlib.import_module(subject())
    handle = hijack(m.__name__, None, "add", pre=lambda *a, **k: (a, k))
    target = m.add.__msmemscope_target__
    assert target.hooks and not pickle.loads(pickle.dumps(target)).hooks
    assert pickle.loads(pickle.dumps(m.add)) is m.add
    release(handle)


def check_versions():
    assert _versions.parse("2.6.0+cpu") == (2, 6, 0) and _versions.parse("2.6") == (2, 6, 0)
    assert _versions.parse("0.11.0rc1.dev3") == (0, 11, 0) and _versions.parse("x") == (0, 0, 0)
    assert _versions.parse("2.10.1a0+git12") == (2, 10, 1)
    keys = ["2.6+", "2.6-2.9", "2.10+", "2.8.1", "*"]
    for version, expected in (
        ("2.5.1", ["*"]),
        ("2.6.0", ["2.6+", "2.6-2.9", "*"]),
        ("2.9.9", ["2.6+", "2.6-2.9", "*"]),
        ("2.10.0+cu126", ["2.6+", "2.10+", "*"]),
        ("3.0", ["2.6+", "2.10+", "*"]),
        ("2.8.1", ["2.8.1"]),
        ("2.8.1+x", ["2.8.1"]),
    ):
        assert _versions.matching(keys, version) == expected, version


def main():
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            check()
            assert not _targets._handles, name
            print(name)


main()
