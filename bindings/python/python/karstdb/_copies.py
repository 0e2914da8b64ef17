"""The part of copies and backups that is written in Python: their calls in tasks.

A task that is cancelled drops the call's future: it ends soon, and leaves a whole copy or none.
"""

from ._asyncio import drive
from ._karstdb import BackupEngine, Checkpoint, Rdict
from ._methods import attach


async def _create_checkpoint_async(self, path, log_size_for_flush=0):
    """As ``create_checkpoint``. When the task is cancelled, nothing is left, or all was done."""
    await drive(self._create_checkpoint_operation(path, log_size_for_flush))


attach(Checkpoint, _create_checkpoint_async)


async def _create_checkpoint_async(self, path):
    """As ``create_checkpoint``. When the task is cancelled, nothing is left, or all was done."""
    await drive(self._create_checkpoint_operation(path))


async def _ingest_external_file_async(self, paths, **options):
    """As ``ingest_external_file``. Once it has begun it goes on when the task is cancelled."""
    await drive(self._ingest_operation(list(paths), options))


attach(Rdict, _create_checkpoint_async, _ingest_external_file_async)


async def _create_new_backup_async(self, db, *, flush_before_backup=False, app_metadata=b""):
    """As ``create_new_backup``. When the task is cancelled there is no such backup, or a whole one
    if all was done."""
    return await drive(self._create_new_backup_operation(db, flush_before_backup, app_metadata))


async def _verify_backup_async(self, backup_id, verify_with_checksum=True):
    """As ``verify_backup``."""
    await drive(self._verify_backup_operation(backup_id, verify_with_checksum))


async def _restore_db_from_backup_async(self, backup_id, db_dir, wal_dir=None, *, keep_log_files=False):
    """As ``restore_db_from_backup``. When the task is cancelled there is no database, or the
    restored one if all was done; the directory stays locked until the call has ended."""
    await drive(self._restore_operation(backup_id, db_dir, wal_dir, keep_log_files))


async def _restore_db_from_latest_backup_async(self, db_dir, wal_dir=None, *, keep_log_files=False):
    """The same of the newest backup."""
    await drive(self._restore_operation(None, db_dir, wal_dir, keep_log_files))


attach(
    BackupEngine,
    _create_new_backup_async,
    _verify_backup_async,
    _restore_db_from_backup_async,
    _restore_db_from_latest_backup_async,
)
