# SPDX-License-Identifier: MulanPSL-2.0
"""Results that were computed before, kept in files.

    from putils.cache import CacheKey, RolloutCache, rollout_cache

    cache = RolloutCache("/data/cache")
    with rollout_cache(cache, prompts, seed) as found:
        if found is None or isinstance(found, CacheKey):    # off, or not there yet
            result = generate(prompts, seed)
            if found:
                cache.save(found, result)
        else:
            result = found

A CacheKey is a str, and older scripts ask for that; where results are texts they must ask for
CacheKey, because a text that was found is a str, too.
"""

import contextlib
import os
import pickle
import stat
from typing import IO, Any, Iterator

from . import _files, _messages, _tensors
from ._support.input_keys import make_key

__all__ = ["CacheKey", "RolloutCache", "rollout_cache", "to_cpu_detached"]

KEY, RESULT = "putils.cache key", "result"  # what a file holds


def to_cpu_detached(obj: Any) -> Any:
    """The same with tensors on the CPU and without gradients, in dicts, lists and tuples too.

    >>> to_cpu_detached({"loss": loss})
    {'loss': tensor(2.25)}
    """
    if _tensors.is_tensor(obj):
        return obj.detach().cpu()
    if isinstance(obj, dict):
        return {key: to_cpu_detached(value) for key, value in obj.items()}
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(to_cpu_detached(item) for item in obj))
    if isinstance(obj, (list, tuple)):
        return type(obj)(to_cpu_detached(item) for item in obj)
    return obj


class CacheKey(str):
    """What rollout_cache() yields where nothing is kept yet: under it the result is to be saved.

    >>> isinstance(CacheKey("a9993e36"), str)
    True
    """


class RolloutCache:
    """Objects by a key, each in a file <key>.pt of a folder.

    enabled             False: nothing is kept, nothing is found
    force_recompute     True: nothing is found, what is saved replaces what was there

    >>> cache = RolloutCache("/data/cache")
    >>> cache.save("a", {"x": torch.ones(2)})
    >>> cache.load("a")
    {'x': tensor([1., 1.])}
    """

    def __init__(self, cache_dir: str, enabled: bool = True, force_recompute: bool = False) -> None:
        self.cache_dir = str(cache_dir)
        self.enabled = enabled
        self.force_recompute = force_recompute

    def _hash_inputs(self, *args: Any) -> str:
        """The key of inputs: 40 hexadecimal digits that depend on every number of every tensor and
        array. TypeError for what has no content to compare, such as a lambda or a generator.

        >>> cache._hash_inputs(prompts, 7)
        'a9993e364706816aba3e25717850c26c9cd0d89d'
        """
        return make_key(args)

    def path(self, key: str) -> str:
        """ValueError for a key that would be a file elsewhere.

        >>> RolloutCache("/data/cache").path("a")
        '/data/cache/a.pt'
        """
        if "/" in key or "\0" in key:
            raise ValueError("a key is part of a file's name: it holds no '/'")
        return os.path.join(self.cache_dir, f"{key}.pt")

    def load(self, key: str) -> Any:
        """What was saved under the key; None if there is nothing, or nothing that can be read.

        A file can hold code that runs when it is read: only files of one's own (or root's) are, in
        folders of one's own, that nobody else may write. One that was saved under another key is not.

        >>> cache.load("a")
        """
        if not self.enabled or self.force_recompute:
            return None
        path = str(key)
        try:
            path = self.path(key)
            with _open_trusted(_files.check_folder(self.cache_dir), os.path.basename(path)) as f:
                return _content(_read(f), key)
        except FileNotFoundError:
            return None
        except Exception as why:
            _messages.warn(f"'{path}' is not used: {_messages.words(why)}")
            return None

    def save(self, key: str, obj: Any) -> None:
        """Keep an object; its tensors as they are on the CPU. A failure is said, not raised.

        >>> cache.save("a", {"x": torch.ones(2)})
        """
        if not self.enabled:
            return
        path = mine = str(key)
        try:
            path = self.path(key)
            mine = f"{path}.{os.getpid()}.new"
            _files.make_folder(self.cache_dir)
            with _files.open_ours(mine, "wb") as f:
                _write({KEY: str(key), RESULT: to_cpu_detached(obj)}, f)
            os.replace(mine, path)
        except Exception as why:
            _messages.warn(f"'{path}' is not saved: {_messages.words(why)}")
            with contextlib.suppress(OSError, ValueError):
                if mine != path:
                    os.unlink(mine)


def _open_trusted(folder: str, name: str) -> IO[bytes]:
    """PermissionError where anybody else could have written the file, or put it there."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(above).st_uid not in (os.geteuid(), 0):
            raise PermissionError("its folder belongs to another user")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.fdopen(os.open(name, flags, dir_fd=above), "rb")
    finally:
        os.close(above)
    held = os.fstat(file.fileno())
    why = ""
    if not stat.S_ISREG(held.st_mode):
        why = "it is not a file"
    elif held.st_uid not in (os.geteuid(), 0):
        why = "it belongs to another user"
    elif held.st_mode & 0o022:
        why = f"others may write to it (mode {stat.S_IMODE(held.st_mode):o})"
    elif held.st_nlink > 1:
        why = "it has other names, so that it may be somebody else's"
    if why:
        file.close()
        raise PermissionError(why)
    return file


def _content(held: Any, key: str) -> Any:
    """What was saved under this key. Files of older versions hold the result alone."""
    if type(held) is not dict or set(held) != {KEY, RESULT}:
        return held
    if held[KEY] != str(key):
        raise ValueError("it was saved under another key")
    return held[RESULT]


def _read(file: Any) -> Any:
    import torch

    try:
        return torch.load(file, map_location="cpu", weights_only=False)
    except (TypeError, pickle.UnpicklingError) as why:
        if "weights_only" not in str(why):
            raise
        file.seek(0)  # of a torch that does not know weights_only
        return torch.load(file, map_location="cpu")


def _write(obj: Any, file: Any) -> None:
    import torch

    torch.save(obj, file)


@contextlib.contextmanager
def rollout_cache(cache: RolloutCache, *inputs: Any) -> Iterator[Any]:
    """The cached object of these inputs; their CacheKey if there is none; None if nothing can be
    kept: the cache is off, or an input has no key (a lambda, a generator), which is said once.

    >>> with rollout_cache(cache, prompts) as found: ...
    """
    if not cache.enabled:
        yield None
        return
    try:
        key = cache._hash_inputs(*inputs)
    except Exception as why:  # inputs that cannot be read: computed, and not kept
        _messages.warn_once(
            f"rollout_cache: the inputs have no key, nothing is kept: {_messages.words(why)}"
        )
        yield None
        return
    found = cache.load(key)
    yield CacheKey(key) if found is None else found
