//! Per-entry checksums from the writing call to the table: bits that flip on the way in a real
//! database.

use karst_engine::{Db, ErrorKind, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use karst_format::key::{SeqNo, ValueType};
use karst_storage::memtable::pair_checksum;
use std::path::Path;

fn open(directory: &Path, options: &str) -> Db {
    let options = Options::new().set_all(options).unwrap().db(|db| db.create_if_missing = true);
    Db::open(directory, &options).unwrap()
}

const KEY: &[u8] = b"cave5";

/// Writes nine entries and one that no longer matches its checksum.
fn damaged(directory: &Path, bytes_per_key: u32, (kind, key, value): (ValueType, &[u8], &[u8])) -> Db {
    let db = open(directory, &format!("memtable_protection_bytes_per_key={bytes_per_key}"));
    for n in 1..10 {
        db.put(format!("cave{n}"), "limestone").unwrap();
    }
    let superversion = db.default_column_family().0.superversion();
    let meant = pair_checksum(KEY, if kind == ValueType::Value { b"limestone" } else { b"" });
    superversion.mem().add_with_checksum(&(SeqNo(9), kind, key, value), meant).unwrap();
    db
}

#[test]
fn what_flips_in_a_memtable_is_found_by_whoever_reads_it_and_does_not_get_into_a_table() {
    // A bit flips in the key, in the kind, in the value.
    let flips: [(ValueType, &[u8], &[u8]); 3] = [
        (ValueType::Value, b"cave4", b"limestone"),
        (ValueType::Deletion, KEY, b"limestone"),
        (ValueType::Value, KEY, b"limeston%"),
    ];
    for (flip, bytes_per_key) in flips.into_iter().flat_map(|flip| [4, 8].map(|bytes| (flip, bytes))) {
        let folder = tempfile::tempdir().unwrap();
        let db = damaged(folder.path(), bytes_per_key, flip);
        let is_found = |result: karst_engine::Result<()>| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{flip:?}");
            assert!(error.to_string().contains("does not match its checksum"), "{error}");
        };
        let met = flip.1;
        is_found(db.get(met).map(drop));
        let [sound, damaged] = &db.multi_get(&[&b"cave9"[..], met])[..] else { panic!("two answers") };
        assert!(sound.is_ok());
        is_found(damaged.clone().map(drop));
        let mut iter = db.iter(&ReadOptions::default()).unwrap();
        let walked = iter.seek_to_first().and_then(|()| {
            while iter.valid() {
                iter.next()?;
            }
            Ok(())
        });
        is_found(walked);
        let walked = iter.seek_to_last().and_then(|()| {
            while iter.valid() {
                iter.prev()?;
            }
            Ok(())
        });
        is_found(walked);
        is_found(iter.seek(met));
        is_found(db.flush(&FlushOptions::default()));
        assert_eq!(db.get("cave9").unwrap().as_deref(), Some(&b"limestone"[..]));
        assert!(db.put("cave9", "new").is_err(), "the memtable cannot be flushed, so nothing more goes in");
    }
}

#[test]
fn protected_writes_of_every_kind_are_read_back_and_flushed() {
    for (bytes, on_seek) in [(0, false), (1, false), (8, true)] {
        let folder = tempfile::tempdir().unwrap();
        let options = format!(
            "merge_operator=StringAppendOperator;memtable_protection_bytes_per_key={bytes};memtable_verify_per_key_checksum_on_seek={on_seek}"
        );
        let db = open(folder.path(), &options);
        let other = db.create_column_family("other", &Default::default()).unwrap();
        let write = |options: &WriteOptions, mut batch: WriteBatch| {
            for n in 0..40 {
                batch.put(format!("k{n:02}"), "v").unwrap();
                batch.put_cf(&other, format!("k{n:02}"), "w").unwrap();
            }
            batch.merge("k01", "x").unwrap();
            batch.delete("k02").unwrap();
            batch.single_delete("k03").unwrap();
            batch.delete_range("k10", "k20").unwrap();
            batch.put_log_data(b"for whom it may concern").unwrap();
            batch.put_entity(None, "k30", &[(b"", b"default")]).unwrap();
            db.write(options, &batch).unwrap();
        };
        let protect = WriteOptions { protection_bytes_per_key: 8, ..WriteOptions::new() };
        write(&WriteOptions::new(), WriteBatch::protected());
        write(&protect, WriteBatch::new());
        write(&protect, WriteBatch::protected());
        db.put_opt(&protect, "k04", "alone").unwrap();
        db.delete_range_opt(&protect, "k05", "k06").unwrap();
        let all = |db: &Db| {
            let get = |key: &str| db.get(key).unwrap().map(|v| String::from_utf8_lossy(&v).into_owned());
            assert_eq!(get("k01").as_deref(), Some("v,x"));
            assert_eq!((get("k02"), get("k03"), get("k05"), get("k15")), (None, None, None, None));
            assert_eq!(get("k04").as_deref(), Some("alone"));
            assert_eq!(get("k30").as_deref(), Some("default"));
            assert_eq!(get("k39").as_deref(), Some("v"));
            assert_eq!(
                db.get_cf(&ReadOptions::default(), &other, "k02").unwrap().as_deref(),
                Some(&b"w"[..])
            );
        };
        all(&db);
        db.flush(&FlushOptions::default()).unwrap();
        all(&db);
    }
}

#[test]
fn only_sizes_that_there_are_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), "memtable_protection_bytes_per_key=2");
    let family = db.default_column_family();
    for size in ["3", "16"] {
        let error = db.set_options(family, &[("memtable_protection_bytes_per_key", size)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    db.set_options(family, &[("memtable_protection_bytes_per_key", "4")]).unwrap();
    let odd = WriteOptions { protection_bytes_per_key: 4, ..WriteOptions::new() };
    assert_eq!(db.put_opt(&odd, "k", "v").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(db.get("k").unwrap().is_none());
    drop(db);
    let options = Options::new().set_all("memtable_protection_bytes_per_key=5").unwrap();
    assert_eq!(Db::open(folder.path(), &options).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
