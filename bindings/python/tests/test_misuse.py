"""Closed, forked, cancelled, and used from everywhere at once: errors of the right class, no hang."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

import karstdb


@pytest.fixture
def db(tmp_path):
    with karstdb.open(tmp_path / "db") as db:
        yield db


def in_a_fork(call):
    """What `call` returns in a child that is ended after five minutes, so that a deadlock fails."""
    child = os.fork()
    if child == 0:
        try:
            threading.Timer(300, lambda: os._exit(99)).start()
            os._exit(call())
        except BaseException:
            os._exit(98)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_cursor_that_is_closed_is_refused(db):
    db[b"a"] = b"1"
    cursor = db.iter()
    cursor.seek_to_first()
    cursor.close()
    cursor.close()
    for call in (cursor.seek_to_first, cursor.next, cursor.valid, cursor.key, lambda: cursor.seek(b"a")):
        with pytest.raises(karstdb.Closed):
            call()


def test_closing_twice_and_closing_under_readers(tmp_path):
    """Each thread ends with `Closed`, and none with anything else."""
    db = karstdb.open(tmp_path / "db")
    for i in range(500):
        db[b"%03d" % i] = b"v" * 100
    started, ended = threading.Barrier(7), []

    def work(call):
        started.wait()
        try:
            while True:
                call()
        except BaseException as error:
            ended.append(type(error))

    calls = (
        lambda: db.get(b"001"),
        lambda: db.put(b"002", b"v"),
        lambda: list(db.items()),
        lambda: db.multi_get([b"%03d" % i for i in range(50)]),
        lambda: db.flush(),
        lambda: db.snapshot().sequence_number,
    )
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    started.wait()
    threading.Event().wait(0.05)
    db.close()
    for thread in threads:
        thread.join(30)
    assert ended == [karstdb.Closed] * 6
    db.close()
    with karstdb.open(tmp_path / "db") as db:
        assert len(list(db)) == 500


def test_a_fork_lets_everything_alone(tmp_path):
    """Whatever is called or dropped in the child, it ends; the parent goes on."""
    with karstdb.TransactionDB(tmp_path / "db", write_buffer_size=64 << 10) as db:
        for i in range(3000):
            db[b"%04d" % i] = b"v" * 100
        things = [db.iter(), db.items(), db.snapshot(), db.begin(), db.create_column_family("logs")]
        things += [karstdb.BackupEngine(tmp_path / "backups"), karstdb.SstFileWriter()]
        things[5].create_new_backup(db)
        refused = (
            lambda: things[0].seek_to_first(),
            lambda: next(things[1]),
            lambda: things[2].sequence_number,
            lambda: things[3].commit(),
            lambda: things[4].put(b"a", b"b"),
            lambda: things[5].get_backup_info(),
            lambda: things[6].open(tmp_path / "1.sst"),
            lambda: db.flush(),
            lambda: db.close(),
            lambda: asyncio.run(db.get_async(b"0001")),
        )

        def child():
            for call in refused:
                try:
                    call()
                except RuntimeError:
                    continue
                return 1
            things[0].close()
            things[5].close()
            things.clear()
            return 7

        assert in_a_fork(child) == 7
        assert db[b"0001"] == b"v" * 100 and len(list(db)) == 3000
        things[3].commit()


def test_a_child_that_ends_as_python_does_ends(tmp_path):
    """`multiprocessing` forks with the database open, and the child runs what is to run at exit."""
    program = f"""
import karstdb, os, sys
db = karstdb.open({str(tmp_path / "db")!r}, write_buffer_size=64 << 10)
for i in range(3000):
    db[b"%04d" % i] = b"v" * 100
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
assert len(list(db)) == 3000
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    with karstdb.open(tmp_path / "db") as db:
        assert len(list(db)) == 3000


def test_what_was_acknowledged_to_a_task_stays(tmp_path):
    """Writers are cancelled at every turn; after reopening, what a task was told is there."""
    acknowledged = set()

    async def write(db, i):
        for j in range(20):
            await db.put_async(b"%03d-%02d" % (i, j), b"v", sync=j % 5 == 0)
            acknowledged.add(b"%03d-%02d" % (i, j))

    async def work(db):
        tasks = [asyncio.create_task(write(db, i)) for i in range(40)]
        for i, task in enumerate(tasks):
            for _ in range(i % 3):
                await asyncio.sleep(0)
            if i % 2:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with karstdb.open(tmp_path / "db") as db:
        asyncio.run(work(db))
    with karstdb.open(tmp_path / "db") as db:
        there = set(db)
    assert len(acknowledged) >= 400 and acknowledged <= there


def test_an_iteration_that_is_given_up_lets_go(db):
    async def work():
        for i in range(1000):
            await db.put_async(b"%04d" % i, b"v")
        seen = 0
        async for _ in db.items_async():
            seen += 1
            if seen == 200:
                break
        assert seen == 200

        begun = asyncio.Event()

        async def all_of_them():
            async for _ in db.items_async():
                begun.set()
                await asyncio.sleep(0)

        task = asyncio.create_task(all_of_them())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len([key async for key, _ in db.items_async()]) == 1000

    asyncio.run(work())


def test_calls_of_tasks_on_a_closed_database_are_refused(tmp_path):
    db = karstdb.open(tmp_path / "db")

    async def work():
        db[b"a"] = b"1"
        entries = db.items_async()
        db.close()
        for call in (
            db.get_async(b"a"),
            db.multi_get_async([b"a"]),
            db.put_async(b"a", b"2"),
            db.flush_async(),
            anext(entries),
        ):
            with pytest.raises(karstdb.Closed):
                await call

    asyncio.run(work())


def test_many_gets_and_writes_in_one_loop(db):
    async def work():
        keys = [b"%05d" % i for i in range(3000)]
        await asyncio.gather(*(db.put_async(key, key) for key in keys))
        await db.flush_async()
        assert await asyncio.gather(*(db.get_async(key) for key in keys)) == keys
        threads = threading.active_count()
        assert threads == 1  # of Python's

    asyncio.run(work())


def test_batches_and_objects_of_other_databases_are_refused(db, tmp_path):
    with karstdb.open(tmp_path / "other") as other:
        logs = other.create_column_family("logs")
        batch = karstdb.WriteBatch()
        batch.put(b"a", b"1", logs)
        with pytest.raises(karstdb.Error):
            db.write(batch)
        with pytest.raises(karstdb.Error):
            db.get(b"a", snapshot=other.snapshot())
        with pytest.raises(TypeError):
            batch.put(b"a", b"1", "logs")
        with pytest.raises(TypeError):
            db.get(b"a", snapshot=b"now")
        with pytest.raises(TypeError):
            db.write([(b"a", b"1")])
        with pytest.raises(TypeError):
            db.multi_get(b"a")  # bytes are no keys one by one


def alone(program, *arguments):
    """Runs a program in a process of its own, since a deadlock may have the interpreter's lock.

    The limit is for a process that never ends, which then prints where each of its threads is.
    """
    command = [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            output, errors = running.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGABRT)
            _, errors = running.communicate()
    assert running.returncode == 0, errors
    return output


def test_the_text_of_an_exception_of_a_filter_is_made_with_no_mutex_locked(tmp_path):
    """Making the text waits for a compaction whose filter raises as well."""
    program = """
import sys, threading
import karstdb

compacted = []

class Failed(Exception):
    def __str__(self):
        if not compacted:
            compacted.append(1)
            other = threading.Thread(target=compact)
            other.start()
            other.join()
        return "failed"

def keep(level, key, value):
    raise Failed()

def compact():
    try:
        db.compact_range(bottommost_level_compaction="force")
    except karstdb.CallbackFailed as failed:
        compacted.append(str(failed.__cause__))

db = karstdb.open(sys.argv[1], compaction_filter=karstdb.CompactionFilter("f", keep))
db[b"a"] = b"1"
compact()
assert compacted == [1, "failed", "failed"], compacted
"""
    alone(program, tmp_path / "db")


def test_exceptions_that_nobody_asked_for_are_dropped_with_no_mutex_locked(tmp_path):
    """Dropping one waits for a merge that raises as well."""
    program = """
import sys, threading
import karstdb

dropped = []

class Resource:
    def __del__(self):
        dropped.append(1)
        if len(dropped) == 1:
            other = threading.Thread(target=read, args=(b"0",))
            other.start()
            other.join()

class Failed(Exception):
    def __init__(self):
        super().__init__("no")
        self.resource = Resource()

def full(key, existing, operands):
    raise Failed()

def read(*keys):
    try:
        db.multi_get(keys)
    except karstdb.CallbackFailed:
        return
    raise SystemExit(1)

db = karstdb.open(sys.argv[1], merge_operator=karstdb.MergeOperator("m", full))
keys = [b"%d" % i for i in range(40)]
for key in keys:
    db.merge(key, b"1")
read(*keys)
assert dropped
"""
    alone(program, tmp_path / "db")


def test_databases_are_opened_while_all_are_closed(tmp_path):
    """Closing waits for a filter, and the filter for a database that is opened."""
    program = """
import sys, threading
import karstdb

asked, opened = threading.Event(), threading.Event()

def keep(level, key, value):
    asked.set()
    opened.wait()

def compact():
    try:
        db.compact_range(bottommost_level_compaction="force")
    except karstdb.Error:
        pass

def is_closed():
    try:
        db.get(b"a")
    except karstdb.Closed:
        return True

db = karstdb.open(sys.argv[1], compaction_filter=karstdb.CompactionFilter("f", keep))
db[b"a"] = b"1"
threads = [threading.Thread(target=compact), threading.Thread(target=karstdb._close_all)]
threads[0].start()
asked.wait()
threads[1].start()
while not is_closed():
    pass
other = karstdb.open(sys.argv[2])
opened.set()
for thread in threads:
    thread.join()
other[b"a"] = b"1"
"""
    alone(program, tmp_path / "db", tmp_path / "other")


def test_a_filter_may_drop_the_last_reference_to_its_database(tmp_path):
    """Closing waits for the filter, so the database closes when the filter has returned."""
    program = """
import sys, threading
import karstdb

held, let_go, dropped = {}, threading.Event(), threading.Event()

def keep(level, key, value):
    let_go.wait()
    held.clear()
    dropped.set()

def write():
    for value in (b"1", b"2"):
        for key in (b"a", b"b"):
            held["db"][key] = value
        held["db"].flush()

held["db"] = karstdb.open(
    sys.argv[1],
    compaction_filter=karstdb.CompactionFilter("f", keep),
    level0_file_num_compaction_trigger=2,
)
write()
let_go.set()
dropped.wait()
while True:
    try:
        db = karstdb.open(sys.argv[1])
        break
    except karstdb.Locked:
        pass
assert db[b"a"] == b"2"
"""
    alone(program, tmp_path / "db")


def test_a_comparator_is_refused_the_cursor_that_it_is_asked_for(tmp_path):
    program = """
import sys
import karstdb

cursors, outcomes = [], set()

def order(a, b):
    for cursor in cursors:
        for call in (cursor.valid, cursor.close):
            try:
                call()
                outcomes.add(None)
            except karstdb.Busy:
                outcomes.add("busy")
    return (a > b) - (a < b)

db = karstdb.open(sys.argv[1], comparator=karstdb.Comparator("order", order))
for i in range(10):
    db[b"%d" % i] = b"v"
cursor = db.iter()
cursors.append(cursor)
cursor.seek(b"5")
cursors.clear()
assert cursor.key() == b"5"
assert outcomes == {"busy"}, outcomes
"""
    alone(program, tmp_path / "db")


def test_an_interrupt_ends_a_compaction(tmp_path):
    """The filter waits until the call has been given up, so that nothing else ends it."""
    program = """
import os, signal, sys, threading
import karstdb

given_up = threading.Event()

def keep(level, key, value):
    if not given_up.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        given_up.wait()

db = karstdb.open(sys.argv[1], compaction_filter=karstdb.CompactionFilter("f", keep))
db[b"a"] = b"1"
try:
    db.compact_range(bottommost_level_compaction="force")
except KeyboardInterrupt:
    given_up.set()
assert given_up.is_set()
db.compact_range(bottommost_level_compaction="force")
assert db[b"a"] == b"1"
"""
    alone(program, tmp_path / "db")
