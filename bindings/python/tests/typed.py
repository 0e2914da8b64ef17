"""Checked by mypy, not run: the types that a user sees."""

import karstdb


def dictionary(db: karstdb.Rdict) -> bytes:
    db[b"k"] = bytearray(b"v")
    found: bytes | None = db.get(b"k")
    otherwise: bytes | int = db.get(b"k", 1)
    assert found != otherwise
    return next(value for _, value in db.items(prefix=b"k"))


async def tasks(db: karstdb.Rdict) -> list[bytes]:
    await db.put_async(b"k", b"v", sync=True)
    found: bytes | None = await db.get_async(b"k")
    assert found
    return [key async for key, _ in db.items_async()]


def transactions(db: karstdb.TransactionDB, other: karstdb.OptimisticTransactionDB) -> bytes | None:
    with db.begin(lock_timeout=10) as txn, other.begin() as second:
        second[b"k"] = b"v"
        return txn.get_for_update(b"k")


async def transactions_of_tasks(db: karstdb.TransactionDB) -> bytes | int:
    async with db.begin() as txn:
        return await txn.get_async(b"k", 1)


def options() -> karstdb.Rdict:
    given = karstdb.Options(max_open_files=500, compaction_filter=lambda level, key, value: value == b"")
    given.set_write_buffer_size(1 << 20)
    operator = karstdb.MergeOperator("last", lambda key, existing, operands: operands[-1])
    shortest = karstdb.Comparator("shortest", lambda a, b: len(a) - len(b))
    return karstdb.open("db", given, {"logs": {"merge_operator": operator, "comparator": shortest}}, comparator=lambda a, b: len(a) - len(b))


def copies(db: karstdb.Rdict) -> bytes:
    with karstdb.BackupEngine("backups") as backups:
        backups.create_new_backup(db, flush_before_backup=True)
        latest: karstdb.BackupInfo = backups.get_backup_info()[-1]
    db.put(b"k", b"v", write_opt=karstdb.WriteOptions(disable_wal=True))
    karstdb.Checkpoint(db).create_checkpoint("copy")
    writer = karstdb.SstFileWriter()
    writer.open("1.sst")
    writer[b"k"] = b"v"
    db.ingest_external_file([writer.finish().file_path])
    with karstdb.open("other", statistics=karstdb.Statistics()):
        return latest.app_metadata


async def copies_of_tasks(db: karstdb.Rdict, backups: karstdb.BackupEngine) -> int:
    async with karstdb.open("other") as other:
        await other.compact_range_async(b"a", bottommost_level_compaction="force")
    await db.create_checkpoint_async("copy")
    await db.ingest_external_file_async(["1.sst"], move_files=True)
    made: int = await backups.create_new_backup_async(db)
    await backups.verify_backup_async(made)
    await backups.restore_db_from_backup_async(made, "restored", keep_log_files=True)
    return made


def reads(db: karstdb.Rdict, txn: karstdb.Transaction) -> list[bytes]:
    txn.get_for_update(b"k", deadline=0.5)
    assert db.get(b"k", b"", fill_cache=False) == db.multi_get([b"k"], read_tier="block_cache")[0]
    return list(db.keys(lower=b"a", readahead_size=1 << 20, io_timeout=None))


def mappings(db: karstdb.Rdict) -> list[bytes]:
    db.update({b"k": bytearray(b"v")}, sync=True)
    db.update((key, b"v") for key in reversed(db))
    popped: bytes | int = db.pop(b"k", 1)
    assert popped == db.setdefault(b"k", b"v") or len(db) == 0 or db.closed
    with karstdb.WriteBatch(db, disable_wal=True) as batch, db.snapshot() as before:
        batch.put(memoryview(b"k"), b"v")
        found: bytes | None = before.get(b"k", column_family=db, fill_cache=False)
        assert found or before[b"k"] or karstdb.__version__
    with karstdb.open(b"bytes") as other:
        assert other.multi_get(key for key in before)
    return [value for value in before.values(prefix=b"k")]


def wrong(db: karstdb.Rdict) -> None:
    db.ingest_external_file([], move_file=True)  # type: ignore[call-arg]
    db.get(b"k", fill_cach=False)  # type: ignore[call-overload]
    db.iter(value_size_soft_limit=1)  # type: ignore[call-arg]
    db["text"] = b"v"  # type: ignore[index]
    db.put(b"k", 1)  # type: ignore[arg-type]
