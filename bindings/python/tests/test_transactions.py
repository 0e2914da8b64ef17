"""Transactions of both kinds: what they see, what they hold, how they end."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

import karstdb

NEW = {"create_if_missing": True, "merge_operator": "uint64add"}


@pytest.fixture(params=[karstdb.TransactionDB, karstdb.OptimisticTransactionDB])
def db(request, tmp_path):
    with request.param(tmp_path / "db", NEW) as db:
        yield db


@pytest.fixture
def locking(tmp_path):
    with karstdb.TransactionDB(tmp_path / "db", NEW, transaction_lock_timeout=50) as db:
        yield db


def test_what_is_written_is_seen_inside_and_with_the_commit_outside(db):
    assert isinstance(db, karstdb.Rdict)
    db[b"a"] = b"1"
    txn = db.begin()
    txn.put(b"b", b"2")
    txn[b"c"] = b"3"
    txn.delete(b"a")
    txn.merge(b"n", (2).to_bytes(8, "little"))
    assert txn.get(b"a") is None and txn[b"b"] == b"2" and b"c" in txn
    assert txn.get(b"a", b"none") == b"none" and txn.multi_get([b"a", b"c"]) == [None, b"3"]
    with pytest.raises(KeyError):
        txn[b"a"]
    assert list(txn) == [b"b", b"c", b"n"] and list(db) == [b"a"]
    assert list(txn.items(True, prefix=b"b")) == [(b"b", b"2")]
    cursor = txn.iter(lower=b"b", upper=b"n")
    cursor.seek_to_last()
    assert cursor.key() == b"c" and cursor.value() == b"3"
    assert not txn.ended
    txn.commit()
    assert txn.ended and list(db) == [b"b", b"c", b"n"]
    assert int.from_bytes(db[b"n"], "little") == 2
    for call in (txn.commit, txn.rollback, lambda: txn.put(b"a", b"b"), lambda: txn.get(b"a")):
        with pytest.raises(karstdb.InvalidArgument):
            call()


def test_rollbacks_and_save_points(db):
    txn = db.begin()
    txn.put(b"a", b"1")
    txn.set_save_point()
    txn.put(b"b", b"2")
    txn.set_save_point()
    txn.put(b"c", b"3")
    txn.pop_save_point()
    txn.rollback_to_save_point()
    assert list(txn) == [b"a"]
    with pytest.raises(karstdb.NotFound):
        txn.rollback_to_save_point()
    txn.rollback()
    assert txn.ended and list(db) == []


def test_a_block_commits_or_rolls_back(db):
    with db.begin() as txn:
        txn.put(b"a", b"1")
    assert db[b"a"] == b"1" and txn.ended
    with pytest.raises(ZeroDivisionError):
        with db.begin() as txn:
            txn.put(b"a", b"2")
            1 / 0
    assert db[b"a"] == b"1" and txn.ended
    with db.begin() as txn:
        txn.put(b"a", b"3")
        txn.rollback()
    assert db[b"a"] == b"1"
    with pytest.raises(ZeroDivisionError), db.begin() as txn:
        db.close()
        1 / 0


def test_column_families_and_snapshots(db):
    logs = db.create_column_family("logs", {"merge_operator": "uint64add"})
    with db.begin(set_snapshot=True) as txn:
        before = txn.snapshot()
        txn.put(b"line", b"text", logs)
        txn.put(b"kept", b"text")
        assert txn.get(b"line", column_family=logs) == b"text" and b"line" not in txn
        assert list(txn.keys(column_family=logs)) == [b"line"]
        assert txn.get_for_update(b"line", logs) == b"text"
    assert logs[b"line"] == b"text" and list(logs.items(snapshot=before)) == []
    with db.begin() as txn:
        assert txn.snapshot() is None
        txn.set_snapshot()
        assert txn.snapshot().sequence_number >= before.sequence_number
        txn.clear_snapshot()
        assert txn.snapshot() is None


def test_locks_time_out_and_are_let_go(locking):
    with locking.begin() as txn:
        assert txn.get_for_update(b"a") is None
        other = locking.begin()
        with pytest.raises(karstdb.TimedOut):
            other.put(b"a", b"2")
        other.set_lock_timeout(0)
        with pytest.raises(karstdb.TimedOut):
            other.get_for_update(b"a", exclusive=False)
        txn.put(b"a", b"1")
    other.put(b"a", b"3")
    other.commit()
    assert locking[b"a"] == b"3"
    with locking.begin() as one, locking.begin() as two:
        one.get_for_update(b"s", exclusive=False)
        two.get_for_update(b"s", exclusive=False)


def test_plain_writes_wait_for_locks(tmp_path):
    with karstdb.TransactionDB(tmp_path / "db", NEW, default_lock_timeout=20) as db:
        logs = db.create_column_family("logs")
        with db.begin() as txn:
            txn.put(b"a", b"1")
            txn.put(b"l", b"1", logs)
            batch = karstdb.WriteBatch()
            batch.put(b"a", b"2")
            for write in (
                lambda: db.put(b"a", b"2"),
                lambda: db.delete(b"a"),
                lambda: db.merge(b"a", b"2"),
                lambda: db.write(batch),
                lambda: logs.put(b"l", b"2"),
                lambda: asyncio.run(db.put_async(b"a", b"2")),
            ):
                with pytest.raises(karstdb.TimedOut):
                    write()
        assert db[b"a"] == b"1"
        with pytest.raises(karstdb.NotSupported):
            db.delete_range(b"a", b"b")


def test_a_deadlock_is_told_of(locking):
    one, two = (locking.begin(deadlock_detect=True, lock_timeout=60_000) for _ in range(2))
    one.put(b"a", b"1")
    two.put(b"b", b"2")
    failed = []

    def wait():
        try:
            one.put(b"b", b"1")
        except karstdb.Deadlock as error:
            failed.append(error)
            one.rollback()

    waiter = threading.Thread(target=wait)
    waiter.start()
    try:
        two.put(b"a", b"2")
        two.commit()
    except karstdb.Deadlock as error:
        failed.append(error)
        two.rollback()
    waiter.join()
    assert len(failed) == 1


def test_who_was_slower_is_busy(tmp_path):
    with karstdb.OptimisticTransactionDB(tmp_path / "db", NEW) as db:
        with pytest.raises(karstdb.Busy):
            with db.begin() as txn:
                txn.get_for_update(b"a")
                txn.put(b"b", b"2")
                db[b"a"] = b"faster"
        assert txn.ended and b"b" not in db
        for call in (txn.prepare, lambda: txn.set_name(b"n"), lambda: txn.set_lock_timeout(1)):
            with pytest.raises(karstdb.NotSupported):
                call()
        assert txn.name is None
        with pytest.raises(karstdb.Busy):
            with db.begin(set_snapshot=True) as txn:
                db[b"a"] = b"faster again"
                txn.put(b"a", b"1")


def test_an_expired_transaction_is_refused(locking):
    txn = locking.begin(expiration=1)
    txn.put(b"a", b"1")
    threading.Event().wait(0.05)
    with pytest.raises(karstdb.Expired):
        txn.commit()


@pytest.mark.parametrize("policy", ["write_committed", "write_prepared"])
def test_what_is_prepared_outlives_the_process(tmp_path, policy):
    program = f"""
import karstdb, os
db = karstdb.TransactionDB({str(tmp_path / "db")!r}, {NEW}, write_policy={policy!r})
for name in (b"one", b"two"):
    txn = db.begin(sync=True)
    txn.set_name(name)
    txn.put(name, b"prepared")
    txn.prepare()
    assert txn.name == name
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    with karstdb.TransactionDB(tmp_path / "db", write_policy=policy, default_lock_timeout=0) as db:
        assert db.get_all_prepared_transactions() == [b"one", b"two"] and list(db) == []
        with pytest.raises(karstdb.TimedOut):
            db[b"one"] = b"locked"
        one, two = (db.get_transaction_by_name(name) for name in (b"one", b"two"))
        with pytest.raises(karstdb.Busy):
            db.get_transaction_by_name(b"one")
        with pytest.raises(karstdb.NotFound):
            db.get_transaction_by_name(b"three")
        one.commit()
        with pytest.raises(ZeroDivisionError), two:
            1 / 0
        assert list(db) == [b"one"] and db.get_all_prepared_transactions() == []


def test_tasks_of_a_transaction_and_transactions_of_tasks(db):
    async def add(i):
        while True:
            try:
                async with db.begin() as txn:
                    count = int(await txn.get_for_update_async(b"count") or b"0")
                    await txn.put_async(b"count", b"%d" % (count + 1))
                return
            except (karstdb.Busy, karstdb.TimedOut):
                await asyncio.sleep(0)

    async def work():
        await asyncio.gather(*(add(i) for i in range(50)))
        assert await db.get_async(b"count") == b"50"
        txn = db.begin()
        # They take turns.
        await asyncio.gather(*(txn.put_async(b"%02d" % i, b"v") for i in range(50)))
        found = await asyncio.gather(*(txn.get_async(b"%02d" % i) for i in range(50)))
        assert found == [b"v"] * 50
        await txn.delete_async(b"00")
        await txn.merge_async(b"n", (7).to_bytes(8, "little"))
        assert await txn.multi_get_async([b"00", b"01"]) == [None, b"v"]
        assert len([key async for key, _ in txn.items_async()]) == 51
        await txn.commit_async()
        assert txn.ended and len(list(db)) == 51
        with pytest.raises(ZeroDivisionError):
            async with db.begin() as txn:
                await txn.put_async(b"zero", b"v")
                1 / 0
        assert b"zero" not in db and txn.ended
        txn = db.begin()
        await txn.put_async(b"gone", b"v")
        await txn.rollback_async()
        assert b"gone" not in db

    asyncio.run(work())


def test_a_task_that_waits_for_a_lock_can_be_cancelled(locking):
    async def work():
        holder, waiter = locking.begin(), locking.begin(lock_timeout=60_000)
        await holder.put_async(b"a", b"1")
        task = asyncio.create_task(waiter.put_async(b"a", b"2"))
        await asyncio.sleep(0.01)
        with pytest.raises(karstdb.Busy):
            waiter.put(b"b", b"2")  # a blocking call would hold up the task it waits for
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await holder.commit_async()
        await waiter.put_async(b"a", b"3")
        await waiter.commit_async()
        assert locking[b"a"] == b"3"

    asyncio.run(work())


def test_a_commit_whose_task_is_cancelled_is_whole_or_not_at_all(db):
    async def work():
        written = []
        for i in range(100):
            txn = db.begin()
            for part in (b"a", b"b"):
                await txn.put_async(b"%03d%s" % (i, part), b"v")
            task = asyncio.create_task(txn.commit_async())
            for _ in range(i % 4):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                written.append(i)
            except asyncio.CancelledError:
                pass
        return written

    written = asyncio.run(work())
    for i in range(100):
        both = {db.get(b"%03da" % i), db.get(b"%03db" % i)}
        assert both == {b"v"} or (both == {None} and i not in written)


def test_threads_share_a_transaction(db):
    txn = db.begin()

    def work(thread):
        for i in range(200):
            txn.put(b"%d-%d" % (thread, i), b"v")
            assert txn.get(b"%d-%d" % (thread, i)) == b"v"

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    txn.commit()
    assert len(list(db)) == 800


def test_a_thread_that_waits_for_a_lock_lets_others_run(locking):
    holder, waiter = locking.begin(), locking.begin(lock_timeout=60_000)
    holder.put(b"a", b"1")
    thread = threading.Thread(target=lambda: (waiter.put(b"a", b"2"), waiter.commit()))
    thread.start()
    while not thread.is_alive():
        pass
    threading.Event().wait(0.02)
    holder.commit()  # would never be reached if the waiter had the interpreter's lock
    thread.join()
    assert locking[b"a"] == b"2"


def test_a_dropped_transaction_lets_go_of_its_locks(locking):
    txn = locking.begin()
    txn.put(b"a", b"1")
    del txn
    with locking.begin(lock_timeout=0) as txn:
        txn.put(b"a", b"2")


def test_misuse_is_an_error_of_its_class(db, tmp_path):
    txn = db.begin()
    with pytest.raises(TypeError):
        txn.put("text", b"v")
    with karstdb.open(tmp_path / "other") as other:
        with pytest.raises(karstdb.Error):
            txn.put(b"a", b"v", other)
    child = os.fork()
    if child == 0:
        try:
            txn.get(b"a")
        except RuntimeError:
            del txn
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    cursor = txn.iter()
    db.close()
    for call in (
        lambda: txn.put(b"a", b"1"),
        lambda: txn.get(b"a"),
        lambda: txn.iter(),
        lambda: cursor.seek_to_first(),
        lambda: db.begin(),
        lambda: asyncio.run(txn.get_async(b"a")),
        txn.commit,
    ):
        with pytest.raises(karstdb.Closed):
            call()
    with pytest.raises(ValueError):
        karstdb.TransactionDB(tmp_path / "third", NEW, write_policy="write_unprepared")
