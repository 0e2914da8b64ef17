"""The package as it is installed: as a dict, by its calls, in tasks, and misused."""

import array
import asyncio
import ctypes
import mmap
import os
import signal
import threading

import pytest

import karstdb


@pytest.fixture
def db(tmp_path):
    with karstdb.open(tmp_path / "db") as db:
        yield db


def test_it_is_a_dict(db):
    db[b"a"] = b"1"
    db[bytearray(b"b")] = memoryview(b"2")
    assert db[b"a"] == b"1" and b"b" in db and b"c" not in db
    assert db.get(b"c") is None and db.get(b"c", b"none") == b"none"
    with pytest.raises(KeyError):
        db[b"c"]
    del db[b"a"]
    assert list(db.items()) == [(b"b", b"2")] and list(db) == [b"b"]
    assert db.multi_get([b"a", b"b"]) == [None, b"2"]


def test_any_buffer_is_a_key_and_a_value(db):
    words = array.array("I", [1, 2, 3])
    mapped = mmap.mmap(-1, 10)
    for buffer in (
        bytearray(b"b"),
        words,
        memoryview(words),
        memoryview(b"abcdef")[::2],
        memoryview(bytes(range(24))).cast("B", (2, 3, 4)),
        (ctypes.c_double * 2)(1, 2),
        mapped,
        array.array("d"),
    ):
        as_bytes = memoryview(buffer).tobytes()
        db[b"k"] = buffer
        assert db[b"k"] == as_bytes
        db[buffer] = b"v"
        assert buffer in db and db[as_bytes] == db[buffer] == b"v"
        assert db.multi_get([buffer]) == [b"v"]
        del db[buffer]
        assert as_bytes not in db


def test_it_has_what_a_mapping_has(db):
    logs = db.create_column_family("logs")
    assert not db and len(db) == 0 and list(reversed(db)) == []
    db.update({b"a": b"1", b"b": bytearray(b"2")})
    db.update([(b"c", b"3")], sync=True)
    logs.update(db)
    assert db and len(db) == len(logs) == 3 and list(reversed(logs)) == [b"c", b"b", b"a"]
    assert db.pop(b"a") == b"1" and db.pop(b"a", None) is None and b"a" in logs
    with pytest.raises(KeyError):
        db.pop(b"a")
    assert db.setdefault(b"b", b"9") == b"2" and db.setdefault(b"d", bytearray(b"4")) == b"4"
    assert dict(db.items()) == {b"b": b"2", b"c": b"3", b"d": b"4"}
    with pytest.raises(TypeError):
        db.update([(b"x", b"1"), ("y", b"2")])
    assert b"x" not in db
    db.clear()
    db.clear()
    assert not db and len(logs) == 3
    logs.clear()
    assert list(logs) == []
    db[b"again"] = b"v"
    assert len(db) == 1


def test_a_database_that_locks_keys_is_cleared(tmp_path):
    with karstdb.TransactionDB(tmp_path / "db") as db:
        db.update((b"%04d" % i, b"v") for i in range(2500))
        db.clear()
        assert len(db) == 0


def test_keys_of_multi_get_are_any_iterable(db):
    db[b"a"] = b"1"
    expected = [b"1", None]
    assert db.multi_get(key for key in (b"a", b"b")) == expected
    assert db.multi_get({b"a": 0, b"b": 0}) == expected and db.multi_get(iter([b"a", b"b"])) == expected
    assert asyncio.run(db.multi_get_async(key for key in (b"a", b"b"))) == expected
    with pytest.raises(TypeError):
        db.multi_get(1)

    def failing():
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.multi_get(failing())
    with karstdb.OptimisticTransactionDB(db.path().parent / "other") as other, other.begin() as txn:
        txn[b"a"] = b"1"
        assert txn.multi_get(key for key in (b"a", b"b")) == expected
        assert list(reversed(txn)) == [b"a"]


def test_a_path_is_text_or_bytes_or_an_object(tmp_path):
    path = tmp_path / "db"
    for given in (path, str(path), os.fsencode(path)):
        with karstdb.open(given) as db:
            assert db.path() == path
            db.create_checkpoint(os.fsencode(tmp_path / f"copy {type(given).__name__}"))
        assert karstdb.list_cf(given) == ["default"]
    assert len(list(tmp_path.glob("copy *"))) == 3
    for wrong in (3, None, bytearray(b"db")):
        with pytest.raises(TypeError):
            karstdb.open(wrong)


def test_closing_a_column_family_closes_its_handle_only(tmp_path):
    with karstdb.open(tmp_path / "db") as db:
        with db.create_column_family("logs") as logs:
            logs[b"a"] = b"1"
            cursor = logs.iter()
        other = db.get_column_family("logs")
        assert (logs.closed, other.closed, db.closed) == (True, False, False)
        batch = karstdb.WriteBatch()
        for call in (
            lambda: logs[b"a"],
            lambda: logs.put(b"a", b"2"),
            lambda: logs.write(batch),
            lambda: logs.snapshot(),
            lambda: len(logs),
            lambda: logs.compact_range(),
            lambda: batch.put(b"a", b"2", logs),
            lambda: asyncio.run(logs.get_async(b"a")),
        ):
            with pytest.raises(karstdb.Closed):
                call()
        logs.close()
        cursor.seek_to_first()
        assert cursor.key() == b"a" and other[b"a"] == b"1"
        db[b"b"] = b"2"

        async def closes():
            async with other:
                pass

        asyncio.run(closes())
        assert other.closed and not db.closed and db[b"b"] == b"2"
        last = db.get_column_family("logs")
    assert db.closed and last.closed
    db.close()


def test_batches_end_with_their_block(db):
    logs = db.create_column_family("logs")
    with karstdb.WriteBatch(db, sync=True) as batch:
        batch.put(b"a", b"1")
        batch.put(b"b", b"2", logs)
        assert len(batch) == 2 and "2 operations" in repr(batch) and b"a" not in db
    assert db[b"a"] == b"1" and logs[b"b"] == b"2" and len(batch) == 0
    with karstdb.WriteBatch(logs) as batch:
        batch.merge(b"never", b"written")
        batch.clear()
        batch.put(b"c", b"3")
        batch.delete(b"b")
    assert list(logs.items()) == [(b"c", b"3")] and b"c" not in db
    with pytest.raises(ZeroDivisionError), karstdb.WriteBatch(db) as batch:
        batch.put(b"d", b"4")
        raise ZeroDivisionError
    assert b"d" not in db and len(batch) == 0
    with karstdb.WriteBatch() as batch:
        batch.put(b"e", b"5")
    assert b"e" not in db
    with karstdb.TransactionDB(db.path().parent / "locking") as other, karstdb.WriteBatch(other) as batch:
        batch.put(b"a", b"1")
    with karstdb.TransactionDB(db.path().parent / "locking") as other:
        assert other[b"a"] == b"1"


def test_snapshots_are_read_from_and_let_go(db):
    logs = db.create_column_family("logs")
    db.update({b"a": b"1", b"b": b"2"})
    logs[b"a"] = b"log"
    with db.snapshot() as before, logs.snapshot() as of_logs:
        db.clear()
        db[b"c"] = b"3"
        assert before[b"a"] == b"1" and b"c" not in before and b"b" in before
        assert before.get(b"c") is None and before.get(b"c", 1) == 1
        assert before.get(b"a", column_family=logs) == of_logs.get(b"a", fill_cache=False) == b"log"
        assert list(before) == [b"a", b"b"] and list(reversed(before)) == [b"b", b"a"]
        assert list(before.items(prefix=b"b")) == [(b"b", b"2")]
        assert list(before.values(column_family=logs)) == [b"log"]
        assert str(before.sequence_number) in repr(before)
        with pytest.raises(KeyError):
            before[b"c"]
        cursor = before.iter()
    assert before.closed and "closed" in repr(before)
    cursor.seek_to_first()
    assert cursor.key() == b"a"
    for call in (
        lambda: before.get(b"a"),
        lambda: before.sequence_number,
        lambda: before.iter(),
        lambda: db.get(b"a", snapshot=before),
    ):
        with pytest.raises(karstdb.Closed):
            call()
    before.close()


def test_things_say_what_they_are(tmp_path):
    with karstdb.TransactionDB(tmp_path / "db") as db:
        logs = db.create_column_family("logs")
        assert "TransactionDB" in repr(db) and str(tmp_path / "db") in repr(db)
        assert "logs" in repr(logs) and "closed" not in repr(logs)
    assert "closed" in repr(db) and "closed" in repr(logs)
    assert karstdb.__version__.count(".") == 2


def test_ranges_prefixes_and_directions(db):
    for i in range(1000):
        db[b"%03d" % i] = b"v%d" % i
    assert len(list(db.keys())) == 1000
    assert list(db.keys(prefix=b"12")) == [b"12%d" % i for i in range(10)]
    assert list(db.keys(lower=b"005", upper=b"008")) == [b"005", b"006", b"007"]
    assert list(db.keys(True, b"002")) == [b"002", b"001", b"000"]
    assert list(db.values(from_key=b"998")) == [b"v998", b"v999"]
    db[b"\xff\xffz"] = b"last"
    assert list(db.items(prefix=b"\xff\xff")) == [(b"\xff\xffz", b"last")]
    cursor = db.iter()
    cursor.seek(b"500")
    assert cursor.valid() and cursor.key() == b"500" and cursor.value() == b"v500"
    cursor.prev()
    assert cursor.key() == b"499"
    cursor.seek_to_last()
    cursor.next()
    assert not cursor.valid() and cursor.key() is None and cursor.value() is None


def test_batches_snapshots_ranges_and_families(db, tmp_path):
    logs = db.create_column_family("logs", {"compression": "kNoCompression"})
    batch = karstdb.WriteBatch()
    for i in range(10):
        batch.put(b"k%d" % i, b"v")
    batch.put(b"line", b"text", logs)
    db.write(batch, sync=True)
    assert logs[b"line"] == b"text" and b"line" not in db
    before = db.snapshot()
    db.delete_range(b"k2", b"k8")
    assert len(list(db)) == 4 and len(list(db.items(snapshot=before))) == 10
    assert db.get(b"k5", snapshot=before) == b"v" and db.get(b"k5") is None
    db.flush()
    db.compact_range()
    assert db.property_int_value("rocksdb.estimate-num-keys") is not None
    db.create_checkpoint(tmp_path / "copy")
    with karstdb.open(tmp_path / "copy", mode="r") as copy:
        assert len(list(copy)) == 4
        assert copy.get_column_family("logs")[b"line"] == b"text"
        with pytest.raises(karstdb.Error):
            copy[b"k"] = b"v"
    db.drop_column_family("logs")
    with pytest.raises(karstdb.Error):
        db.get_column_family("logs")


def test_merges_and_options_by_name(tmp_path):
    with karstdb.open(tmp_path / "db", {"merge_operator": "uint64add"}) as db:
        for _ in range(3):
            db.merge(b"n", (2).to_bytes(8, "little"))
        assert int.from_bytes(db[b"n"], "little") == 6
    with pytest.raises(karstdb.Error):
        karstdb.open(tmp_path / "other", {"no_such_option": 1})


def test_a_secondary_follows(db, tmp_path):
    db[b"a"] = b"1"
    with karstdb.open(tmp_path / "db", mode="secondary", secondary_path=tmp_path / "own") as second:
        db[b"b"] = b"2"
        db.flush_wal(True)
        second.try_catch_up_with_primary()
        assert second[b"b"] == b"2"


def filled(path):
    with karstdb.open(path) as db:
        batch = karstdb.WriteBatch()
        for i in range(20_000):
            batch.put(b"%06d" % i, os.urandom(200))
        db.write(batch)
        db.flush()


def test_gets_of_one_thread_are_under_way_at_once(tmp_path):
    """Each of 64 gets of cold blocks waits for storage before any has been waited for."""
    filled(tmp_path / "db")
    with karstdb.open(tmp_path / "db") as db:
        keys = [b"%06d" % (i * 300) for i in range(64)]
        threads = threading.active_count()
        ready = karstdb._karstdb.Ready()
        operations = [db._get_operation(key, None, None) for key in keys]
        waiting = [one.poll(ready, i) is None for i, one in enumerate(operations)]
        assert sum(waiting) > 32 and threading.active_count() == threads
        for one in operations:
            one.cancel()

        async def all_of_them():
            return await asyncio.gather(*(db.get_async(key) for key in keys))

        assert asyncio.run(all_of_them()) == db.multi_get(keys)


def test_tasks_read_write_and_iterate(db):
    async def work():
        await asyncio.gather(*(db.put_async(b"%03d" % i, b"v%d" % i) for i in range(300)))
        await db.delete_async(b"000", sync=True)
        await db.flush_async()
        assert await db.get_async(b"001") == b"v1"
        assert await db.get_async(b"000", b"none") == b"none"
        assert await db.multi_get_async([b"000", b"002"]) == [None, b"v2"]
        seen = [key async for key, _ in db.items_async()]
        assert seen == [b"%03d" % i for i in range(1, 300)]
        assert [k async for k, _ in db.items_async(True, b"002")] == [b"002", b"001"]
        with pytest.raises(TypeError):
            await db.get_async("text")

    for _ in range(2):  # each has an event loop of its own
        asyncio.run(work())


def test_an_iteration_shows_the_moment_of_its_call(db):
    async def work():
        await db.put_async(b"a", b"old")
        entries, plain, keys = db.items_async(), db.items(), db.keys()
        await asyncio.gather(db.put_async(b"a", b"new"), db.put_async(b"b", b"new"))
        assert [entry async for entry in entries] == list(plain) == [(b"a", b"old")]
        assert list(keys) == [b"a"]
        with pytest.raises(TypeError):  # at once, not at the first entry
            db.items_async(prefix=b"a", lower=b"a")
        db.items_async()  # nobody asks for an entry
        assert len([entry async for entry in db.items_async()]) == 2

    asyncio.run(work())


def test_a_task_that_is_cancelled_drops_its_future(tmp_path):
    filled(tmp_path / "db")
    with karstdb.open(tmp_path / "db") as db:

        async def work():
            tasks = [asyncio.create_task(db.get_async(b"%06d" % (i * 300))) for i in range(64)]
            await asyncio.sleep(0)
            asked = [task for task in tasks if task.cancel()]
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert asked and sum(isinstance(e, asyncio.CancelledError) for e in ended) == len(asked)
            bridge = karstdb._asyncio._bridges[asyncio.get_running_loop()]
            assert not bridge.waiting
            assert len(await db.get_async(b"000300")) == 200

        asyncio.run(work())


def test_after_closing_calls_are_refused(tmp_path):
    db = karstdb.open(tmp_path / "db")
    db[b"a"] = b"1"
    cursor, entries = db.iter(), db.items()
    operation = db._get_operation(b"a", None, None)
    db.close()
    for call in (
        lambda: db[b"a"],
        lambda: db.put(b"a", b"2"),
        lambda: db.iter(),
        lambda: db.snapshot(),
        lambda: db.flush(),
        lambda: cursor.seek_to_first(),
        lambda: list(entries),
        lambda: operation.poll(karstdb._karstdb.Ready(), 0),
    ):
        with pytest.raises(karstdb.Closed):
            call()


def test_iterators_and_snapshots_outlive_the_name_of_the_database(tmp_path):
    db = karstdb.open(tmp_path / "db")
    db[b"a"] = b"1"
    entries, snapshot = db.items(), db.snapshot()
    del db
    assert list(entries) == [(b"a", b"1")]
    del entries, snapshot
    with karstdb.open(tmp_path / "db") as db:  # the lock was let go
        assert db[b"a"] == b"1"


def test_only_buffers_of_bytes_are_keys_and_values(db):
    for wrong in ("text", 1, None, [1]):
        with pytest.raises(TypeError):
            db[wrong] = b"v"
        with pytest.raises(TypeError):
            db[b"k"] = wrong
        with pytest.raises(TypeError):
            db.get(wrong)
    db[b""] = b""
    assert db[b""] == b"" and list(db.items()) == [(b"", b"")]
    huge = os.urandom(1 << 26)
    db[b"huge"] = huge
    assert db[b"huge"] == huge


def test_threads_share_a_database(db):
    def work(thread):
        for i in range(300):
            db[b"%d-%d" % (thread, i)] = b"v"
            assert db[b"%d-%d" % (thread, i)] == b"v"

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(db)) == 2400


def test_a_fork_is_refused_and_ends(db):
    db[b"a"] = b"1"
    child = os.fork()
    if child == 0:
        try:
            db.get(b"a")
        except RuntimeError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert db[b"a"] == b"1"


def test_a_second_open_is_refused_by_its_kind(db, tmp_path):
    with pytest.raises(karstdb.Error) as raised:
        karstdb.open(tmp_path / "db")
    assert isinstance(raised.value, (karstdb.Locked, karstdb.Busy))
    with pytest.raises(karstdb.NotFound):
        karstdb.open(tmp_path / "none", mode="r")
    assert issubclass(karstdb.NoSpace, karstdb.Io)


def test_an_interrupt_leaves_the_database_whole(db):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    written = 0
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            while True:
                db[b"%08d" % written] = b"v"
                written += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    # The interrupt may have come after the last write and before it was counted.
    assert len(list(db)) in (written, written + 1)
    db[b"again"] = b"v"
    assert b"again" in db
