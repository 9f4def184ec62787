# SPDX-License-Identifier: MulanPSL-2.0
"""What the command lines of putils have in common: exit statuses, and ERROR[status] on stderr."""

import argparse
import sys
from typing import Callable, NoReturn, Optional, Sequence

from .. import _messages

EXIT_OK = 0
EXIT_INVALID_ARGS = 2
EXIT_MISSING_INPUT = 10  # it is not there, or cannot be read
EXIT_SCHEMA_ERROR = 11  # it is not what it should be
EXIT_RUNTIME_ERROR = 12  # anything else


class CliError(RuntimeError):
    """A message, and the exit status that goes with it.

    >>> CliError(EXIT_MISSING_INPUT, "missing input log: a.json").code
    10
    """

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """A parser whose errors are CliError.

    >>> Parser(prog="putils.weight").parse_args([])
    Namespace()
    """

    def error(self, message: str) -> NoReturn:
        raise CliError(EXIT_INVALID_ARGS, message)


def run_command(
    command: Callable[[Optional[Sequence[str]]], int], argv: Optional[Sequence[str]]
) -> int:
    """The exit status of a command; what it raises is said on stderr.

    >>> run_command(lambda argv: EXIT_OK, [])
    0
    """
    try:
        return command(argv)
    except CliError as why:
        code, text = why.code, str(why)
    except SystemExit as why:  # --help
        return why.code if isinstance(why.code, int) else EXIT_OK
    except BrokenPipeError:  # whoever reads our output has seen enough
        return EXIT_RUNTIME_ERROR
    except Exception as why:
        code, text = EXIT_RUNTIME_ERROR, _messages.words(why)
    print(f"ERROR[{code}] {_messages.plain(text)}", file=sys.stderr)
    return code
