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
    """Opens the database in ``path`` (``str``, ``bytes`` or a path). With ``mode="rw"`` a missing
    database is created.

    ``options`` holds RocksDB's options: a mapping, ``{"write_buffer_size": 1 << 20}``; an option
    string, ``"write_buffer_size=1M"``; or ``Options``. An option may also be a keyword argument,
    ``write_buffer_size=1 << 20``. ``column_families`` maps names of column families to their
    options; missing column families are created.
    ``mode`` is ``"rw"``, ``"r"`` (read-only) or ``"secondary"``, which needs a ``secondary_path``.
    """
    return Rdict(path, options, column_families, mode=mode, secondary_path=secondary_path, **named)


def _set_option(self, name):
    """Setters by option name: ``set_max_open_files(500)`` and ``create_if_missing(True)``."""
    option = name.removeprefix("set_")
    if not Options._knows(option):
        raise AttributeError(f"Options has no {name}: there is no option {option}")
    return lambda value: self.set(option, value)


def _get(self, key, default=None, *, snapshot=None, **read):
    """Returns the value of ``key``, or ``default``.

    ``read`` holds read options by RocksDB's names.
    """
    value = self._get(key, snapshot, read)
    return default if value is None else value


async def _get_async(self, key, default=None, *, snapshot=None, **read):
    """Coroutine form of ``get``. One thread can have many in progress."""
    value = await _drive(self._get_operation(key, snapshot, read))
    return default if value is None else value


async def _multi_get_async(self, keys, snapshot=None, **read):
    """Coroutine form of ``multi_get``."""
    return await _drive(self._multi_get_operation(list(keys), snapshot, read))


async def _write_async(self, batch, *, sync=False, disable_wal=False, write_opt=None):
    """Coroutine form of ``write``. A cancelled task writes the whole batch or none of it."""
    await _drive(self._write_operation(batch, sync, disable_wal, write_opt))


_NO_DEFAULT = object()


def _pop(self, key, default=_NO_DEFAULT, **write):
    """Removes ``key`` and returns its value.

    A missing key returns ``default``, or raises ``KeyError`` if there is no default. ``write`` holds
    write options, as for ``delete``. Reading and removing are two steps, between which another
    thread may write the key.
    """
    value = self.get(key)
    if value is None:
        if default is _NO_DEFAULT:
            raise KeyError(key)
        return default
    self.delete(key, **write)
    return value


def _setdefault(self, key, default, **write):
    """Returns the value of ``key``; a missing key is first set to ``default``.

    ``write`` holds write options, as for ``put``. Reading and writing are two steps, between which
    another thread may write the key.
    """
    value = self.get(key)
    if value is None:
        self.put(key, default, **write)
        value = self[key]
    return value


def _update(self, entries, **write):
    """Writes the entries of a mapping, or of an iterable of key-value pairs, in one batch.

    ``write`` holds write options, as for the method ``write``.
    """
    pairs = ((key, entries[key]) for key in entries.keys()) if hasattr(entries, "keys") else entries
    batch = WriteBatch(self)
    for key, value in pairs:
        batch.put(key, value)
    self.write(batch, **write)


def _clear(self, **write):
    """Removes every key by one range deletion, or, in a database that locks keys, key by key.

    ``write`` holds write options, as for the method ``write``.
    """
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
    """Returns the value of ``key`` in the snapshot, or ``default``.

    Without ``column_family`` the key is looked up in the column family that the snapshot was taken
    from. ``read`` holds read options by RocksDB's names.
    """
    value = self._get(key, read, column_family)
    return default if value is None else value


async def _put_async(self, key, value, *, sync=False, disable_wal=False, write_opt=None):
    """Coroutine form of ``put``."""
    batch = WriteBatch()
    batch.put(key, value, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _delete_async(self, key, *, sync=False, disable_wal=False, write_opt=None):
    """Coroutine form of ``delete``."""
    batch = WriteBatch()
    batch.delete(key, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _merge_async(self, key, operand, *, sync=False, disable_wal=False, write_opt=None):
    """Coroutine form of ``merge``."""
    batch = WriteBatch()
    batch.merge(key, operand, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _delete_range_async(self, begin, end, *, sync=False, disable_wal=False, write_opt=None):
    """Coroutine form of ``delete_range``."""
    batch = WriteBatch()
    batch.delete_range(begin, end, self)
    await self.write_async(batch, sync=sync, disable_wal=disable_wal, write_opt=write_opt)


async def _flush_async(self):
    """Coroutine form of ``flush``."""
    await _drive(self._flush_operation())


async def _compact_range_async(
    self, begin=None, end=None, *, bottommost_level_compaction="if_have_compaction_filter"
):
    """Coroutine form of ``compact_range``."""
    await _drive(self._compact_range_operation(begin, end, bottommost_level_compaction))
    self._filtered()


async def _verify_checksum_async(self):
    """Coroutine form of ``verify_checksum``."""
    await _drive(self._verify_checksum_operation())


async def _close_async(self):
    """Coroutine form of ``close``, called by ``async with``. A started close continues if the task
    is cancelled."""
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
