from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Self, TypedDict, TypeVar, Unpack, final, overload

from typing_extensions import Buffer

_T = TypeVar("_T")
_Path = str | PathLike[str]
_FullMerge = Callable[[bytes, bytes | None, list[bytes]], Buffer]
_Filter = Callable[[int, bytes, bytes], Buffer | bool | None]
_Compare = Callable[[bytes, bytes], int]
_Option = (
    str
    | int
    | float
    | bool
    | None
    | MergeOperator
    | CompactionFilter
    | Comparator
    | Statistics
    | _FullMerge
    | _Filter
    | _Compare
)
_Options = Mapping[str, _Option] | str | Options
_Families = Mapping[str, _Options | None]

class _Read(TypedDict, total=False):
    read_tier: Literal["all", "block_cache", "memtable"]
    verify_checksums: bool
    fill_cache: bool
    ignore_range_deletions: bool
    async_io: bool
    deadline: float | None
    io_timeout: float | None

class _MultiGet(_Read, total=False):
    optimize_multiget_for_io: bool
    value_size_soft_limit: int

class _Iteration(_Read, total=False):
    readahead_size: int
    max_skippable_internal_keys: int
    total_order_seek: bool
    auto_prefix_mode: bool
    prefix_same_as_start: bool
    adaptive_readahead: bool
    auto_readahead_size: bool

class Error(Exception): ...
class CallbackFailed(Error): ...
class Corruption(Error): ...
class Io(Error): ...
class NoSpace(Io): ...
class InvalidArgument(Error): ...
class NotSupported(Error): ...
class NotFound(Error): ...
class Incomplete(Error): ...
class LimitReached(Error): ...
class TimedOut(Error): ...
class Busy(Error): ...
class Locked(Error): ...
class TryAgain(Error): ...
class Deadlock(Error): ...
class Expired(Error): ...
class Closed(Error): ...
class Panicked(Error): ...

def open(
    path: _Path,
    options: _Options | None = None,
    column_families: _Families | None = None,
    *,
    mode: Literal["rw", "r", "secondary"] = "rw",
    secondary_path: _Path | None = None,
    **named: _Option,
) -> Rdict: ...
@final
class Options:
    def __init__(self, options: _Options | None = None, /, **named: _Option) -> None: ...
    def set(self, name: str, value: _Option) -> None: ...
    def __setitem__(self, name: str, value: _Option, /) -> None: ...
    def __getattr__(self, name: str) -> Callable[[_Option], None]: ...

@final
class MergeOperator:
    def __init__(
        self,
        name: str,
        full_merge: _FullMerge,
        partial_merge: Callable[[bytes, list[bytes]], Buffer | None] | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...

@final
class CompactionFilter:
    def __init__(self, name: str, filter: _Filter) -> None: ...
    @property
    def name(self) -> str: ...

@final
class Comparator:
    def __init__(self, name: str, compare: _Compare) -> None: ...
    @property
    def name(self) -> str: ...

class _Repaired(TypedDict):
    column_families: dict[str, int]
    lost: list[tuple[Path, str]]
    missing: list[Path]
    trees_made_anew: str | None

def destroy(path: _Path, options: _Options | None = None, **named: _Option) -> None: ...
def repair(path: _Path, options: _Options | None = None, **named: _Option) -> _Repaired: ...
def list_cf(path: _Path, options: _Options | None = None, **named: _Option) -> list[str]: ...

@final
class WriteOptions:
    def __init__(
        self,
        *,
        sync: bool = False,
        disable_wal: bool = False,
        no_slowdown: bool = False,
        timeout: float | None = None,
        low_pri: bool = False,
        ignore_missing_column_families: bool = False,
    ) -> None: ...

class _Histogram(TypedDict):
    count: int
    sum: int
    min: int
    max: int
    average: float
    median: float
    p95: float
    p99: float

@final
class Statistics:
    def __init__(
        self,
        level: Literal[
            "disable_all",
            "except_histogram_or_timers",
            "except_timers",
            "except_detailed_timers",
            "except_time_for_mutex",
            "all",
        ] = "except_detailed_timers",
    ) -> None: ...
    def ticker(self, name: str) -> int: ...
    def tickers(self) -> dict[str, int]: ...
    def histogram(self, name: str) -> _Histogram: ...
    def histograms(self) -> dict[str, _Histogram]: ...
    def reset(self) -> None: ...

@final
class Checkpoint:
    def __init__(self, db: Rdict) -> None: ...
    def create_checkpoint(self, path: _Path, log_size_for_flush: int = 0) -> None: ...

@final
class BackupInfo:
    @property
    def backup_id(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def number_files(self) -> int: ...
    @property
    def app_metadata(self) -> bytes: ...

@final
class BackupEngine:
    def __init__(
        self,
        backup_dir: _Path,
        *,
        read_only: bool = False,
        share_table_files: bool = True,
        share_files_with_checksum: bool = True,
        backup_log_files: bool = True,
        destroy_old_data: bool = False,
        max_background_operations: int = 1,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...
    def create_new_backup(
        self, db: Rdict, *, flush_before_backup: bool = False, app_metadata: bytes = b""
    ) -> int: ...
    def get_backup_info(self) -> list[BackupInfo]: ...
    def get_corrupted_backups(self) -> list[tuple[int, str]]: ...
    def verify_backup(self, backup_id: int, verify_with_checksum: bool = True) -> None: ...
    def purge_old_backups(self, keep: int) -> None: ...
    def delete_backup(self, backup_id: int) -> None: ...
    def garbage_collect(self) -> None: ...
    def restore_db_from_backup(
        self, backup_id: int, db_dir: _Path, wal_dir: _Path | None = None, *, keep_log_files: bool = False
    ) -> None: ...
    def restore_db_from_latest_backup(
        self, db_dir: _Path, wal_dir: _Path | None = None, *, keep_log_files: bool = False
    ) -> None: ...
    def close(self) -> None: ...

@final
class ExternalSstFileInfo:
    @property
    def file_path(self) -> Path: ...
    @property
    def smallest_key(self) -> bytes: ...
    @property
    def largest_key(self) -> bytes: ...
    @property
    def file_size(self) -> int: ...
    @property
    def num_entries(self) -> int: ...
    @property
    def num_range_del_entries(self) -> int: ...

@final
class SstFileWriter:
    def __init__(self, options: _Options | None = None, column_family: Rdict | None = None) -> None: ...
    def open(self, path: _Path) -> None: ...
    def put(self, key: Buffer, value: Buffer) -> None: ...
    def merge(self, key: Buffer, operand: Buffer) -> None: ...
    def delete(self, key: Buffer) -> None: ...
    def delete_range(self, begin: Buffer, end: Buffer) -> None: ...
    def __setitem__(self, key: Buffer, value: Buffer, /) -> None: ...
    def __delitem__(self, key: Buffer, /) -> None: ...
    def file_size(self) -> int: ...
    def finish(self) -> ExternalSstFileInfo: ...

@final
class Snapshot:
    @property
    def sequence_number(self) -> int: ...

@final
class WriteBatch:
    def __init__(self) -> None: ...
    def put(self, key: Buffer, value: Buffer, column_family: Rdict | None = None) -> None: ...
    def delete(self, key: Buffer, column_family: Rdict | None = None) -> None: ...
    def delete_range(self, begin: Buffer, end: Buffer, column_family: Rdict | None = None) -> None: ...
    def merge(self, key: Buffer, operand: Buffer, column_family: Rdict | None = None) -> None: ...
    def clear(self) -> None: ...

@final
class RdictIter:
    def seek_to_first(self) -> None: ...
    def seek_to_last(self) -> None: ...
    def seek(self, key: Buffer) -> None: ...
    def seek_for_prev(self, key: Buffer) -> None: ...
    def next(self) -> None: ...
    def prev(self) -> None: ...
    def valid(self) -> bool: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def close(self) -> None: ...

class Rdict:
    def __init__(
        self,
        path: _Path,
        options: _Options | None = None,
        column_families: _Families | None = None,
        *,
        mode: Literal["rw", "r", "secondary"] = "rw",
        secondary_path: _Path | None = None,
        **named: _Option,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...
    def __getitem__(self, key: Buffer, /) -> bytes: ...
    def __setitem__(self, key: Buffer, value: Buffer, /) -> None: ...
    def __delitem__(self, key: Buffer, /) -> None: ...
    def __contains__(self, key: Buffer, /) -> bool: ...
    def __iter__(self) -> Iterator[bytes]: ...
    @overload
    def get(self, key: Buffer, default: None = None, *, snapshot: Snapshot | None = None, **read: Unpack[_Read]) -> bytes | None: ...
    @overload
    def get(self, key: Buffer, default: _T, *, snapshot: Snapshot | None = None, **read: Unpack[_Read]) -> bytes | _T: ...
    def multi_get(self, keys: Sequence[Buffer], snapshot: Snapshot | None = None, **read: Unpack[_MultiGet]) -> list[bytes | None]: ...
    def put(self, key: Buffer, value: Buffer, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None) -> None: ...
    def delete(self, key: Buffer, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None) -> None: ...
    def delete_range(
        self, begin: Buffer, end: Buffer, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None
    ) -> None: ...
    def merge(self, key: Buffer, operand: Buffer, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None) -> None: ...
    def write(self, batch: WriteBatch, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None) -> None: ...
    def flush(self) -> None: ...
    def flush_wal(self, sync: bool = True) -> None: ...
    def compact_range(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        bottommost_level_compaction: Literal[
            "skip", "if_have_compaction_filter", "force", "force_optimized"
        ] = "if_have_compaction_filter",
    ) -> None: ...
    def approximate_size(
        self, begin: Buffer, end: Buffer, *, include_memtables: bool = False, include_files: bool = True
    ) -> int: ...
    def key_may_exist(self, key: Buffer) -> bool: ...
    def ingest_external_file(
        self,
        paths: Sequence[_Path],
        *,
        move_files: bool = False,
        link_files: bool = False,
        snapshot_consistency: bool = True,
        allow_global_seqno: bool = True,
        allow_blocking_flush: bool = True,
        ingest_behind: bool = False,
        verify_checksums_before_ingest: bool = False,
        fail_if_not_bottommost_level: bool = False,
        allow_db_generated_files: bool = False,
    ) -> None: ...
    def set_options(self, options: Mapping[str, str | int | float | bool | None]) -> None: ...
    def set_db_options(self, options: Mapping[str, str | int | float | bool | None]) -> None: ...
    def verify_checksum(self) -> None: ...
    def path(self) -> Path: ...
    @staticmethod
    def destroy(path: _Path, options: _Options | None = None, **named: _Option) -> None: ...
    @staticmethod
    def repair(path: _Path, options: _Options | None = None, **named: _Option) -> _Repaired: ...
    @staticmethod
    def list_cf(path: _Path, options: _Options | None = None, **named: _Option) -> list[str]: ...
    def snapshot(self) -> Snapshot: ...
    def property_value(self, name: str) -> str | None: ...
    def property_int_value(self, name: str) -> int | None: ...
    def latest_sequence_number(self) -> int: ...
    def try_catch_up_with_primary(self) -> None: ...
    def create_checkpoint(self, path: _Path) -> None: ...
    def create_column_family(
        self, name: str, options: _Options | None = None, **named: _Option
    ) -> Rdict: ...
    def get_column_family(self, name: str) -> Rdict: ...
    def drop_column_family(self, name: str) -> None: ...
    def close(self) -> None: ...
    def iter(
        self,
        *,
        snapshot: Snapshot | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        **read: Unpack[_Iteration],
    ) -> RdictIter: ...
    def items(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Iteration],
    ) -> Iterator[tuple[bytes, bytes]]: ...
    def keys(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Iteration],
    ) -> Iterator[bytes]: ...
    def values(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Iteration],
    ) -> Iterator[bytes]: ...
    def items_async(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Iteration],
    ) -> AsyncIterator[tuple[bytes, bytes]]: ...
    @overload
    async def get_async(
        self, key: Buffer, default: None = None, *, snapshot: Snapshot | None = None, **read: Unpack[_Read]
    ) -> bytes | None: ...
    @overload
    async def get_async(
        self, key: Buffer, default: _T, *, snapshot: Snapshot | None = None, **read: Unpack[_Read]
    ) -> bytes | _T: ...
    async def multi_get_async(
        self, keys: Iterable[Buffer], snapshot: Snapshot | None = None, **read: Unpack[_MultiGet]
    ) -> list[bytes | None]: ...
    async def put_async(
        self, key: Buffer, value: Buffer, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None
    ) -> None: ...
    async def delete_async(self, key: Buffer, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None) -> None: ...
    async def write_async(
        self, batch: WriteBatch, *, sync: bool = False, disable_wal: bool = False, write_opt: WriteOptions | None = None
    ) -> None: ...
    async def merge_async(
        self,
        key: Buffer,
        operand: Buffer,
        *,
        sync: bool = False,
        disable_wal: bool = False,
        write_opt: WriteOptions | None = None,
    ) -> None: ...
    async def delete_range_async(
        self,
        begin: Buffer,
        end: Buffer,
        *,
        sync: bool = False,
        disable_wal: bool = False,
        write_opt: WriteOptions | None = None,
    ) -> None: ...
    async def flush_async(self) -> None: ...

@final
class TransactionDB(Rdict):
    def __init__(
        self,
        path: _Path,
        options: _Options | None = None,
        column_families: _Families | None = None,
        *,
        max_num_locks: int = -1,
        max_num_deadlocks: int = 5,
        num_stripes: int = 16,
        transaction_lock_timeout: int = 1000,
        default_lock_timeout: int = 1000,
        write_policy: Literal["write_committed", "write_prepared"] = "write_committed",
        skip_concurrency_control: bool = False,
        **named: _Option,
    ) -> None: ...
    def begin(
        self,
        *,
        sync: bool = False,
        disable_wal: bool = False,
        set_snapshot: bool = False,
        lock_timeout: int = -1,
        expiration: int = -1,
        deadlock_detect: bool = False,
        deadlock_detect_depth: int = 50,
        max_write_batch_size: int = 0,
        skip_concurrency_control: bool = False,
        skip_prepare: bool = True,
    ) -> Transaction: ...
    def get_all_prepared_transactions(self) -> list[bytes]: ...
    def get_transaction_by_name(self, name: Buffer) -> Transaction: ...

@final
class OptimisticTransactionDB(Rdict):
    def __init__(
        self,
        path: _Path,
        options: _Options | None = None,
        column_families: _Families | None = None,
        *,
        occ_lock_buckets: int = 1048576,
        **named: _Option,
    ) -> None: ...
    def begin(
        self, *, sync: bool = False, disable_wal: bool = False, set_snapshot: bool = False
    ) -> Transaction: ...

@final
class Transaction:
    @property
    def name(self) -> bytes | None: ...
    @property
    def ended(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: object
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: object
    ) -> None: ...
    def __getitem__(self, key: Buffer, /) -> bytes: ...
    def __setitem__(self, key: Buffer, value: Buffer, /) -> None: ...
    def __delitem__(self, key: Buffer, /) -> None: ...
    def __contains__(self, key: Buffer, /) -> bool: ...
    def __iter__(self) -> Iterator[bytes]: ...
    @overload
    def get(
        self,
        key: Buffer,
        default: None = None,
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Read],
    ) -> bytes | None: ...
    @overload
    def get(
        self,
        key: Buffer,
        default: _T,
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Read],
    ) -> bytes | _T: ...
    def multi_get(
        self,
        keys: Sequence[Buffer],
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        **read: Unpack[_MultiGet],
    ) -> list[bytes | None]: ...
    def get_for_update(
        self,
        key: Buffer,
        column_family: Rdict | None = None,
        *,
        exclusive: bool = True,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Read],
    ) -> bytes | None: ...
    def put(self, key: Buffer, value: Buffer, column_family: Rdict | None = None) -> None: ...
    def delete(self, key: Buffer, column_family: Rdict | None = None) -> None: ...
    def merge(self, key: Buffer, operand: Buffer, column_family: Rdict | None = None) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def set_save_point(self) -> None: ...
    def rollback_to_save_point(self) -> None: ...
    def pop_save_point(self) -> None: ...
    def set_snapshot(self) -> None: ...
    def clear_snapshot(self) -> None: ...
    def snapshot(self) -> Snapshot | None: ...
    def set_name(self, name: Buffer) -> None: ...
    def prepare(self) -> None: ...
    def set_lock_timeout(self, milliseconds: int) -> None: ...
    def iter(
        self,
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        **read: Unpack[_Iteration],
    ) -> RdictIter: ...
    def items(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        column_family: Rdict | None = None,
        **read: Unpack[_Iteration],
    ) -> Iterator[tuple[bytes, bytes]]: ...
    def keys(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        column_family: Rdict | None = None,
        **read: Unpack[_Iteration],
    ) -> Iterator[bytes]: ...
    def values(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        column_family: Rdict | None = None,
        **read: Unpack[_Iteration],
    ) -> Iterator[bytes]: ...
    def items_async(
        self,
        backwards: bool = False,
        from_key: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        lower: Buffer | None = None,
        upper: Buffer | None = None,
        snapshot: Snapshot | None = None,
        column_family: Rdict | None = None,
        **read: Unpack[_Iteration],
    ) -> AsyncIterator[tuple[bytes, bytes]]: ...
    @overload
    async def get_async(
        self,
        key: Buffer,
        default: None = None,
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Read],
    ) -> bytes | None: ...
    @overload
    async def get_async(
        self,
        key: Buffer,
        default: _T,
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Read],
    ) -> bytes | _T: ...
    async def multi_get_async(
        self,
        keys: Iterable[Buffer],
        column_family: Rdict | None = None,
        *,
        snapshot: Snapshot | None = None,
        **read: Unpack[_MultiGet],
    ) -> list[bytes | None]: ...
    async def get_for_update_async(
        self,
        key: Buffer,
        column_family: Rdict | None = None,
        *,
        exclusive: bool = True,
        snapshot: Snapshot | None = None,
        **read: Unpack[_Read],
    ) -> bytes | None: ...
    async def put_async(self, key: Buffer, value: Buffer, column_family: Rdict | None = None) -> None: ...
    async def delete_async(self, key: Buffer, column_family: Rdict | None = None) -> None: ...
    async def merge_async(
        self, key: Buffer, operand: Buffer, column_family: Rdict | None = None
    ) -> None: ...
    async def prepare_async(self) -> None: ...
    async def commit_async(self) -> None: ...
    async def rollback_async(self) -> None: ...
