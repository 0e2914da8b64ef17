"""Copies, files made elsewhere, repairs, statistics, and how things are written."""

import asyncio
import os
import threading
import time

import pytest

import karstdb


@pytest.fixture
def db(tmp_path):
    with karstdb.open(tmp_path / "db") as db:
        yield db


def test_backups_are_made_verified_restored_and_purged(db, tmp_path):
    with karstdb.BackupEngine(tmp_path / "backups") as backups:
        for i in range(3):
            db[b"k"] = b"%d" % i
            assert backups.create_new_backup(db, flush_before_backup=i == 0, app_metadata=b"m%d" % i) == i + 1
        info = backups.get_backup_info()
        assert [(one.backup_id, one.app_metadata) for one in info] == [(i + 1, b"m%d" % i) for i in range(3)]
        assert all(one.size > 0 and one.number_files > 0 and one.timestamp > 0 for one in info)
        assert "backup_id=1" in repr(info[0])
        backups.verify_backup(2)
        backups.restore_db_from_backup(2, tmp_path / "second")
        backups.restore_db_from_latest_backup(tmp_path / "latest")
        with pytest.raises(karstdb.NotFound):
            backups.restore_db_from_backup(9, tmp_path / "ninth")
        backups.delete_backup(2)
        backups.purge_old_backups(1)
        backups.garbage_collect()
        assert [one.backup_id for one in backups.get_backup_info()] == [3]
        assert backups.get_corrupted_backups() == []
        with pytest.raises(karstdb.Error):
            backups.restore_db_from_latest_backup(tmp_path / "db")  # it is open
    with pytest.raises(karstdb.Closed):
        backups.get_backup_info()
    for name, value in (("second", b"1"), ("latest", b"2")):
        with karstdb.open(tmp_path / name, mode="r") as copy:
            assert copy[b"k"] == value
    with karstdb.BackupEngine(tmp_path / "backups", read_only=True) as backups:
        backups.restore_db_from_latest_backup(tmp_path / "again")
        with pytest.raises(karstdb.Error):
            backups.create_new_backup(db)


def test_a_damaged_backup_is_found(db, tmp_path):
    db[b"k"] = b"v"
    with karstdb.BackupEngine(tmp_path / "backups") as backups:
        backups.create_new_backup(db, flush_before_backup=True)
        [table] = (tmp_path / "backups" / "shared_checksum").glob("*.sst")
        data = bytearray(table.read_bytes())
        data[10] ^= 1
        table.write_bytes(data)
        backups.verify_backup(1, verify_with_checksum=False)
        with pytest.raises(karstdb.Corruption):
            backups.verify_backup(1)
        with pytest.raises(karstdb.Corruption):
            backups.restore_db_from_latest_backup(tmp_path / "copy")
        db.close()
        with pytest.raises(karstdb.Closed):
            backups.create_new_backup(db)


def test_checkpoints(db, tmp_path):
    db[b"k"] = b"v"
    copies = karstdb.Checkpoint(db)
    copies.create_checkpoint(tmp_path / "copy")
    copies.create_checkpoint(tmp_path / "with_logs", log_size_for_flush=1 << 20)
    db[b"k"] = b"later"
    for name in ("copy", "with_logs"):
        with karstdb.open(tmp_path / name) as copy:
            assert copy[b"k"] == b"v"
    with pytest.raises(karstdb.Error):
        copies.create_checkpoint(tmp_path / "copy")
    db.close()
    with pytest.raises(karstdb.Closed):
        copies.create_checkpoint(tmp_path / "third")


def test_files_made_elsewhere_are_ingested(db, tmp_path):
    logs = db.create_column_family("logs")
    writer = karstdb.SstFileWriter()
    with pytest.raises(karstdb.Error):
        writer.put(b"a", b"1")  # no file is open
    writer.open(tmp_path / "1.sst")
    writer[b"a"] = b"1"
    writer.put(b"b", b"2")
    with pytest.raises(karstdb.InvalidArgument):
        writer.put(b"a", b"again")
    with pytest.raises(TypeError):
        writer.put("c", b"text")
    del writer[b"c"]
    writer.delete_range(b"x", b"y")
    info = writer.finish()
    assert (info.smallest_key, info.num_entries, info.num_range_del_entries) == (b"a", 3, 1)
    assert info.file_size == (tmp_path / "1.sst").stat().st_size
    db[b"c"], db[b"xx"] = b"3", b"4"
    db.ingest_external_file([tmp_path / "1.sst"], verify_checksums_before_ingest=True)
    assert list(db.items()) == [(b"a", b"1"), (b"b", b"2")]

    writer = karstdb.SstFileWriter("compression=kNoCompression", logs)
    writer.open(tmp_path / "2.sst")
    for i in range(1000):
        writer.put(b"%04d" % i, b"v")
    writer.finish()
    logs.ingest_external_file([str(tmp_path / "2.sst")], move_files=True)
    assert len(list(logs)) == 1000 and not (tmp_path / "2.sst").exists()
    with pytest.raises(karstdb.NotFound):
        db.ingest_external_file([tmp_path / "none.sst"])
    (tmp_path / "bad.sst").write_bytes(os.urandom(1000))
    with pytest.raises(karstdb.Corruption):
        db.ingest_external_file([tmp_path / "bad.sst"])


def test_destroy_repair_and_list(tmp_path):
    path = tmp_path / "db"
    with karstdb.open(path, column_families={"logs": None}) as db:
        db[b"a"] = b"1"
        db.flush()
        with pytest.raises(karstdb.Error):
            karstdb.destroy(path)
    assert karstdb.Rdict.list_cf(path) == karstdb.list_cf(path) == ["default", "logs"]
    (path / "CURRENT").unlink()
    with pytest.raises(karstdb.Error):
        karstdb.open(path, create_if_missing=False)
    report = karstdb.repair(path)
    assert set(report) == {"column_families", "lost", "missing", "trees_made_anew"}
    assert report["column_families"]["default"] == 1 and report["missing"] == []
    with karstdb.open(path) as db:
        assert db[b"a"] == b"1"
    (path / "mine").write_text("mine")
    karstdb.Rdict.destroy(path)
    assert [entry.name for entry in path.iterdir()] == ["mine"]


def test_statistics(tmp_path):
    statistics = karstdb.Statistics()
    with karstdb.open(tmp_path / "db", statistics=statistics) as db:
        db[b"a"] = b"1"
        assert db[b"a"] == b"1"
        assert statistics.ticker("rocksdb.number.keys.written") == 1
        assert statistics.tickers()["rocksdb.number.keys.read"] == 1
        gets = statistics.histogram("rocksdb.db.get.micros")
        assert gets["count"] == 1 and gets["min"] <= gets["median"] <= gets["max"]
        assert set(gets) == {"count", "sum", "min", "max", "average", "median", "p95", "p99"}
        assert statistics.histograms()["rocksdb.db.get.micros"] == gets
        statistics.reset()
        assert statistics.ticker("rocksdb.number.keys.written") == 0
    with pytest.raises(karstdb.InvalidArgument):
        statistics.ticker("rocksdb.no.such.ticker")
    with pytest.raises(karstdb.InvalidArgument):
        statistics.histogram("rocksdb.no.such.histogram")
    with pytest.raises(ValueError):
        karstdb.Statistics("some")
    with pytest.raises(TypeError):
        karstdb.open(tmp_path / "db", statistics=True)


def test_write_options(tmp_path):
    statistics = karstdb.Statistics()
    with karstdb.open(tmp_path / "db", statistics=statistics, merge_operator="uint64add") as db:
        synced = lambda: statistics.ticker("rocksdb.wal.synced")  # noqa: E731
        before = synced()
        db.put(b"a", b"1", write_opt=karstdb.WriteOptions(sync=True))
        db.delete(b"a", sync=True)
        assert synced() == before + 2
        lost = karstdb.WriteOptions(disable_wal=True, no_slowdown=True, low_pri=True, timeout=1.5)
        logged = statistics.ticker("rocksdb.wal.bytes")
        db.put(b"b", b"2", write_opt=lost)
        db.merge(b"n", bytes(8), write_opt=lost)
        db.delete_range(b"x", b"y", write_opt=lost)
        asyncio.run(db.put_async(b"c", b"3", write_opt=lost))
        asyncio.run(db.merge_async(b"n", bytes(8), write_opt=lost))
        asyncio.run(db.delete_range_async(b"c", b"d", write_opt=lost))
        assert statistics.ticker("rocksdb.wal.bytes") == logged
        assert list(db) == [b"b", b"n"]
    with pytest.raises(ValueError):
        karstdb.WriteOptions(timeout=-1)


def test_sizes_and_options_of_an_open_database(db, tmp_path):
    assert db.path() == tmp_path / "db"
    for i in range(2000):
        db[b"%04d" % i] = os.urandom(100)
    assert db.approximate_size(b"0", b"9") == 0
    assert db.approximate_size(b"0", b"9", include_memtables=True) > 0
    db.flush()
    half, whole = db.approximate_size(b"0", b"1"), db.approximate_size(b"0", b"9")
    assert 0 < half < whole and whole > 200_000
    assert db.key_may_exist(b"0000") and not db.key_may_exist(b"z")
    db.compact_range(bottommost_level_compaction="force")
    assert db.property_value("rocksdb.num-files-at-level0") == "0"
    with pytest.raises(ValueError):
        db.compact_range(bottommost_level_compaction="some")
    db.set_options({"write_buffer_size": 1 << 20, "disable_auto_compactions": True})
    db.set_db_options({"max_background_jobs": 3})
    with pytest.raises(karstdb.InvalidArgument):
        db.set_options({"write_bufer_size": 1})
    with pytest.raises(TypeError):
        db.set_options("write_buffer_size=1")
    db.verify_checksum()
    db.flush_wal()
    db.close()
    for call in (
        lambda: db.approximate_size(b"a", b"b"),
        lambda: db.key_may_exist(b"a"),
        lambda: db.set_options({"write_buffer_size": 1}),
        lambda: db.verify_checksum(),
        lambda: db.ingest_external_file([tmp_path / "1.sst"]),
    ):
        with pytest.raises(karstdb.Closed):
            call()


def test_long_calls_let_other_threads_run(db, tmp_path):
    """A backup and a compaction go on while a thread of Python's counts."""
    for i in range(20_000):
        db[b"%05d" % i] = b"v" * 50
    done = threading.Event()
    counted = []

    def count():
        while not done.is_set():
            counted.append(1)
            done.wait(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    with karstdb.BackupEngine(tmp_path / "backups") as backups:
        before = len(counted)
        backups.create_new_backup(db, flush_before_backup=True)
        db.compact_range()
        assert len(counted) > before
    done.set()
    counter.join()


def filled(path, count=100):
    db = karstdb.open(path, compression="kNoCompression")
    for n in range(count):
        db[b"%04d" % n] = bytes([n % 251]) * 1000
    return db


def test_copies_and_backups_in_tasks(tmp_path):
    with filled(tmp_path / "db") as db, karstdb.BackupEngine(tmp_path / "backups") as backups:
        before = list(db.items())

        async def work():
            with pytest.raises(karstdb.NotFound, match="no backup"):
                await backups.restore_db_from_latest_backup_async(tmp_path / "none")
            # Calls of one engine take turns, and other tasks run meanwhile.
            outcomes = await asyncio.gather(
                backups.create_new_backup_async(db, flush_before_backup=True, app_metadata=b"first"),
                backups.create_new_backup_async(db),
                db.create_checkpoint_async(tmp_path / "copy"),
                karstdb.Checkpoint(db).create_checkpoint_async(tmp_path / "other", 1 << 40),
                db.put_async(b"9999", b"later"),
            )
            assert outcomes == [1, 2, None, None, None]
            await asyncio.gather(backups.verify_backup_async(1), backups.verify_backup_async(2, False))
            await backups.restore_db_from_backup_async(1, tmp_path / "restored", tmp_path / "logs")
            await backups.restore_db_from_latest_backup_async(tmp_path / "latest", keep_log_files=True)
            with pytest.raises(karstdb.NotFound):
                await backups.verify_backup_async(3)
            with pytest.raises(karstdb.InvalidArgument):
                await db.create_checkpoint_async(tmp_path / "copy")

        asyncio.run(work())
        assert [info.app_metadata for info in backups.get_backup_info()] == [b"first", b""]
    for name in ("copy", "other", "latest", "restored"):
        named = {"wal_dir": str(tmp_path / "logs")} if name == "restored" else {}
        with karstdb.open(tmp_path / name, **named) as copy:
            assert [entry for entry in copy.items() if entry[0] != b"9999"] == before
    with pytest.raises(karstdb.Closed):
        asyncio.run(backups.create_new_backup_async(db))


def test_a_damaged_backup_is_found_in_a_task(tmp_path):
    with filled(tmp_path / "db") as db, karstdb.BackupEngine(tmp_path / "backups") as backups:
        made = asyncio.run(backups.create_new_backup_async(db, flush_before_backup=True))
        [table] = (tmp_path / "backups").rglob("*.sst")
        content = bytearray(table.read_bytes())
        content[len(content) // 2] ^= 1
        table.write_bytes(content)
        asyncio.run(backups.verify_backup_async(made, False))
        with pytest.raises(karstdb.Corruption):
            asyncio.run(backups.verify_backup_async(made))


def test_a_backup_that_is_cancelled_leaves_the_engine_whole(tmp_path):
    with filled(tmp_path / "db", 3000) as db, karstdb.BackupEngine(tmp_path / "backups") as backups:
        db.flush()

        async def cancelled(call, steps):
            task = asyncio.ensure_future(call)
            for _ in range(steps):
                await asyncio.sleep(0)
            if not task.done():
                # A call that blocks would wait for a task that its own thread drives.
                with pytest.raises(karstdb.Busy, match="backup engine"):
                    backups.get_backup_info()
                with pytest.raises(karstdb.Busy):
                    backups.close()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return task.cancelled()

        ended_early = 0
        for steps in range(1, 6):
            ended_early += asyncio.run(cancelled(backups.create_new_backup_async(db), steps))
            ended_early += asyncio.run(cancelled(backups.verify_backup_async(1), steps))
        assert ended_early > 0
        # Each existing backup is complete, and another one can be made.
        made = backups.create_new_backup(db)
        for info in backups.get_backup_info():
            backups.verify_backup(info.backup_id)
        assert backups.get_corrupted_backups() == []
        path = tmp_path / "restored"
        asyncio.run(cancelled(backups.restore_db_from_backup_async(made, path), 2))
        for _ in range(30_000):
            try:
                backups.restore_db_from_backup(made, path)
                break
            except karstdb.Locked:
                time.sleep(0.01)
        with karstdb.open(path) as restored:
            assert list(restored.items()) == list(db.items())


def test_a_checkpoint_that_is_cancelled_leaves_nothing_or_all(tmp_path):
    with filled(tmp_path / "db") as db:

        async def cancelled(path, steps):
            task = asyncio.ensure_future(db.create_checkpoint_async(path))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        paths = [tmp_path / str(steps) for steps in range(5)]
        for steps, path in enumerate(paths):
            asyncio.run(cancelled(path, steps))
        asyncio.run(db.create_checkpoint_async(tmp_path / "whole"))
        entries = list(db.items())
    for _ in range(30_000):
        # The unfinished copy is removed soon.
        if not list(tmp_path.glob("*.tmp")):
            break
        time.sleep(0.01)
    assert not list(tmp_path.glob("*.tmp"))
    for path in paths:
        if path.exists():
            with karstdb.open(path) as copy:
                assert list(copy.items()) == entries


def test_files_are_ingested_in_tasks(tmp_path):
    for name in ("1.sst", "2.sst"):
        writer = karstdb.SstFileWriter()
        writer.open(tmp_path / name)
        writer[name.encode()] = b"v"
        writer.finish()
    with karstdb.open(tmp_path / "db") as db:
        asyncio.run(db.ingest_external_file_async(iter([tmp_path / "1.sst", tmp_path / "2.sst"]), move_files=True))
        assert list(db) == [b"1.sst", b"2.sst"]
        assert not (tmp_path / "1.sst").exists()
        logs = db.create_column_family("logs")
        with pytest.raises(karstdb.NotFound):
            asyncio.run(logs.ingest_external_file_async([tmp_path / "3.sst"]))
        for ingest in (db.ingest_external_file, lambda *a, **o: asyncio.run(db.ingest_external_file_async(*a, **o))):
            with pytest.raises(TypeError, match="no option move_file; did you mean move_files?"):
                ingest([], move_file=True)
            with pytest.raises(TypeError):
                ingest([], move_files=1)


def test_the_life_of_a_database_in_tasks(tmp_path):
    def kept(level, key, value):
        if key == b"odd":
            raise LookupError("no odds")
        return key == b"gone"

    async def work():
        async with karstdb.open(tmp_path / "db", compaction_filter=kept) as db:
            for key in (b"a", b"gone"):
                await db.put_async(key, b"1")
            await db.flush_async()
            await db.verify_checksum_async()
            await db.compact_range_async(b"x", b"z")
            assert list(db) == [b"a", b"gone"]
            await db.compact_range_async()
            assert list(db) == [b"a"]
            with pytest.raises(ValueError, match="bottommost_level_compaction is"):
                await db.compact_range_async(bottommost_level_compaction="sometimes")
            await db.put_async(b"odd", b"1")
            await db.flush_async()
            with pytest.raises(karstdb.CallbackFailed, match="no odds"):
                await db.compact_range_async(bottommost_level_compaction="force")
        for call in (db.compact_range_async, db.verify_checksum_async, lambda: db.get_async(b"a")):
            with pytest.raises(karstdb.Closed):
                await call()
        await db.close_async()
        # The database is closed before the next opening, even if the task was cancelled.
        db = karstdb.open(tmp_path / "db")
        task = asyncio.ensure_future(db.close_async())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        db.close()
        async with karstdb.TransactionDB(tmp_path / "db") as again:
            assert list(again) == [b"a", b"odd"]
            [table, *_] = (tmp_path / "db").glob("*.sst")
            content = bytearray(table.read_bytes())
            content[8] ^= 1
            table.write_bytes(content)
            with pytest.raises(karstdb.Corruption):
                await again.verify_checksum_async()

    asyncio.run(work())
