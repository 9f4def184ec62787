# SPDX-License-Identifier: MulanPSL-2.0
"""torch.save() in the background, of what the tensors hold when save() is called.

    from putils.saver import AsyncTorchSaver

    saver = AsyncTorchSaver()
    future = saver.save(model.state_dict(), "/mnt/share/step_100.pt")
    train_on()                  # the weights may change now
    future.result()             # raises what went wrong
"""

import copy
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Dict, Iterator

from . import _files, _messages

DEFAULT_TMP_DIR = "/tmp/torch_save_tmp"
# Replacing a file is one step anyway: nobody can keep a checkpoint back by holding the lock.
LOCK_SECONDS = 60.0

PLAIN = (type(None), bool, int, float, complex, str, bytes)


def to_cpu(obj: Any) -> Any:
    """The object with every tensor in it copied to the host, so that nothing of the copy changes
    when the original does. What is one tensor under two names stays one.

    >>> to_cpu({"w": weight, "steps": [1, 2]})["w"].device
    device(type='cpu')
    """
    return _copied(obj, {})


def _is_tensor(obj: Any) -> bool:
    return hasattr(obj, "device") and hasattr(obj, "detach") and hasattr(obj, "numel")


def _copied(obj: Any, tensors: Dict[Any, Any]) -> Any:
    if isinstance(obj, PLAIN):
        return obj
    if isinstance(obj, dict):
        return _copied_dict(obj, {k: _copied(v, tensors) for k, v in obj.items()})
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return type(obj)(*(_copied(v, tensors) for v in obj))
    if type(obj) in (list, tuple, set):
        return type(obj)(_copied(v, tensors) for v in obj)
    if _is_tensor(obj):
        return _copied_tensor(obj, tensors)
    return _copied_other(obj, tensors)


def _copied_dict(obj: Any, found: Dict) -> Any:
    """OrderedDict and defaultdict keep their kind, a state_dict() its metadata."""
    if type(obj) is dict:
        return found
    try:
        same = obj.copy()
        same.clear()
        same.update(found)
        if hasattr(obj, "_metadata"):
            same._metadata = copy.deepcopy(obj._metadata)
        return same
    except Exception:  # a class that cannot be made like that
        return found


def _copied_tensor(tensor: Any, tensors: Dict[Any, Any]) -> Any:
    try:
        place = tensor.data_ptr(), tensor.storage_offset(), tuple(tensor.stride())
        key = place, tuple(tensor.shape), str(tensor.dtype), str(tensor.device)
        key = key if tensor.data_ptr() else id(tensor)
    except Exception:  # sparse, or without memory of its own
        key = id(tensor)
    if key not in tensors:
        plain = tensor.detach()
        same = plain.clone() if plain.device.type in ("cpu", "meta") else plain.cpu()
        tensors[key] = same, tensor  # the original is kept: its address stays taken meanwhile
    return tensors[key][0]


def _copied_other(obj: Any, tensors: Dict[Any, Any]) -> Any:
    """A module, an optimizer, an array. Tensors of a module go to the host, not to a copy beside
    it on the device."""
    known: Dict[int, Any] = {}
    try:
        for name in ("parameters", "buffers"):
            for tensor in getattr(obj, name)() if callable(getattr(obj, name, None)) else ():
                same = _copied_tensor(tensor, tensors)
                if type(tensor).__name__ == "Parameter":
                    same = type(tensor)(same, requires_grad=tensor.requires_grad)
                known[id(tensor)] = same
        return copy.deepcopy(obj, known)
    except Exception as why:
        _messages.warn_once(
            f"an object of type {type(obj).__name__} cannot be copied ({_messages.words(why)}): "
            "it is saved as it is when its turn comes"
        )
        return obj


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Only one writer at a time, for as long as it is reasonable to wait for the others."""
    try:
        lock = _files.open_ours(path)
    except OSError:  # another user's: he shall not keep us waiting
        yield
        return
    fd = lock.fileno()
    try:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    _messages.warn(f"'{path}' is held for {LOCK_SECONDS:.0f} s: not waited for longer")
                    break
                time.sleep(0.05)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        lock.close()


def _tmp_folder(tmp_dir: str) -> str:
    """The default lies in a place for everybody, so each user has one of his own."""
    make = _files.make_folder
    if tmp_dir == DEFAULT_TMP_DIR:
        tmp_dir, make = f"{tmp_dir}_{os.geteuid()}", _files.make_private_folder
    try:
        return make(tmp_dir)
    except OSError as why:
        other = tempfile.mkdtemp(prefix="torch_save_")
        _messages.warn(f"'{tmp_dir}' is not used: {_messages.words(why)}. Using '{other}'")
        return other


class AsyncTorchSaver:
    """Saves with `max_workers` threads: into `tmp_dir` first, then as a copy into .staging beside
    the file, which replaces the file in one step.

    >>> with AsyncTorchSaver(tmp_dir="/scratch/me") as saver:
    ...     future = saver.save({"step": 1}, "out/step_1.pt")
    >>> future.result()
    'out/step_1.pt'
    """

    def __init__(self, tmp_dir: str = DEFAULT_TMP_DIR, max_workers: int = 1):
        self.tmp_dir = _tmp_folder(os.fspath(tmp_dir))
        self.executor = ThreadPoolExecutor(max_workers, thread_name_prefix="putils-saver")

    def save(self, obj: Any, final_path: "os.PathLike[str]") -> "Future[str]":
        """Copies the tensors to the host and returns; the rest happens in the background. The
        result of the Future is the path; what goes wrong is its exception, and is said once.

        >>> AsyncTorchSaver().save({"step": 1}, "step_1.pt").result()
        'step_1.pt'
        """
        path = os.fspath(final_path)
        try:
            return self.executor.submit(self._save, to_cpu(obj), path)
        except Exception as why:
            failed: "Future[str]" = Future()
            failed.set_exception(why)
            _messages.warn(f"cannot save '{path}': {_messages.words(why)}")
            return failed

    def close(self, wait: bool = True) -> None:
        """No more saves; waits for those under way. A program that ends waits for them, too.

        >>> AsyncTorchSaver().close()
        """
        self.executor.shutdown(wait=wait)

    def __enter__(self) -> "AsyncTorchSaver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _save(self, obj: Any, path: str) -> str:
        import torch

        name = f"{os.path.basename(path)}.{uuid.uuid4().hex}.tmp"
        folder = os.path.dirname(path) or "."
        local = os.path.join(self.tmp_dir, name)
        staging = os.path.join(folder, ".staging")
        staged = os.path.join(staging, name)
        ready = False
        try:
            _files.make_folder(folder)
            _files.make_folder(staging)
            ready = True
            # Through descriptors: names may be exchanged meanwhile.
            with _files.open_ours(local, "w+b") as source, _files.open_ours(staged, "wb") as f:
                torch.save(obj, source)
                del obj
                source.seek(0)
                shutil.copyfileobj(source, f, 16 << 20)
                f.flush()
                os.fsync(f.fileno())
                with _locked(os.path.join(folder, ".write.lock")):
                    os.replace(staged, path)
                if not os.path.samestat(os.fstat(f.fileno()), os.lstat(path)):
                    raise PermissionError("somebody has put another file in its place")
            return path
        except BaseException as why:
            _messages.warn(f"cannot save '{path}': {_messages.words(why)}")
            raise
        finally:
            if ready:  # else the folder may be somebody else's
                for left in (local, staged):
                    _remove(os.unlink, left)
                _remove(os.rmdir, staging)


def _remove(how: Any, path: str) -> None:
    try:
        how(path)
    except OSError:
        pass  # not there, or others use it
