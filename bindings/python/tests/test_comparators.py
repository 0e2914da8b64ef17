"""Orders of keys: built-in ones by name, and functions of Python's, which may raise."""

import asyncio
import subprocess
import sys
import threading

import karstdb
import pytest


def by_number(a, b):
    """Keys are decimal numbers."""
    return int(a) - int(b)


NUMBERS = karstdb.Comparator("tests.numbers", by_number)


class Fragile:
    """Orders as bytes do, and raises on one key while it is armed."""

    def __init__(self):
        self.armed = False

    def __call__(self, a, b):
        if self.armed and b"boom" in (a, b):
            raise LookupError("boom has no place")
        return (a > b) - (a < b)


def test_keys_are_in_the_order_of_the_function(tmp_path):
    with karstdb.open(tmp_path, comparator=NUMBERS) as db:
        for n in (5, 100, 20, 3):
            db[b"%d" % n] = b"v%d" % n
        assert list(db) == [b"3", b"5", b"20", b"100"]
        db.flush()
        db[b"7"] = b"v7"
        # Keys that the function finds equal are one key.
        assert db[b"7"] == db[b"07"] == b"v7"
        assert list(db.keys(lower=b"4", upper=b"100")) == [b"5", b"7", b"20"]
        assert list(db.keys(backwards=True)) == [b"100", b"20", b"7", b"5", b"3"]
        db.delete_range(b"6", b"50")
        db.flush()
        db.compact_range()
        assert list(db) == [b"3", b"5", b"100"]
        with pytest.raises(karstdb.InvalidArgument, match="ends before"):
            db.delete_range(b"50", b"6")
    with karstdb.open(tmp_path, comparator=NUMBERS) as db:
        assert list(db) == [b"3", b"5", b"100"]


def test_another_name_is_refused(tmp_path):
    karstdb.open(tmp_path, comparator=NUMBERS).close()
    for other in (None, karstdb.Comparator("tests.other", by_number), by_number, "leveldb.BytewiseComparator"):
        named = {} if other is None else {"comparator": other}
        with pytest.raises(karstdb.Error, match="tests.numbers"):
            karstdb.open(tmp_path, **named)
    karstdb.open(tmp_path, comparator=karstdb.Comparator("tests.numbers", by_number)).close()


def test_built_in_ones_go_by_name(tmp_path):
    with karstdb.open(tmp_path, comparator="rocksdb.ReverseBytewiseComparator") as db:
        db[b"a"], db[b"b"] = b"1", b"2"
        assert list(db) == [b"b", b"a"]
    with pytest.raises(karstdb.InvalidArgument, match="ReverseBytewise"):
        karstdb.open(tmp_path, comparator="leveldb.BytewiseComparator")
    # A built-in comparator is found by the name in the database.
    with karstdb.open(tmp_path) as db:
        assert list(db) == [b"b", b"a"]
    with pytest.raises(karstdb.InvalidArgument, match="not built in"):
        karstdb.open(tmp_path, comparator="tests.numbers")


def test_each_column_family_has_its_own(tmp_path):
    families = {"numbers": {"comparator": NUMBERS}, "back": {"comparator": "rocksdb.ReverseBytewiseComparator"}}
    for _ in range(2):
        with karstdb.open(tmp_path, None, families) as db:
            orders = {}
            for name in ("default", "numbers", "back"):
                family = db.get_column_family(name)
                for key in (b"10", b"9", b"1"):
                    family[key] = b"v"
                orders[name] = list(family)
            assert orders == {
                "default": [b"1", b"10", b"9"],
                "numbers": [b"1", b"9", b"10"],
                "back": [b"9", b"10", b"1"],
            }
    # A comparator given for the database applies to families created with it.
    for _ in range(2):
        with karstdb.open(tmp_path / "all", {"comparator": NUMBERS}, {"more": {}}) as db:
            more = db.get_column_family("more")
            more[b"10"] = more[b"9"] = b"v"
            assert list(more) == [b"9", b"10"]


def test_files_are_made_in_the_order_and_backups_and_repairs_keep_it(tmp_path):
    writer = karstdb.SstFileWriter({"comparator": NUMBERS})
    writer.open(tmp_path / "1.sst")
    writer[b"9"] = b"nine"
    writer[b"10"] = b"ten"
    with pytest.raises(karstdb.InvalidArgument):
        writer[b"3"] = b"three"
    writer.finish()
    path = tmp_path / "db"
    with karstdb.open(path, comparator=NUMBERS) as db:
        db.ingest_external_file([tmp_path / "1.sst"])
        db[b"3"] = b"three"
        with karstdb.BackupEngine(tmp_path / "backups") as backups:
            backups.create_new_backup(db)
            backups.restore_db_from_latest_backup(tmp_path / "restored")
    assert karstdb.repair(path, comparator=NUMBERS)["lost"] == []
    for copy in (path, tmp_path / "restored"):
        with karstdb.open(copy, comparator=NUMBERS) as db:
            assert list(db.items()) == [(b"3", b"three"), (b"9", b"nine"), (b"10", b"ten")]


def test_what_a_read_raises_on_harms_nothing(tmp_path):
    fragile = Fragile()
    with karstdb.open(tmp_path, comparator=karstdb.Comparator("tests.fragile", fragile)) as db:
        db[b"a"] = b"1"
        db[b"c"] = b"1"
        assert list(db) == [b"a", b"c"]
        fragile.armed = True
        cursor = db.iter()
        reads = [
            lambda: db[b"boom"],
            lambda: db.multi_get([b"a", b"boom"]),
            lambda: cursor.seek(b"boom"),
            lambda: asyncio.run(db.get_async(b"boom")),
            lambda: list(db.items(from_key=b"boom")),
        ]
        for read in reads:
            with pytest.raises(karstdb.CallbackFailed, match="boom has no place") as raised:
                read()
            assert isinstance(raised.value.__cause__, LookupError)
        assert db[b"a"] == b"1"
        cursor.seek_to_first()
        assert cursor.key() == b"a"
        db[b"b"] = b"2"
        assert list(db) == [b"a", b"b", b"c"]


def test_a_write_that_it_raises_on_ends_the_writes_and_loses_nothing(tmp_path):
    fragile = Fragile()
    named = {"comparator": karstdb.Comparator("tests.fragile", fragile)}
    db = karstdb.open(tmp_path, **named)
    db[b"a"] = b"1"
    db.flush()
    batch = karstdb.WriteBatch()
    batch.put(b"boom", b"2")
    for n in range(40):
        batch.put(b"b%02d" % n, b"2")
    fragile.armed = True
    # The batch is logged, and inserted now or by the next read.
    with pytest.raises(karstdb.CallbackFailed) as raised:
        db.write(batch)
        db.get(b"x")
    assert isinstance(raised.value.__cause__, LookupError)
    for refused in (lambda: db.put(b"c", b"3"), db.flush, lambda: asyncio.run(db.put_async(b"c", b"3"))):
        with pytest.raises(karstdb.Panicked, match="opened anew"):
            refused()
    db.close()
    # An opening inserts the logged batch.
    with pytest.raises(karstdb.CallbackFailed):
        karstdb.open(tmp_path, **named).get(b"a")
    fragile.armed = False
    with karstdb.open(tmp_path, **named) as db:
        assert list(db) == [b"a"] + [b"b%02d" % n for n in range(40)] + [b"boom"]
        db.compact_range()
        db[b"c"] = b"3"


def test_a_compaction_that_it_raises_in_installs_nothing(tmp_path):
    fragile = Fragile()
    named = {"comparator": karstdb.Comparator("tests.fragile", fragile), "disable_auto_compactions": True}
    with karstdb.open(tmp_path, **named) as db:
        for n in range(3):
            db[b"a"] = db[b"boom"] = b"%d" % n
            db[b"z"] = b"z"
            db.flush()
        fragile.armed = True
        with pytest.raises(karstdb.CallbackFailed) as raised:
            db.compact_range(bottommost_level_compaction="force")
        assert isinstance(raised.value.__cause__, LookupError)
        fragile.armed = False
        assert db.property_value("rocksdb.num-files-at-level0") == "3"
        assert list(db.items()) == [(b"a", b"2"), (b"boom", b"2"), (b"z", b"z")]
    with karstdb.open(tmp_path, **named) as db:
        db.compact_range(bottommost_level_compaction="force")
        assert list(db.items()) == [(b"a", b"2"), (b"boom", b"2"), (b"z", b"z")]


@pytest.mark.parametrize("kind", [karstdb.TransactionDB, karstdb.OptimisticTransactionDB])
def test_a_transaction_that_it_raises_in_is_rolled_back(tmp_path, kind):
    fragile = Fragile()
    with kind(tmp_path, comparator=karstdb.Comparator("tests.fragile", fragile)) as db:
        txn = db.begin()
        txn[b"a"] = b"1"
        fragile.armed = True
        with pytest.raises(karstdb.CallbackFailed):
            txn[b"boom"] = b"1"
        fragile.armed = False
        for refused in (lambda: txn.put(b"c", b"1"), lambda: txn.get(b"a"), txn.commit):
            with pytest.raises(karstdb.Panicked, match="roll it back"):
                refused()
        txn.rollback()
        assert list(db) == []

        async def in_a_task():
            async with db.begin() as txn:
                await txn.put_async(b"b", b"2")
                fragile.armed = True
                with pytest.raises(karstdb.CallbackFailed):
                    await txn.put_async(b"boom", b"2")
                fragile.armed = False
                with pytest.raises(karstdb.Panicked, match="roll it back"):
                    await txn.commit_async()
                await txn.rollback_async()

        asyncio.run(in_a_task())
        db[b"c"] = b"3"
        assert list(db) == [b"c"]


@pytest.mark.parametrize("answer", [True, None, 1.5, "less"])
def test_answers_that_are_no_numbers_are_refused(tmp_path, answer):
    db = karstdb.open(tmp_path, comparator=karstdb.Comparator("tests.wrong", lambda a, b: answer))
    with pytest.raises(karstdb.CallbackFailed, match="returns an int"):
        for key in (b"a", b"b"):
            db[key] = b"1"
        list(db)
    db.close()


def test_numbers_of_any_size_are_answers(tmp_path):
    large = karstdb.Comparator("tests.large", lambda a, b: ((a > b) - (a < b)) << 100)
    with karstdb.open(tmp_path, comparator=large) as db:
        db[b"b"] = db[b"a"] = b"1"
        assert list(db) == [b"a", b"b"]


def test_what_is_no_comparator_is_refused(tmp_path):
    with pytest.raises(TypeError, match="a function is needed"):
        karstdb.Comparator("tests.none", 1)
    with pytest.raises(TypeError, match="a function is needed"):
        karstdb.open(tmp_path, comparator=1)
    for name in ("", "leveldb.BytewiseComparator"):
        with pytest.raises(ValueError, match="a name of its own"):
            karstdb.Comparator(name, by_number)
    assert repr(karstdb.Options(comparator=NUMBERS)) == 'Options("comparator=tests.numbers")'
    assert NUMBERS.name == "tests.numbers"


def test_threads_and_compactions_ask_it_at_the_same_time(tmp_path):
    small = {"comparator": NUMBERS, "write_buffer_size": 16 << 10, "level0_file_num_compaction_trigger": 2}
    with karstdb.open(tmp_path, **small) as db:
        failed = []

        def work(first):
            try:
                for n in range(first, 1200, 4):
                    db[b"%d" % n] = b"%d" % n * 10
                    assert db[b"%d" % n] == b"%d" % n * 10
                    if n % 100 == first:
                        seen = list(db.keys(upper=b"%d" % n))
                        assert seen == sorted(seen, key=int)
            except BaseException as error:
                failed.append(error)

        async def task():
            for n in range(1200, 1300):
                await db.put_async(b"%d" % n, b"t")
                assert await db.get_async(b"%d" % n) == b"t"

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        asyncio.run(task())
        for thread in threads:
            thread.join()
        assert failed == []
        assert list(db) == [b"%d" % n for n in range(1300)]


def test_the_interpreter_ends_while_compactions_ask_it(tmp_path):
    program = f"""
import karstdb
numbers = karstdb.Comparator("tests.numbers", lambda a, b: int(a) - int(b))
db = karstdb.open({str(tmp_path)!r}, comparator=numbers, write_buffer_size=64 << 10,
    level0_file_num_compaction_trigger=2)
for i in range(2000):
    db[b"%d" % (i % 500)] = b"x" * 200
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    with karstdb.open(tmp_path, comparator=NUMBERS) as db:
        assert list(db) == [b"%d" % n for n in range(500)]
