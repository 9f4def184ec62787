# SPDX-License-Identifier: MulanPSL-2.0
"""Checks when_imported() in this interpreter, with modules made up in a directory of its own."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import tempfile
import threading
import time
import zipfile

from msmemscope import _imports
from msmemscope._imports import when_imported

HERE = tempfile.mkdtemp()
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True


def module(name, text="value = 1\n"):
    path = os.path.join(HERE, *name.split("."))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".py", "w") as f:
        f.write(text)
    importlib.invalidate_caches()


def package(name, text=""):
    os.makedirs(os.path.join(HERE, *name.split(".")), exist_ok=True)
    module(name + ".__init__", text)


class Told(list):
    """A callback that notes what it was told, and what the module held then."""

    def __init__(self, name):
        super().__init__()
        self.handle = when_imported(name, self)

    def __call__(self, found):
        assert found is sys.modules[self.handle.name] if hasattr(self, "handle") else True
        self.append(found)


def is_in():
    return any(finder is _imports._finder for finder in sys.meta_path)


def check_later_import():
    module("later")
    told = Told("later")
    assert is_in() and not told and "later" not in sys.modules
    import later

    assert told == [later] and later.value == 1
    assert not is_in() and not _imports._waiting and not _imports._executing


def check_imported_already():
    import json

    told = []
    when_imported("json", told.append)
    assert told == [json] and not is_in()


def check_loader_is_its_own():
    module("plainly")
    expected = importlib.util.find_spec("plainly")
    told = Told("plainly")
    probed = importlib.util.find_spec("plainly")
    assert isinstance(probed.loader, importlib.machinery.SourceFileLoader)
    assert probed.loader.get_source("plainly") == "value = 1\n"
    assert probed.origin == expected.origin and not told
    import plainly

    assert type(plainly.__loader__) is importlib.machinery.SourceFileLoader
    assert plainly.__spec__.loader is plainly.__loader__ and told == [plainly]
    assert plainly.__spec__.cached == expected.cached
    assert type(plainly.__spec__) is importlib.machinery.ModuleSpec


def check_submodule_and_attribute():
    package("outer")
    module("outer.inner")
    told = Told("outer.inner")
    import outer

    assert not told and is_in()
    import outer.inner

    assert told == [outer.inner]


def check_several_in_order():
    module("several")
    order = []
    for n in range(3):
        when_imported("several", lambda m, n=n: order.append(n))
    import several  # noqa: F401

    assert order == [0, 1, 2]


def check_cancel():
    module("cancelled")
    told = Told("cancelled")
    told.handle.cancel()
    told.handle.cancel()
    assert not is_in()
    import cancelled  # noqa: F401

    assert not told


def check_cancel_inside_another():
    module("inside")
    told = []
    handles = []
    handles.append(when_imported("inside", lambda m: handles[1].cancel()))
    handles.append(when_imported("inside", told.append))
    import inside  # noqa: F401

    assert not told and not is_in()


def check_callback_fails():
    module("fails")
    told = []

    def bad(m):
        raise RuntimeError("of the callback")

    when_imported("fails", bad)
    when_imported("fails", told.append)
    import fails

    assert told == [fails]


def check_import_fails_and_is_retried():
    module("broken", "raise KeyError('first')\n")
    told = Told("broken")
    for _ in range(2):
        try:
            import broken
        except KeyError as why:
            assert why.args == ("first",)
        else:
            raise AssertionError("imported")
        assert not told and is_in() and not _imports._executing
    module("broken", "value = 'mended'\n")
    import broken

    assert told == [broken] and broken.value == "mended" and not is_in()


def check_missing():
    told = Told("there_is_no_such_module")
    try:
        import there_is_no_such_module  # noqa: F401
    except ModuleNotFoundError as why:
        assert why.name == "there_is_no_such_module"
    assert importlib.util.find_spec("there_is_no_such_module") is None
    told.handle.cancel()


def check_cycle():
    module("cycle_a", "import cycle_b\nlast = 1\n")
    module("cycle_b", "import cycle_a\nlast = 1\n")
    seen = []
    when_imported("cycle_a", lambda m: seen.append(("a", m.last)))
    when_imported("cycle_b", lambda m: seen.append(("b", m.last)))
    import cycle_a  # noqa: F401

    assert seen == [("b", 1), ("a", 1)], seen


def check_registered_while_importing():
    module(
        "under_way",
        "from msmemscope._imports import when_imported\n"
        "told = []\n"
        "when_imported('under_way', lambda m: told.append(m.last))\n"
        "assert not told\n"
        "import colorsys, sndhdr_is_not_there_maybe\n"
        "last = 2\n",
    )
    module("sndhdr_is_not_there_maybe")
    import under_way

    assert under_way.told == [2] and not is_in()
    assert type(under_way.__spec__) is importlib.machinery.ModuleSpec


def check_registered_by_another_thread():
    module("slowly", "import time\ntime.sleep(0.2)\nlast = 3\n")
    told = []
    importer = threading.Thread(target=lambda: __import__("slowly"))
    importer.start()
    while "slowly" not in sys.modules:
        time.sleep(0.001)
    when_imported("slowly", lambda m: told.append(m.last))
    assert not told
    importer.join()
    assert told == [3], told


def check_namespace_package():
    os.makedirs(os.path.join(HERE, "spacious", "room"))
    module("spacious.room.thing")
    told = Told("spacious")
    spec = importlib.util.find_spec("spacious")
    assert spec.submodule_search_locations
    import spacious

    assert told == [spacious] and spacious.__path__
    assert type(spacious.__spec__) is importlib.machinery.ModuleSpec
    assert getattr(spacious, "__file__", None) is None
    import spacious.room.thing

    assert spacious.room.thing.value == 1 and not is_in()


def check_zip():
    archive = os.path.join(HERE, "archive.zip")
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("zipped/__init__.py", "value = 5\n")
        z.writestr("zipped/part.py", "value = 6\n")
        z.writestr("zipped/data.txt", "data")
    sys.path.insert(0, archive)
    package_told, told = Told("zipped"), Told("zipped.part")
    import pkgutil

    import zipped.part

    assert package_told == [zipped] and told == [zipped.part] and zipped.part.value == 6
    assert type(zipped.__loader__).__name__ == "zipimporter"
    assert pkgutil.get_data("zipped", "data.txt") == b"data"


def check_frozen_and_builtin_and_extension():
    for name in ("__hello__", "_crypt", "_lsprof", "_json", "mmap", "xxlimited"):
        if name in sys.modules or importlib.util.find_spec(name) is None:
            continue
        told = Told(name)
        out, sys.stdout = sys.stdout, open(os.devnull, "w")  # __hello__ says so
        try:
            found = importlib.import_module(name)
        finally:
            sys.stdout = out
        assert told == [found], name


def check_lazy_loader():
    """The recipe of the documentation, around a loader that is ours."""
    module("lazily", "value = 7\n")
    told = Told("lazily")
    spec = importlib.util.find_spec("lazily")
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    lazy = importlib.util.module_from_spec(spec)
    sys.modules["lazily"] = lazy
    loader.exec_module(lazy)
    assert not told
    assert lazy.value == 7 and told == [lazy] and not is_in()
    assert type(lazy).__name__ == "module"


def check_lazy_already_there():
    module("lazy_before", "value = 8\n")
    spec = importlib.util.find_spec("lazy_before")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    sys.modules["lazy_before"] = lazy
    spec.loader.exec_module(lazy)
    told = Told("lazy_before")
    _imports.poll()
    assert not told and type(lazy).__name__ == "_LazyModule"
    assert lazy.value == 8 and told == [lazy]


def check_lazy_everywhere():
    """A finder whose modules are all lazy: they are told when they load, and not loaded for it."""
    module("lazy_found", "value = 9\n")

    class Lazily:
        @staticmethod
        def find_spec(name, path=None, target=None):
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and name == "lazy_found":
                spec.loader = importlib.util.LazyLoader(spec.loader)
            return spec

    sys.meta_path.insert(0, Lazily)
    told = Told("lazy_found")
    import lazy_found

    assert not told and object.__getattribute__(lazy_found, "__class__").__name__ == "_LazyModule"
    assert lazy_found.value == 9
    assert told == [lazy_found]
    sys.meta_path.remove(Lazily)


def check_reload():
    module("reloaded", "value = 1\n")
    told = Told("reloaded")
    import reloaded

    module("reloaded", "value = 22\n")
    importlib.reload(reloaded)
    assert reloaded.value == 22 and told == [reloaded]
    del sys.modules["reloaded"]
    again = Told("reloaded")
    module("reloaded", "value = 333\n")
    import reloaded as second

    assert again == [second] and second.value == 333


def check_recipe_of_the_documentation():
    module("by_recipe", "import colorsys\nvalue = 1\nimport wave_is_not_there_maybe\nlast = 2\n")
    module("wave_is_not_there_maybe")
    seen = []
    when_imported("by_recipe", lambda m: seen.append(m.last))
    spec = importlib.util.find_spec("by_recipe")
    private = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(private)
    assert seen == []  # nobody else can see that one
    spec = importlib.util.find_spec("by_recipe")
    found = importlib.util.module_from_spec(spec)
    sys.modules["by_recipe"] = found
    spec.loader.exec_module(found)
    assert seen == [2]


def check_module_replaces_itself():
    module("replaced", "import sys\nclass It: value = 4\nsys.modules[__name__] = It()\n")
    told = Told("replaced")
    import replaced

    assert told == [replaced] and replaced.value == 4


class Other:
    """Somebody's hook that asks all the others, as we do."""

    def __init__(self):
        self.asked = []

    def find_spec(self, name, path=None, target=None):
        if name in self.asked or not name.startswith("hooked"):
            return None
        self.asked.append(name)
        return importlib.util.find_spec(name)


def check_hook_behind():
    module("hooked_behind")
    other = Other()
    sys.meta_path.insert(0, other)
    told = Told("hooked_behind")  # we stand in front of it
    import hooked_behind

    assert told == [hooked_behind] and other.asked == ["hooked_behind"]
    sys.meta_path.remove(other)
    assert not is_in()


def check_hook_in_front():
    module("hooked_before")
    told = Told("hooked_before")
    other = Other()
    sys.meta_path.insert(0, other)
    import hooked_before

    assert told == [hooked_before]
    sys.meta_path.remove(other)


def check_hook_in_front_that_asks_nobody():
    module("unseen")
    module("the_next")

    class Alone:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "unseen":
                return importlib.machinery.PathFinder.find_spec(name, path, target)
            return None

    told = Told("unseen")
    sys.meta_path.insert(0, Alone)
    import unseen

    assert not told
    import the_next  # noqa: F401

    assert told == [unseen]
    sys.meta_path.remove(Alone)
    _imports.poll()
    assert not is_in()


def check_finder_order_is_kept():
    before = [f for f in sys.meta_path]
    module("in_order")
    Told("in_order")
    assert sys.meta_path[1:] == before
    import in_order  # noqa: F401

    assert sys.meta_path == before


def check_error_of_a_finder():
    class Angry:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "refused":
                raise ImportError("not allowed", name=name)

    told = Told("refused")
    sys.meta_path.insert(1, Angry)
    try:
        import refused  # noqa: F401

        raise AssertionError("imported")
    except ImportError as why:
        assert str(why) == "not allowed"
    sys.meta_path.remove(Angry)
    told.handle.cancel()


def check_threads():
    names = [f"many_{n}" for n in range(60)]
    for name in names:
        module(name, "import time\ntime.sleep(0.0005)\nvalue = 1\n")
    told, wrong = [], []

    def wait(mine):
        for name in mine:
            when_imported(name, lambda m: told.append(m.value))

    def import_all():
        try:
            for name in names:
                importlib.import_module(name)
        except BaseException as why:
            wrong.append(why)

    threads = [threading.Thread(target=wait, args=(names,)) for _ in range(3)]
    threads += [threading.Thread(target=import_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _imports.poll()
    assert not wrong and told == [1] * 180, (wrong, len(told))
    _imports.poll()
    assert not is_in() and not _imports._waiting


def check_fork():
    module("in_child")
    told = Told("in_child")
    held, over = threading.Event(), threading.Event()

    def hold():
        with _imports._lock:
            held.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        import in_child

        os._exit(0 if told == [in_child] else 1)
    _, status = os.waitpid(pid, 0)
    over.set()
    holder.join()
    assert status == 0 and not told
    told.handle.cancel()


def main():
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            before = list(sys.meta_path)
            check()
            assert sys.meta_path == before, name
            print(name)


main()
