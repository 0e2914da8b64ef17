"""KarstDB: an embedded, ordered key-value store that reads and writes RocksDB's databases.

    import karstdb

    with karstdb.open("/tmp/fruit") as db:
        db[b"apple"] = b"ripe"
        assert db[b"apple"] == b"ripe"

Keys and values are ``bytes``, or any other buffer: ``bytearray``, ``memoryview``, ``array``, NumPy. Every method may be called
from any thread, and none waits with the interpreter's lock held. Names are those of ``rocksdict``
where it has them.
"""

import atexit as _atexit

from . import _copies, _transaction  # noqa: F401: they complete the classes
from ._asyncio import drive as _drive
from ._karstdb import (
    BackupEngine,
    BackupInfo,
    Busy,
    CallbackFailed,
    Checkpoint,
    Closed,
    CompactionFilter,
    Comparator,
    Corruption,
    Deadlock,
    Error,
    Expired,
    ExternalSstFileInfo,
    Incomplete,
    InvalidArgument,
    Io,
    LimitReached,
    Locked,
    MergeOperator,
    NoSpace,
    NotFound,
    NotSupported,
    OptimisticTransactionDB,
    Options,
    Panicked,
    Rdict,
    RdictIter,
    Snapshot,
    SstFileWriter,
    Statistics,
    TimedOut,
    Transaction,
    TransactionDB,
    TryAgain,
    WriteBatch,
    WriteOptions,
    destroy,
    list_cf,
    repair,
    __version__,
    _close_all,
)
from ._methods import attach as _attach, attach_entries as _attach_entries

__all__ = [
    "BackupEngine",
    "BackupInfo",
    "Busy",
    "CallbackFailed",
    "Checkpoint",
    "Closed",
    "CompactionFilter",
    "Comparator",
    "Corruption",
    "Deadlock",
    "Error",
    "Expired",
    "ExternalSstFileInfo",
    "Incomplete",
    "InvalidArgument",
    "Io",
    "LimitReached",
    "Locked",
    "MergeOperator",
    "NoSpace",
    "NotFound",
    "NotSupported",
    "OptimisticTransactionDB",
    "Options",
    "Panicked",
    "Rdict",
    "RdictIter",
    "Snapshot",
    "SstFileWriter",
    "Statistics",
    "TimedOut",
    "Transaction",
    "TransactionDB",
    "TryAgain",
    "WriteBatch",
    "WriteOptions",
    "destroy",
    "list_cf",
    "open",
    "repair",
]

def open(path, options=None, column_families=None, *, mode="rw", secondary_path=None, **named):
    """Opens the database in ``path`` (``str``, ``bytes`` or a path), and makes it if it is missing
    and ``mode`` is ``"rw"``.

    ``options`` are RocksDB's by name, ``{"write_buffer_size": 1 << 20}`` or by keyword,
    ``write_buffer_size=1 << 20``; or an option string, ``"write_buffer_size=1M"``; or ``Options``.
    ``column_families`` are options by the names of families; those that are missing are made.
    ``mode`` is ``"rw"``, ``"r"`` (read-only) or ``"secondary"``, which needs a ``secondary_path``.
    """
    return Rdict(path, options, column_families, mode=mode, secondary_path=secondary_path, **named)


def _set_option(self, name):
    """``options.set_max_open_files(500)`` and ``options.create_if_missing(True)``."""
    option = name.removeprefix("set_")
    if not Options._knows(option):
        raise AttributeError(f"Options has no {name}: there is no option {option}")
    return lambda value: self.set(option, value)


def _get(self, key, default=None, *, snapshot=None, **read):
    """The value of ``key``, or ``default``. ``read`` are options of the read, by RocksDB's names."""
    value = self._get(key, snapshot, read)
    return default if value is None else value


async def _get_async(self, key, default=None, *, snapshot=None, **read):
    """As ``get``, for a task of asyncio: many may be under way at once in one thread."""
    value = await _drive(self._get_operation(key, snapshot, read))
    return default if value is None else value


async def _multi_get_async(self, keys, snapshot=None, **read):
    """As ``multi_get``."""
    return await _drive(self._multi_get_operation(list(keys), snapshot, read))


async def _write_async(self, batch, *, sync=False, disable_wal=False, write_opt=None):
    """As ``write``. When the task is cancelled the batch is written whole or not at all."""
    await _drive(self._write_operation(batch, sync, disable_wal, write_opt))


_NO_DEFAULT = object()


def _pop(self, key, default=_NO_DEFAULT, **write):
    """Removes ``key`` and returns its value; without one ``default``, or a ``KeyError``.

    ``write`` says how, as for ``delete``. Two calls of the engine: another thread may come between.
    """
    value = self.get(key)
    if value is None:
        if default is _NO_DEFAULT:
            raise KeyError(key)
        return default
    self.delete(key, **write)
    return value


def _setdefault(self, key, default, **write):
    """The value of ``key``, which is set to ``default`` if it has none.

    ``write`` says how, as for ``put``. Two calls of the engine: another thread may come between.
    """
    value = self.get(key)
    if value is None:
        self.put(key, default, **write)
        value = self[key]
    return value


def _update(self, entries, **write):
    """Sets the keys of a mapping, or of pairs of a key and a value: all of them at once.

    ``write`` says how, as for ``write``.
    """
    pairs = ((key, entries[key]) for key in entries.keys()) if hasattr(entries, "keys") else entries
    batch = WriteBatch(self)
    for key, value in pairs:
        batch.put(key, value)
    self.write(batch, **write)


def _clear(self, **write):
    """Removes every key: a range from the first to the last one, or in a database that locks keys
    one after the other. ``write`` says how, as for ``write``."""
    first = next(self.keys(), None)
    if first is None:
        return
    last = next(reversed(self), first)
    batch = WriteBatch(self)
    batch.delete_range(first, last)
    batch.delete(last)
    try:
        self.write(batch, **write)
    except NotSupported:
        batch.clear()
        for key in self.keys():
            batch.delete(key)
            if len(batch) == 1000:
                self.write(batch, **write)
                batch.clear()
        self.write(batch, **write)


def _snapshot_get(self, key, default=None, column_family=None, **read):
    """The value that ``key`` had, or ``default``: in the family that the snapshot was taken from."""
    value = self._get(key, read, column_family)
    return default if value is None else value


async def _put_async(self, key, value, *, sync=False, disable_wal=False, write_opt=None):
    """As ``put``."""
    batch = WriteBatch()
    batch.put(key, value, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _delete_async(self, key, *, sync=False, disable_wal=False, write_opt=None):
    """As ``delete``."""
    batch = WriteBatch()
    batch.delete(key, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _merge_async(self, key, operand, *, sync=False, disable_wal=False, write_opt=None):
    """As ``merge``."""
    batch = WriteBatch()
    batch.merge(key, operand, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _delete_range_async(self, begin, end, *, sync=False, disable_wal=False, write_opt=None):
    """As ``delete_range``."""
    batch = WriteBatch()
    batch.delete_range(begin, end, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _flush_async(self):
    """As ``flush``."""
    await _drive(self._flush_operation())


async def _compact_range_async(
    self, begin=None, end=None, *, bottommost_level_compaction="if_have_compaction_filter"
):
    """As ``compact_range``."""
    await _drive(self._compact_range_operation(begin, end, bottommost_level_compaction))
    self._filtered()


async def _verify_checksum_async(self):
    """As ``verify_checksum``."""
    await _drive(self._verify_checksum_operation())


async def _close_async(self):
    """As ``close``, and ``async with`` does it. It goes on when the task is cancelled."""
    await _drive(self._close_operation())


async def _aenter(self):
    return self


async def _aexit(self, *_raised):
    await self.close_async()


_attach(
    Rdict,
    _get,
    _pop,
    _setdefault,
    _update,
    _clear,
    _get_async,
    _multi_get_async,
    _write_async,
    _put_async,
    _delete_async,
    _merge_async,
    _delete_range_async,
    _flush_async,
    _compact_range_async,
    _verify_checksum_async,
    _close_async,
)
_attach_entries(Rdict)
_snapshot_get.__name__ = "_get"
_attach(Snapshot, _snapshot_get)
_attach_entries(Snapshot)
Rdict.__aenter__ = _aenter
Rdict.__aexit__ = _aexit
Options.__getattr__ = _set_option
for _function in (destroy, repair, list_cf):
    setattr(Rdict, _function.__name__, staticmethod(_function))
del _function

# No thread of the engine calls Python when the interpreter ends.
_atexit.register(_close_all)
