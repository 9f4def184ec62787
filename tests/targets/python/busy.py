# SPDX-License-Identifier: MulanPSL-2.0
"""Threads, coroutines, generators, deep calls, code made at run time, the collector, fork, exec."""
import asyncio
import gc
import os
import subprocess
import sys
import threading


def numbers(n):
    for i in range(n):
        yield [i] * 100


async def count(n):
    await asyncio.sleep(0)
    return sum(len(x) for x in numbers(n))


async def count_all():
    return sum(await asyncio.gather(*[count(20) for _ in range(20)]))


def deep(n):
    return deep(n - 1) + 1 if n else len(bytearray(5000))


def work(into):
    for _ in range(4):
        loop = asyncio.new_event_loop()
        into.append(loop.run_until_complete(count_all()))
        loop.close()
        into.append(deep(300))
        exec("def made():\n    return [0] * 1000\nmade()")
        gc.collect()


results = []
threads = [threading.Thread(target=work, args=(results,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork()
if child == 0:
    deep(200)
    sys.exit(3)
print(sorted(results), os.WEXITSTATUS(os.waitpid(child, 0)[1]))
sys.stdout.flush()
subprocess.check_call([sys.executable, "-c", "import json; print(len(json.dumps([0] * 10000)))"])
