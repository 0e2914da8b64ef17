"""Python iterators over entries in key order, shared by databases and transactions."""

from ._asyncio import drive

_AT_A_TIME = 128


def attach(to, *methods):
    """Adds functions to a class as methods, without the leading underscore of their names."""
    for method in methods:
        name = method.__name__.lstrip("_")
        method.__name__ = method.__qualname__ = name
        setattr(to, name, method)


def _after(prefix):
    """Returns the smallest key above all keys with ``prefix``; ``None`` if there is no bound."""
    kept = bytes(prefix).rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _cursor(self, prefix, lower, upper, more):
    if prefix is not None:
        if lower is not None or upper is not None:
            raise TypeError("give a prefix, or lower and upper, not both")
        lower, upper = prefix, _after(prefix)
    return self.iter(lower=lower, upper=upper, **more)


def _items(self, backwards=False, from_key=None, *, prefix=None, lower=None, upper=None, **more):
    """Iterates over entries in key order: all, those with ``prefix``, or those from ``lower``,
    inclusive, to ``upper``, exclusive.

    The iterator reads the state at the time of the call. ``from_key`` is the key at which it
    starts. ``more`` holds ``snapshot=`` and read options by RocksDB's names. The iterator of a
    transaction includes the transaction's own writes; ``column_family=`` selects the column family.
    """
    cursor = _cursor(self, prefix, lower, upper, more)
    if from_key is not None:
        (cursor.seek_for_prev if backwards else cursor.seek)(from_key)
    elif backwards:
        cursor.seek_to_last()
    else:
        cursor.seek_to_first()
    return _entries(cursor, backwards)


def _entries(cursor, backwards):
    try:
        while entries := cursor._entries(_AT_A_TIME, backwards):
            yield from entries
    finally:
        cursor.close()


def _keys(self, *args, **named):
    """Iterates over keys; the arguments are those of ``items``."""
    return (key for key, _ in self.items(*args, **named))


def _values(self, *args, **named):
    """Iterates over values; the arguments are those of ``items``."""
    return (value for _, value in self.items(*args, **named))


def _items_async(self, backwards=False, from_key=None, *, prefix=None, lower=None, upper=None, **more):
    """Asynchronous form of ``items``, for ``async for``; reads the state at the time of the call."""
    return _entries_async(_cursor(self, prefix, lower, upper, more), backwards, from_key)


async def _entries_async(cursor, backwards, from_key):
    try:
        first = True
        while entries := await drive(
            cursor._entries_operation(_AT_A_TIME, backwards, first, from_key if first else None)
        ):
            first = False
            for entry in entries:
                yield entry
    finally:
        cursor.close()


def _reversed(self):
    return self.keys(backwards=True)


def attach_entries(to):
    attach(to, _items, _keys, _values, _items_async)
    to.__iter__ = to.keys
    to.__reversed__ = _reversed
