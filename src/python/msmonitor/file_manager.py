# SPDX-License-Identifier: MulanPSL-2.0
"""Making directories and files that others cannot turn into something else. A RuntimeError says
what is wrong."""

import os


class FileManager:
    """Neither through a symbolic link, nor where another user owns the place (root may)."""

    MAX_PATH_LENGTH = 4096
    DATA_FILE_AUTHORITY = 0o640
    DATA_DIR_AUTHORITY = 0o750

    @classmethod
    def make_dir_safety(cls, path: str) -> None:
        try:
            if os.path.islink(path):
                raise OSError("it is a symbolic link")
            os.makedirs(path, mode=cls.DATA_DIR_AUTHORITY, exist_ok=True)
        except OSError as why:
            raise RuntimeError(f"no directory '{path}' can be made: {why}") from why

    @classmethod
    def create_file_safety(cls, path: str) -> None:
        """A file that is there stays as it is."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, cls.DATA_FILE_AUTHORITY))
        except OSError as why:
            raise RuntimeError(f"no file '{path}' can be made: {why}") from why

    @classmethod
    def check_path_owner_consistent(cls, path: str) -> None:
        try:
            owner = os.stat(path).st_uid
        except OSError as why:
            raise RuntimeError(f"there is no '{path}': {why}") from why
        if os.getuid() not in (0, owner):
            raise RuntimeError(f"'{path}' belongs to another user")

    @classmethod
    def check_directory_path_writeable(cls, path: str) -> None:
        cls.check_path_owner_consistent(path)
        if os.path.islink(path):
            raise RuntimeError(f"'{path}' is a symbolic link")
        if not os.access(path, os.W_OK):
            raise RuntimeError(f"'{path}' cannot be written")

    @classmethod
    def create_file_by_path(cls, path: str) -> None:
        """With the directories above it."""
        path = os.path.realpath(path)
        if len(path) > cls.MAX_PATH_LENGTH:
            raise RuntimeError(f"the path is longer than {cls.MAX_PATH_LENGTH} characters")
        cls.make_dir_safety(os.path.dirname(path))
        cls.create_file_safety(path)
        cls.check_directory_path_writeable(path)
