"""Drives KarstDB's futures on asyncio's event loops.

An operation is polled by the task that awaits it. Its wake-up writes one byte to a socket that the
event loop listens to; no thread waits for it.
"""

import asyncio
import itertools
import weakref


class _Bridge:
    def __init__(self, loop):
        from ._karstdb import Ready

        self.ready = Ready()
        self.waiting = {}
        self.ids = itertools.count()
        waiting, ready = self.waiting, self.ready

        def woken():
            for id in ready.take():
                future = waiting.get(id)
                if future is not None and not future.done():
                    future.set_result(None)

        loop.add_reader(ready.fileno(), woken)


_bridges = weakref.WeakKeyDictionary()


async def drive(operation):
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _Bridge(loop)
    id = next(bridge.ids)
    try:
        while True:
            # Before the poll, so that a wake-up that comes at once finds it.
            bridge.waiting[id] = future = loop.create_future()
            outcome = operation.poll(bridge.ready, id)
            if outcome is not None:
                return outcome[0]
            await future
    finally:
        del bridge.waiting[id]
        operation.cancel()
