"""Options of reads, by keyword, in every kind of read."""

import asyncio

import karstdb
import pytest


@pytest.fixture(params=[karstdb.open, karstdb.TransactionDB, karstdb.OptimisticTransactionDB])
def opened(request, tmp_path):
    """Opens a database of 300 entries in one table, of which nothing is in the cache."""

    def again(**named):
        return request.param(tmp_path, **named)

    with again(compression="kNoCompression") as db:
        for n in range(300):
            db[b"%03d" % n] = b"value of %03d." % n * 20
        db.flush()
    return again


def forms(db, key):
    """The ways to read a key: plain, of several, in a task, as part of an iteration."""
    reads = [
        lambda **read: db.get(key, **read),
        lambda **read: db.multi_get([key], **read)[0],
        lambda **read: asyncio.run(db.get_async(key, **read)),
        lambda **read: asyncio.run(db.multi_get_async([key], **read))[0],
        lambda **read: next(iter(db.values(from_key=key, **read)), None),
        lambda **read: next(iter(db.items(from_key=key, **read)), (None, None))[1],
        lambda **read: asyncio.run(first(db.items_async(from_key=key, **read))),
    ]
    if hasattr(db, "begin"):
        txn = db.begin()
        reads += [
            lambda **read: txn.get(key, **read),
            lambda **read: txn.multi_get([key], **read)[0],
            lambda **read: txn.get_for_update(key, **read),
            lambda **read: asyncio.run(txn.get_async(key, **read)),
            lambda **read: asyncio.run(txn.multi_get_async([key], **read))[0],
            lambda **read: asyncio.run(txn.get_for_update_async(key, **read)),
            lambda **read: next(iter(txn.values(from_key=key, **read)), None),
        ]
    return reads


async def first(entries):
    async for _, value in entries:
        return value


VALUE = b"value of 007." * 20


def test_where_a_read_looks(opened):
    with opened() as db:
        for read in forms(db, b"007"):
            with pytest.raises(karstdb.Incomplete):
                read(read_tier="block_cache")
        for read in forms(db, b"007"):
            assert read(read_tier="all") == VALUE
            assert read(read_tier="block_cache") == VALUE
        db[b"0070"] = b"new"
        assert db.get(b"007", read_tier="memtable") is None
        assert db.get(b"0070", read_tier="memtable") == b"new"


def test_what_a_read_leaves_in_the_cache(opened):
    with opened() as db:
        for read in forms(db, b"007"):
            assert read(fill_cache=False) == VALUE
            with pytest.raises(karstdb.Incomplete):
                read(read_tier="block_cache")
        assert db.get(b"007", fill_cache=True) == VALUE
        assert db.get(b"007", read_tier="block_cache") == VALUE


def is_late(read):
    """Whether it ever is: storage may have answered by the time that anybody looks at the clock."""
    for _ in range(1000):
        try:
            assert read() == VALUE
        except karstdb.TimedOut:
            return True
    return False


def test_a_read_that_is_late(opened):
    # Direct, as what is in the page cache need not be waited for.
    with opened(use_direct_reads=True) as db:
        for read in forms(db, b"007"):
            assert read(deadline=1e9, io_timeout=60, fill_cache=False) == VALUE
            assert is_late(lambda: read(deadline=0, fill_cache=False))
            assert is_late(lambda: read(io_timeout=0.0, fill_cache=False))
            assert read(deadline=None, io_timeout=None, fill_cache=False) == VALUE


def test_a_block_that_is_damaged(opened, tmp_path):
    [table] = tmp_path.glob("*.sst")
    content = table.read_bytes()
    assert content.count(VALUE) == 1
    table.write_bytes(content.replace(VALUE, VALUE.upper()))
    with opened() as db:
        for read in forms(db, b"007"):
            with pytest.raises(karstdb.Corruption):
                read()
            assert read(verify_checksums=False, fill_cache=False) == VALUE.upper()


def test_ranges_that_were_removed(opened, tmp_path):
    with karstdb.open(tmp_path) as db:
        db.delete_range(b"000", b"200")
    with opened() as db:
        for read in forms(db, b"007"):
            assert read() != VALUE
            assert read(ignore_range_deletions=True) == VALUE


def test_the_way_of_reading_does_not_change_what_is_read(opened):
    with opened() as db:
        for read in forms(db, b"007"):
            assert read(async_io=False, fill_cache=False) == VALUE
        keys = [b"%03d" % n for n in range(300)]
        for read in ({"optimize_multiget_for_io": False}, {"async_io": False}, {}):
            assert all(db.multi_get(keys, fill_cache=False, **read))
        for read in (
            {"readahead_size": 1 << 16},
            {"adaptive_readahead": True},
            {"auto_readahead_size": False},
            {"total_order_seek": True},
            {"auto_prefix_mode": True},
        ):
            assert list(db.keys(fill_cache=False, **read)) == keys


def test_a_batch_of_limited_size(opened):
    with opened() as db:
        for limited in (
            lambda: db.multi_get([b"007", b"008"], value_size_soft_limit=1),
            lambda: asyncio.run(db.multi_get_async([b"007", b"008"], value_size_soft_limit=1)),
        ):
            with pytest.raises(karstdb.LimitReached):
                limited()
        assert db.multi_get([b"007"], value_size_soft_limit=1 << 63) == [VALUE]


def test_an_iteration_over_many_hidden_entries(opened):
    with opened() as db:
        for n in range(10, 100):
            del db[b"%03d" % n]
        with pytest.raises(karstdb.Incomplete, match="max_skippable"):
            list(db.keys(from_key=b"009", max_skippable_internal_keys=50))
        assert len(list(db.keys(max_skippable_internal_keys=1000))) == 210
        cursor = db.iter(max_skippable_internal_keys=50)
        with pytest.raises(karstdb.Incomplete):
            cursor.seek(b"010")


def test_an_iteration_within_a_prefix(tmp_path):
    with karstdb.open(tmp_path, prefix_extractor="rocksdb.FixedPrefix.2") as db:
        for n in range(300):
            db[b"%03d" % n] = b"v"
        db.flush()
        assert len(list(db.keys(from_key=b"005", prefix_same_as_start=True))) == 5
        assert len(list(db.keys(from_key=b"005", total_order_seek=True))) == 295
    with karstdb.TransactionDB(tmp_path, prefix_extractor="rocksdb.FixedPrefix.2") as db:
        with pytest.raises(karstdb.NotSupported):
            db.begin().iter(prefix_same_as_start=True)


def test_options_that_are_wrong(opened):
    with opened() as db:
        for read in forms(db, b"007"):
            with pytest.raises(TypeError, match="no option fill_cach; did you mean fill_cache?"):
                read(fill_cach=False)
            with pytest.raises(TypeError, match="no option zzz$"):
                read(zzz=1)
            with pytest.raises(TypeError, match="fill_cache: "):
                read(fill_cache=1)
            with pytest.raises(TypeError, match="deadline: "):
                read(deadline="soon")
            for wrong in (-1, float("nan")):
                with pytest.raises(ValueError, match="deadline: "):
                    read(deadline=wrong)
            with pytest.raises(ValueError, match="all, block_cache or memtable"):
                read(read_tier="disk")
        with pytest.raises(TypeError, match="a get has no option readahead_size; other reads have"):
            db.get(b"007", readahead_size=1)
        with pytest.raises(TypeError, match="an iteration has no option value_size_soft_limit"):
            db.iter(value_size_soft_limit=1)
        with pytest.raises(TypeError, match="a multi_get has no option total_order_seek"):
            db.multi_get([], total_order_seek=True)
        for name, meant in (("iterate_upper_bound", "upper"), ("snapshotx", "snapshot"), ("uper", "upper")):
            with pytest.raises(TypeError, match=f"no option {name}; did you mean {meant}?"):
                db.iter(**{name: b"a"})
        with pytest.raises(ValueError, match="readahead_size: "):
            db.iter(readahead_size=-1)
