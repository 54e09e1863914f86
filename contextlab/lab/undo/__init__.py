"""Undo that survives SIGKILL: the record written before each deed, the watchdog, what `contextlab recover` does.

    Ledger ── step, synced ──▶ record ◀── reads ── watchdog (a session of its own): tool dead, or lease over ─▶ undo
                                  ◀── reads ── `contextlab recover`: tool and watchdog dead ─▶ undo

What this cannot cover, and only the next `recover` mends: tool and watchdog killed in the same instant (the end of
a container, `kill -9 -1`), a watchdog that is itself stopped, and a loss of power, after which files alone are left.
"""
