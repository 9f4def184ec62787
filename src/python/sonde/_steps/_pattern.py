# SPDX-License-Identifier: MulanPSL-2.0
"""Which calls end a step: a step is a period of the pattern in which things are called.

    A A A A                     one optimizer: each of its calls
    D G D G D G                 several, each once: one per round, however many there are
    D D D D D G D D D D D G     one of them less often: one per round of all of them
    A A A B B B                 another one from some point on: its calls count from the second on,
                                or from the first if it takes the place of the other

A round has ended when all that take part in it have been called. Who takes part is learnt: who is
new joins in; who is missing while another is called more often than ever in a round is left out.
What comes after more than LONGEST rounds, once an epoch, takes no part.

When the first D of a third line is called, nobody can know of G. What was taken for rounds until
then was none: "anew" says so.
"""

import weakref

LONGEST = 16


class Pattern:
    def __init__(self):
        self.forget()

    def forget(self):
        self.periods = 0  # that have ended
        self._last = {}  # id: (weak reference, `periods` when it was called last)
        self._active = set()  # ids of those that take part
        self._times = {}  # id: how often it was called in this round
        self._most = 1  # calls of one of them in a round
        self._new = {}  # id: rounds without it; not clear yet whether they take part

    def call(self, thing, replaces=None):
        """A call of a thing: "anew", if a step ends that is the first one; "next", if it is another
        one; None. replaces(old, new): does it take the place of one that takes part?"""
        key = id(thing)
        known = self._last.get(key)
        if known is None or known[0]() is not thing:
            self._drop(key)
            known = (weakref.ref(thing, lambda ref, key=key: self._gone(key, ref)), 0)
        self._last[key] = known[0], self.periods
        if key in self._new:
            return self._change_phase()
        if key in self._active:
            return self._confirm(key) if self._new else self._count(key)
        return self._meet(key, thing, self.periods - known[1], replaces)

    def _meet(self, key, thing, rounds, replaces):
        for old in [k for k in self._active if replaces and self._is_replaced(k, thing, replaces)]:
            self._drop(old, forget=False)
            rounds = 0
        if rounds <= 1 or not self._active:
            alone = not self._active
            self._active.add(key)
            return self._count(key) if alone or not rounds else self._join(key)
        self._new[key] = rounds
        return None

    def _is_replaced(self, key, thing, replaces):
        old = self._last[key][0]() if key in self._last else None
        return old is None or replaces(old, thing)

    def _join(self, key):
        self._times[key] = 1
        return None

    def _change_phase(self):
        """Those that were new are called again, and none of the others."""
        self._active = set(self._new)
        self._most = 1
        return self._end()

    def _confirm(self, key):
        """One that was called before is called again after the new ones."""
        new, self._new = self._new, {}
        rounds = max(new.values())
        if rounds > LONGEST:
            return self._count(key)
        self._active.update(new)
        self._most = max(self._most, rounds + 1)
        self._end()
        self._times[key] = 1
        self.periods = 1
        return "anew"

    def _count(self, key):
        self._times[key] = self._times.get(key, 0) + 1
        if len(self._times) < len(self._active):
            if self._times[key] <= self._most:
                return None
            self._active = set(self._times)
            self._most = max(self._times.values()) if len(self._active) > 1 else 1
        return self._end()

    def _end(self):
        self._times = {}
        self._new = {}
        self.periods += 1
        return "anew" if self.periods == 1 else "next"

    def _gone(self, key, ref):
        known = self._last.get(key)
        if known is not None and known[0] is ref:
            self._drop(key)

    def _drop(self, key, forget=True):
        if forget:
            self._last.pop(key, None)
        self._active.discard(key)
        self._times.pop(key, None)
        self._new.pop(key, None)
