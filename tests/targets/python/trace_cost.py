# SPDX-License-Identifier: MulanPSL-2.0
"""trace_cost.py HOW CALLS ROUNDS: what a call of a function of Python, and of one of C, takes: the
best round. HOW: plain; traced, by msmemscope; or naive, by a profile function in Python that keeps
what happened and when."""

import sys
import time


def leaf():
    pass


def nothing(n):
    for _ in range(n):
        pass


def of_python(n):
    call = leaf
    for _ in range(n):
        call()


def of_c(n):
    call = "".isspace
    for _ in range(n):
        call()


def best(work, calls, rounds):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work(calls)
        times.append(time.perf_counter() - start)
        time.sleep(0.003)
    return min(times) / calls * 1e9


def main(how, calls, rounds):
    kept = []

    def keep(frame, event, arg):
        kept.append((event, frame.f_code, arg, time.perf_counter_ns()))
        if len(kept) > 100000:
            kept.clear()

    if how == "traced":
        import msmemscope

        msmemscope.config(events="traceback", output_path=sys.argv[4])
        msmemscope.start()
    if how == "naive":
        sys.setprofile(keep)
    times = [best(work, calls, rounds) for work in (nothing, of_python, of_c)]
    sys.setprofile(None)
    if how == "traced":
        msmemscope.stop()
    print("ns_per_call", times[1] - times[0], times[2] - times[0])


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
