"""Coroutine forms of checkpoints, ingestion and backups.

A cancelled task drops the call's future, which ends soon and leaves a complete copy or none.
"""

from ._asyncio import drive
from ._karstdb import BackupEngine, Checkpoint, Rdict
from ._methods import attach


async def _create_checkpoint_async(self, path, log_size_for_flush=0):
    """Coroutine form of ``create_checkpoint``. A cancelled task leaves a complete copy or none."""
    await drive(self._create_checkpoint_operation(path, log_size_for_flush))


attach(Checkpoint, _create_checkpoint_async)


async def _create_checkpoint_async(self, path):
    """Coroutine form of ``create_checkpoint``. A cancelled task leaves a complete copy or none."""
    await drive(self._create_checkpoint_operation(path))


async def _ingest_external_file_async(self, paths, **options):
    """Coroutine form of ``ingest_external_file``. A started ingestion continues if the task is
    cancelled."""
    await drive(self._ingest_operation(list(paths), options))


attach(Rdict, _create_checkpoint_async, _ingest_external_file_async)


async def _create_new_backup_async(self, db, *, flush_before_backup=False, app_metadata=b""):
    """Coroutine form of ``create_new_backup``. A cancelled task leaves a complete backup or none."""
    return await drive(self._create_new_backup_operation(db, flush_before_backup, app_metadata))


async def _verify_backup_async(self, backup_id, verify_with_checksum=True):
    """Coroutine form of ``verify_backup``."""
    await drive(self._verify_backup_operation(backup_id, verify_with_checksum))


async def _restore_db_from_backup_async(self, backup_id, db_dir, wal_dir=None, *, keep_log_files=False):
    """Coroutine form of ``restore_db_from_backup``. A cancelled task leaves the complete restored
    database or none; the directory stays locked until the restore has ended."""
    await drive(self._restore_operation(backup_id, db_dir, wal_dir, keep_log_files))


async def _restore_db_from_latest_backup_async(self, db_dir, wal_dir=None, *, keep_log_files=False):
    """Coroutine form of ``restore_db_from_latest_backup``. Cancellation is as in
    ``restore_db_from_backup_async``."""
    await drive(self._restore_operation(None, db_dir, wal_dir, keep_log_files))


attach(
    BackupEngine,
    _create_new_backup_async,
    _verify_backup_async,
    _restore_db_from_backup_async,
    _restore_db_from_latest_backup_async,
)
