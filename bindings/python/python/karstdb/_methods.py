"""What databases and transactions have in common: entries in order, as iterators of Python's."""

from ._asyncio import drive

_AT_A_TIME = 128


def attach(to, *methods):
    """Makes functions, which are named with an underscore, methods of a class without it."""
    for method in methods:
        name = method.__name__.lstrip("_")
        method.__name__ = method.__qualname__ = name
        setattr(to, name, method)


def _after(prefix):
    """The first key after all that begin with ``prefix``; ``None`` if there is none."""
    kept = bytes(prefix).rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _cursor(self, prefix, lower, upper, more):
    if prefix is not None:
        if lower is not None or upper is not None:
            raise TypeError("give a prefix, or lower and upper, not both")
        lower, upper = prefix, _after(prefix)
    return self.iter(lower=lower, upper=upper, **more)


def _items(self, backwards=False, from_key=None, *, prefix=None, lower=None, upper=None, **more):
    """The entries in order: of all keys, of a prefix, or from ``lower`` up to but without ``upper``.

    They are those of the moment of the call. ``from_key`` is where to begin, and ``more`` are
    ``snapshot=`` and options of the read, by RocksDB's names.
    Of a transaction they are those that it sees, and ``column_family=`` says of which family.
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
    """The keys of ``items``."""
    return (key for key, _ in self.items(*args, **named))


def _values(self, *args, **named):
    """The values of ``items``."""
    return (value for _, value in self.items(*args, **named))


def _items_async(self, backwards=False, from_key=None, *, prefix=None, lower=None, upper=None, **more):
    """As ``items``, for ``async for``: the entries are those of the moment of this call, too."""
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
