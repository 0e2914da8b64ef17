"""KarstDB: an embedded, ordered key-value store that reads and writes RocksDB's databases.

    import karstdb

    with karstdb.Rdict("/tmp/fruit") as db:
        db[b"apple"] = b"ripe"
        assert db[b"apple"] == b"ripe"

Keys and values are ``bytes``, or anything with the buffer protocol. Every method may be called
from any thread, and none waits with the interpreter's lock held. Names are those of ``rocksdict``
where it has them.
"""

from ._asyncio import drive as _drive
from ._karstdb import (
    Busy,
    Closed,
    Corruption,
    Deadlock,
    Error,
    Expired,
    Incomplete,
    InvalidArgument,
    Io,
    LimitReached,
    Locked,
    NoSpace,
    NotFound,
    NotSupported,
    Panicked,
    Rdict,
    RdictIter,
    Snapshot,
    TimedOut,
    TryAgain,
    WriteBatch,
)

__all__ = [
    "Busy",
    "Closed",
    "Corruption",
    "Deadlock",
    "Error",
    "Expired",
    "Incomplete",
    "InvalidArgument",
    "Io",
    "LimitReached",
    "Locked",
    "NoSpace",
    "NotFound",
    "NotSupported",
    "Panicked",
    "Rdict",
    "RdictIter",
    "Snapshot",
    "TimedOut",
    "TryAgain",
    "WriteBatch",
    "open",
]

_AT_A_TIME = 128


def _options(options):
    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [(name, text(value)) for name, value in (options or {}).items()]


def open(path, options=None, *, mode="rw", secondary_path=None):
    """Opens the database in ``path``, and makes it if it is missing and ``mode`` is ``"rw"``.

    ``options`` are RocksDB's by name: ``{"write_buffer_size": 1 << 20}``.
    ``mode`` is ``"rw"``, ``"r"`` (read-only) or ``"secondary"``, which needs a ``secondary_path``.
    """
    given = dict(options or {})
    if mode == "rw":
        given.setdefault("create_if_missing", True)
    return Rdict(path, _options(given), mode, secondary_path)


def _get(self, key, default=None, *, snapshot=None):
    """The value of ``key``, or ``default``."""
    value = self._get(key, snapshot)
    return default if value is None else value


def _create_column_family(self, name, options=None):
    """Makes a column family; what is returned reads and writes it."""
    return self._create_column_family(name, _options(options))


def _after(prefix):
    """The first key after all that begin with ``prefix``; ``None`` if there is none."""
    kept = bytes(prefix).rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _cursor(self, prefix, lower, upper, snapshot):
    if prefix is not None:
        if lower is not None or upper is not None:
            raise TypeError("give a prefix, or lower and upper, not both")
        lower, upper = prefix, _after(prefix)
    return self.iter(snapshot=snapshot, lower=lower, upper=upper)


def _items(self, backwards=False, from_key=None, *, prefix=None, lower=None, upper=None, snapshot=None):
    """The entries in order: of all keys, of a prefix, or from ``lower`` up to but without ``upper``.

    They are those of the moment of the call. ``from_key`` is where to begin.
    """
    cursor = _cursor(self, prefix, lower, upper, snapshot)
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


async def _get_async(self, key, default=None, *, snapshot=None):
    """As ``get``, for a task of asyncio: many may be under way at once in one thread."""
    value = await _drive(self._get_operation(key, snapshot))
    return default if value is None else value


async def _multi_get_async(self, keys, snapshot=None):
    """As ``multi_get``."""
    return await _drive(self._multi_get_operation(list(keys), snapshot))


async def _write_async(self, batch, *, sync=False, disable_wal=False):
    """As ``write``. When the task is cancelled the batch is written whole or not at all."""
    await _drive(self._write_operation(batch, sync, disable_wal))


async def _put_async(self, key, value, *, sync=False, disable_wal=False):
    """As ``put``."""
    batch = WriteBatch()
    batch.put(key, value, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal)


async def _delete_async(self, key, *, sync=False, disable_wal=False):
    """As ``delete``."""
    batch = WriteBatch()
    batch.delete(key, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal)


async def _flush_async(self):
    """As ``flush``."""
    await _drive(self._flush_operation())


async def _items_async(
    self, backwards=False, from_key=None, *, prefix=None, lower=None, upper=None, snapshot=None
):
    """As ``items``, for ``async for``."""
    cursor = _cursor(self, prefix, lower, upper, snapshot)
    try:
        first = True
        while entries := await _drive(
            cursor._entries_operation(_AT_A_TIME, backwards, first, from_key if first else None)
        ):
            first = False
            for entry in entries:
                yield entry
    finally:
        cursor.close()


def _attach():
    for method in (
        _get,
        _create_column_family,
        _items,
        _keys,
        _values,
        _get_async,
        _multi_get_async,
        _write_async,
        _put_async,
        _delete_async,
        _flush_async,
        _items_async,
    ):
        name = method.__name__[1:]
        method.__name__, method.__qualname__ = name, f"Rdict.{name}"
        setattr(Rdict, name, method)
    Rdict.__iter__ = Rdict.keys


_attach()
