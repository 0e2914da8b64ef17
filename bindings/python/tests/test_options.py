"""Options by name, and operators and filters in Python."""

import asyncio
import subprocess
import sys
import threading

import pytest

import karstdb


def concat(key, existing, operands):
    return b",".join(([] if existing is None else [existing]) + operands)


def test_options_have_many_forms(tmp_path):
    forms = [
        ({"max_open_files": 77}, {}),
        ("max_open_files=77;write_buffer_size=1M", {}),
        (None, {"max_open_files": 77}),
        (karstdb.Options(max_open_files=77), {}),
        (karstdb.Options("max_open_files=77"), {"use_fsync": True}),
    ]
    for i, (options, named) in enumerate(forms):
        path = tmp_path / str(i)
        with karstdb.open(path, options, **named) as db:
            db[b"a"] = b"1"
        [latest] = sorted(path.glob("OPTIONS-*"))[-1:]
        text = latest.read_text()
        assert "max_open_files=77" in text
        assert ("use_fsync=true" in text) == bool(named.get("use_fsync"))
        with karstdb.Rdict(path) as db:  # as it was
            assert db[b"a"] == b"1"


def test_options_are_checked_when_they_are_set(tmp_path):
    options = karstdb.Options()
    options["max_open_files"] = 100
    options.set_max_open_files(200)
    options.create_if_missing(False)
    options.set("filter_policy", "bloomfilter:10")
    assert "max_open_files=200" in repr(options)
    for wrong in (
        lambda: karstdb.Options(write_bufer_size=1),
        lambda: karstdb.Options("write_bufer_size=1"),
        lambda: options.set("write_bufer_size", 1),
        lambda: karstdb.open(tmp_path / "db", write_bufer_size=1),
        lambda: karstdb.TransactionDB(tmp_path / "db", {"write_bufer_size": 1}),
        lambda: karstdb.open(tmp_path / "db", None, {"logs": {"write_bufer_size": 1}}),
    ):
        with pytest.raises(karstdb.InvalidArgument, match="did you mean `write_buffer_size`"):
            wrong()
    assert not (tmp_path / "db").exists()
    with pytest.raises(karstdb.InvalidArgument):
        options.set("max_open_files", "many")
    with pytest.raises(AttributeError):
        options.set_no_such_option
    for wrong in (1, [1], object()):
        with pytest.raises(TypeError):
            karstdb.open(tmp_path / "db", wrong)
    with pytest.raises(TypeError):
        options.set("max_open_files", [1])
    with pytest.raises(karstdb.Error):
        karstdb.open(tmp_path / "db", options)  # create_if_missing is false


def test_column_families_have_options_of_their_own_and_are_made(tmp_path):
    families = {"logs": {"merge_operator": concat, "write_buffer_size": 1 << 20}, "rest": None}
    for _ in range(2):
        with karstdb.open(tmp_path / "db", {"merge_operator": "uint64add"}, families) as db:
            logs = db.get_column_family("logs")
            logs.merge(b"k", b"v")
            db.merge(b"n", (1).to_bytes(8, "little"))
            db.get_column_family("rest")[b"a"] = b"1"
    with karstdb.TransactionDB(tmp_path / "db", column_families=families) as db:
        assert db.get_column_family("logs")[b"k"] == b"v,v"
        assert int.from_bytes(db[b"n"], "little") == 2
    with pytest.raises(karstdb.InvalidArgument, match="of the database"):
        karstdb.open(tmp_path / "db", None, {"logs": {"max_open_files": 1}})
    with pytest.raises(TypeError):
        karstdb.open(tmp_path / "db", None, ["logs"])


def test_a_merge_operator_in_python(tmp_path):
    operator = karstdb.MergeOperator("concat", concat, lambda key, operands: b",".join(operands))
    assert operator.name == "concat"
    with karstdb.open(tmp_path / "db", merge_operator=operator) as db:
        for i in range(5):
            db.merge(b"k", b"%d" % i)
            db.flush()
        assert db[b"k"] == b"0,1,2,3,4" and list(db.values()) == [b"0,1,2,3,4"]
        db.compact_range()
        assert db[b"k"] == b"0,1,2,3,4"
        db[b"put"] = b"first"
        db.merge(b"put", b"second")
        assert asyncio.run(db.get_async(b"put")) == b"first,second"
        assert db.multi_get([b"put", b"k"]) == [b"first,second", b"0,1,2,3,4"]
    with karstdb.open(tmp_path / "db") as db:  # which has no operator of this name
        with pytest.raises(karstdb.NotSupported, match="concat"):
            db.merge(b"k", b"5")
    with karstdb.OptimisticTransactionDB(tmp_path / "db", merge_operator=operator) as db:
        with db.begin() as txn:
            txn.merge(b"k", b"6")
            assert txn[b"k"] == b"0,1,2,3,4,6"


@pytest.mark.parametrize("wrong", ["raises", "text", "none", "exits"])
def test_what_an_operator_raises_is_the_error_of_the_operation(tmp_path, wrong):
    ill = [True]

    def operator(key, existing, operands):
        if not ill:
            return concat(key, existing, operands)
        if wrong == "raises":
            raise ZeroDivisionError("by zero")
        if wrong == "exits":
            raise SystemExit(3)
        return "text" if wrong == "text" else None

    cause = {"raises": ZeroDivisionError, "exits": SystemExit}.get(wrong, TypeError)
    with karstdb.open(tmp_path / "db", merge_operator=operator) as db:
        db[b"a"] = b"1"
        db.merge(b"k", b"v")
        for call in (
            lambda: db[b"k"],
            lambda: db.get(b"k"),
            lambda: db.multi_get([b"a", b"k"]),
            lambda: list(db.items()),
            lambda: asyncio.run(db.get_async(b"k")),
        ):
            with pytest.raises(karstdb.CallbackFailed) as raised:
                call()
            assert isinstance(raised.value.__cause__, cause)
        assert db[b"a"] == b"1"
        ill.clear()
        assert db[b"k"] == b"v"
        db.flush()
        db.compact_range()
        assert db[b"k"] == b"v"


def test_a_filter_in_python(tmp_path):
    seen = []

    def expire(level, key, value):
        seen.append((level, key, value))
        if key == b"drop":
            return True
        return b"changed" if key == b"change" else None

    with karstdb.open(tmp_path / "db", compaction_filter=karstdb.CompactionFilter("x", expire)) as db:
        for key in (b"change", b"drop", b"keep"):
            db[key] = b"v"
        db.flush()
        db.compact_range()
        assert list(db.items()) == [(b"change", b"changed"), (b"keep", b"v")]
        assert {key for _, key, _ in seen} == {b"change", b"drop", b"keep"}
    with karstdb.open(tmp_path / "db", compaction_filter="RemoveEmptyValueCompactionFilter") as db:
        db[b"empty"] = b""
        db.flush()
        db.compact_range()
        assert b"empty" not in db and b"keep" in db


@pytest.mark.parametrize("wrong", ["raises", "text"])
def test_what_a_filter_raises_is_kept_and_told_of(tmp_path, wrong):
    def ill(level, key, value):
        if key == b"bad":
            return 1 / 0 if wrong == "raises" else "text"
        return True

    with karstdb.open(tmp_path / "db", column_families={"logs": {"compaction_filter": ill}}) as db:
        logs = db.get_column_family("logs")
        logs[b"bad"], logs[b"good"] = b"1", b"2"
        logs.flush()
        with pytest.raises(karstdb.CallbackFailed) as raised:
            logs.compact_range()
        assert isinstance(raised.value.__cause__, ZeroDivisionError if wrong == "raises" else TypeError)
        assert list(logs.items()) == [(b"bad", b"1")]
        db.compact_range()  # another family's filter has nothing to say
        logs[b"new"] = b"3"  # the database goes on
        assert logs[b"new"] == b"3"


def test_only_functions_are_operators_and_filters(tmp_path):
    for wrong in (1, b"concat", [concat]):
        with pytest.raises(TypeError):
            karstdb.open(tmp_path / "db", merge_operator=wrong)
        with pytest.raises(TypeError):
            karstdb.open(tmp_path / "db", compaction_filter=wrong)
        with pytest.raises(TypeError):
            karstdb.MergeOperator("x", wrong)
        with pytest.raises(TypeError):
            karstdb.CompactionFilter("x", wrong)


def test_background_threads_call_python_while_others_work(tmp_path):
    """Flushes and compactions take the interpreter's lock while threads of Python write and close."""
    with karstdb.open(
        tmp_path / "db",
        merge_operator=concat,
        compaction_filter=lambda level, key, value: None,
        write_buffer_size=64 << 10,
        level0_file_num_compaction_trigger=2,
    ) as db:

        def work(thread):
            for i in range(600):
                db.merge(b"%d-%03d" % (thread, i % 100), b"x" * 20)

        threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        db.compact_range()
        assert sum(len(value.split(b",")) for value in db.values()) == 2400


def test_the_interpreter_ends_while_compactions_call_it(tmp_path):
    program = f"""
import karstdb
db = karstdb.open({str(tmp_path / "db")!r}, merge_operator=lambda key, existing, operands: operands[-1],
    compaction_filter=lambda level, key, value: None,
    write_buffer_size=64 << 10, level0_file_num_compaction_trigger=2)
for i in range(5000):
    db.merge(b"%d" % (i % 1000), b"x" * 50)
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
