//! Imports into files in memory: files, payloads, refusals, values in parts, crashes.

use super::*;
use crate::entry_id::EntryId;
use crate::rdb::file_tests::{body, file, key as file_key, of_redis};
use crate::rdb::{StreamTotals, StreamWriter, Type, Writer};
use crate::store::Side;
use karstdb::io::{Crash, MemoryFileSystem, Simulation, block_on};
use std::sync::Arc;

const PATH: &str = "/db";

fn memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

async fn open(env: &Env, replaces: bool) -> Importer {
    let options = ImportOptions { replaces, ..ImportOptions::default() };
    Importer::open(Path::new(PATH), &options, env).await.unwrap()
}

/// Imports a file as a whole.
async fn import(env: &Env, bytes: &[u8], replaces: bool) -> Result<Imported, ImportError> {
    let mut importer = open(env, replaces).await;
    let read = importer.read_file(bytes, |_, _| ControlFlow::Continue(())).await;
    let imported = importer.close().await?;
    assert!(read?);
    Ok(imported)
}

async fn store(env: &Env) -> Store {
    Store::open(Path::new(PATH), &StoreOptions::default(), env).await.unwrap()
}

fn key(db: u16, name: &str) -> Key {
    Key { db, name: name.into() }
}

async fn string(store: &Store, name: &str) -> Option<Vec<u8>> {
    store.view(store.now()).string(&key(0, name)).await.unwrap().map(|value| value.to_vec())
}

fn payload(text: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Type::String, 1);
    writer.string(text);
    writer.sealed()
}

#[test]
fn an_importer_goes_from_thread_to_thread() {
    fn check<T: Send>() {}
    check::<Importer>();
}

#[test]
fn a_file_of_redis_is_imported() {
    let env = memory();
    block_on(&env, async {
        let imported = import(&env, &of_redis(), false).await.unwrap();
        assert_eq!((imported.keys(), imported.libraries, imported.refused), (11, 1, 0));
        let Imported { strings, lists, sets, hashes, sorted_sets, streams, .. } = imported;
        assert_eq!((strings, lists, sets, hashes, sorted_sets, streams), (3, 1, 2, 2, 2, 1));
        let store = store(&env).await;
        let view = store.view(store.now());
        assert_eq!(view.expiry(&key(0, "n")).await.unwrap(), Some(Some(4_102_444_800_123)));
        assert_eq!(view.expiry(&key(0, "s")).await.unwrap(), Some(None));
        assert_eq!(string(&store, "z").await, Some(vec![b'a'; 60]));
        let list = view.list_range(&key(0, "l"), 0..9).await.unwrap();
        assert!(list.iter().map(|value| &value[..]).eq([b"a", b"b", b"3"]));
        let stream = view.stream(&key(3, "x")).await.unwrap().unwrap();
        assert_eq!((stream.length, stream.last, stream.added), (1, EntryId::new(2, 5), 2));
        assert_eq!(view.groups(&stream).await.unwrap().len(), 1);
        assert_eq!(store.libraries().await.unwrap().len(), 1);
        assert_eq!((store.size(0), store.size(3)), (10, 1));
        store.close().await.unwrap();
    });
}

#[test]
fn keys_that_are_there_stay_or_are_replaced() {
    let env = memory();
    block_on(&env, async {
        let code = b"#!lua name=lib\nredis.register_function('g', function() end)";
        let bytes = file(
            12,
            &[
                &file_key(b"s", &body(Type::String, &[b"before"])),
                &file_key(b"l", &body(Type::Set, &[b"a", b"b"])),
                &[&[245, code.len() as u8], &code[..]].concat(),
            ],
        );
        import(&env, &bytes, false).await.unwrap();
        let kept = import(&env, &of_redis(), false).await.unwrap();
        assert_eq!((kept.keys(), kept.existing, kept.libraries), (9, 2, 0));
        assert_eq!(kept.refusals, ["library \"lib\": Library 'lib' already exists"]);
        let again = import(&env, &of_redis(), false).await.unwrap();
        assert_eq!((again.keys(), again.existing), (0, 11));
        let store_now = store(&env).await;
        assert_eq!(string(&store_now, "s").await.as_deref(), Some(&b"before"[..]));
        store_now.close().await.unwrap();
        let replaced = import(&env, &of_redis(), true).await.unwrap();
        assert_eq!((replaced.keys(), replaced.existing, replaced.libraries), (11, 0, 1));
        let store = store(&env).await;
        assert_eq!(string(&store, "s").await.as_deref(), Some(&b"hello"[..]));
        assert_eq!(store.view(0).kind(&key(0, "l")).await.unwrap(), Some(Kind::List));
        assert_eq!((store.size(0), store.size(3)), (10, 1));
        store.close().await.unwrap();
    });
}

#[test]
fn a_key_that_comes_twice_is_not_one_that_was_there() {
    let env = memory();
    block_on(&env, async {
        for round in 0..2 {
            let mut importer = open(&env, false).await;
            for text in [b"1", b"2"] {
                importer.put(0, format!("k{round}").as_bytes(), &payload(text), None).await.unwrap();
                importer.write().await.unwrap();
            }
            let imported = importer.close().await.unwrap();
            assert_eq!((imported.strings, imported.existing), (2, 0));
        }
        let store = store(&env).await;
        assert_eq!((string(&store, "k1").await, store.size(0)), (Some(b"2".to_vec()), 2));
        store.close().await.unwrap();
    });
}

#[test]
fn expired_keys_are_counted() {
    let env = memory();
    block_on(&env, async {
        let mut importer = open(&env, false).await;
        importer.put(0, b"old", &payload(b"v"), Some(1)).await.unwrap();
        let mut fields = Writer::of_fields(1, 1);
        fields.field(b"f", b"v", Some(1), 1);
        importer.put(0, b"fields", &fields.sealed(), None).await.unwrap();
        let later = importer.store.now() + 1_000_000;
        importer.put(0, b"new", &payload(b"v"), Some(later)).await.unwrap();
        let imported = importer.close().await.unwrap();
        assert_eq!((imported.keys(), imported.expired), (1, 2));
        let store = store(&env).await;
        assert_eq!(store.size(0), 1);
        assert_eq!(store.view(0).expiry(&key(0, "new")).await.unwrap(), Some(Some(later)));
        store.close().await.unwrap();
        // One that was there, and has expired at the source since, is gone.
        let mut importer = open(&env, true).await;
        importer.put(0, b"new", &payload(b"v"), Some(1)).await.unwrap();
        assert_eq!(importer.close().await.unwrap().expired, 1);
        let store = self::store(&env).await;
        assert_eq!((store.view(0).expiry(&key(0, "new")).await.unwrap(), store.size(0)), (None, 0));
        store.close().await.unwrap();
    });
}

#[test]
fn payloads_that_are_not_taken_are_named_and_the_rest_is_imported() {
    let env = memory();
    block_on(&env, async {
        let mut importer = open(&env, false).await;
        importer.put(0, b"a", &payload(b"1"), None).await.unwrap();
        let mut damaged = payload(b"2");
        damaged[1] ^= 1;
        importer.put(1, b"b\xff", &damaged, None).await.unwrap();
        let mut module = vec![7, 0x81];
        module.extend(5_035_677_737_576_115_203u64.to_be_bytes());
        importer.put(2, &[b'n'; 200], &module, None).await.unwrap();
        importer.put(0, b"c", &Writer::new(Type::Set, 0).sealed(), None).await.unwrap();
        importer.put(0, b"d", &payload(b"4"), None).await.unwrap();
        let beyond = importer.put(16, b"e", &payload(b"5"), None).await.unwrap_err();
        assert_eq!(beyond.to_string(), "key \"e\" of database 16: the number of databases is 16");
        assert!(importer.put_libraries(b"x").await.is_err());
        let imported = importer.close().await.unwrap();
        assert_eq!((imported.keys(), imported.refused), (2, 3));
        let name = "n".repeat(QUOTED_AT_MOST);
        let expected = [
            "key \"b\\xff\" of database 1: its version or its checksum are wrong".to_owned(),
            format!("key \"{name}\"... of database 2: a value of the module type ReJSON-RL"),
            "key \"c\" of database 0: Bad data format".to_owned(),
        ];
        assert_eq!(imported.refusals, expected);
    });
}

#[test]
fn a_file_ends_at_a_value_that_is_not_taken() {
    let env = memory();
    block_on(&env, async {
        let good = file_key(b"good", &body(Type::String, &[b"v"]));
        let late = file_key(b"late", &body(Type::String, &[b"v"]));
        let at = 9 + good.len();
        for (bad, why) in [
            (file_key(b"bad", b"\x02\0"), format!("offset {at}: key \"bad\" of database 0: Bad data format")),
            (b"\xfe\x11\0\x01k\x01v".to_vec(), {
                format!("offset {}: key \"k\" of database 17: the number of databases is 16", at + 2)
            }),
            (vec![200], format!("offset {at}: the unknown opcode 200")),
        ] {
            let error = import(&env, &file(10, &[&good, &bad, &late]), true).await.unwrap_err();
            assert_eq!(error.to_string(), why);
            let store = store(&env).await;
            assert_eq!(store.size(0), 1, "what came before is there");
            store.close().await.unwrap();
        }
        let error = import(&env, b"nothing", true).await.unwrap_err();
        assert!(error.to_string().contains("begin with REDIS"), "{error}");
    });
}

#[test]
fn an_import_that_is_broken_off_keeps_what_it_has_read() {
    let env = memory();
    block_on(&env, async {
        let value = vec![b'v'; 200 << 10];
        let keys: Vec<Vec<u8>> =
            (0..20u8).map(|name| file_key(&[name], &body(Type::String, &[&value]))).collect();
        let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let bytes = file(10, &slices);
        let (mut importer, mut told) = (open(&env, false).await, Vec::new());
        let read = importer.read_file(&bytes[..], |imported, read| {
            told.push((imported.strings, read));
            if told.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(read.await, Ok(false));
        assert_eq!(importer.close().await.unwrap().strings, told[1].0);
        assert!(told[0].0 < told[1].0 && told[1].0 < 20 && told[1].1 < bytes.len() as u64, "{told:?}");
        assert_eq!(import(&env, &bytes, false).await.unwrap().existing, told[1].0);
    });
}

/// A file with a list, a set, a hash, a hash with expiries, a sorted set and a stream, each of many
/// elements, all with an expiry.
fn large_values() -> Vec<u8> {
    let names: Vec<Vec<u8>> = (0..3000).map(|n| format!("{n:050}").into_bytes()).collect();
    let slices: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let mut parts = vec![vec![252]];
    let mut add = |name: &[u8], body: &[u8]| {
        let last = parts.last_mut().unwrap();
        last.extend(4_102_444_800_000i64.to_le_bytes());
        last.extend(file_key(name, body));
        parts.push(vec![252]);
    };
    add(b"list", &body(Type::List, &slices));
    add(b"set", &body(Type::Set, &slices));
    add(b"hash", &body(Type::Hash, &slices));
    let mut fields = Writer::of_fields(3000, 4_102_444_800_000);
    let mut scores = Writer::new(Type::SortedSet, 3000);
    let mut stream = StreamWriter::new(100, 4096);
    for (number, name) in (1u32..).zip(&slices) {
        fields.field(name, b"v", Some(4_102_444_800_000), 4_102_444_800_000);
        scores.string(name);
        scores.score(f64::from(number));
        stream.entry(EntryId::new(number.into(), 0), &[name, b"v"]);
    }
    let last = EntryId::new(3000, 7);
    let totals =
        StreamTotals { length: 3000, last, first: EntryId::new(1, 0), added: 3001, ..Default::default() };
    for (name, writer) in
        [(&b"fields"[..], fields), (b"scores", scores), (b"stream", stream.totals(&totals, 0))]
    {
        let payload = writer.sealed();
        add(name, split_footer(&payload).unwrap().0);
    }
    parts.pop();
    let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    file(12, &slices)
}

async fn check_large_values(store: &Store) {
    let view = store.view(store.now());
    for (name, kind, length) in [
        ("list", Kind::List, 3000),
        ("set", Kind::Set, 3000),
        ("hash", Kind::Hash, 1500),
        ("fields", Kind::Hash, 3000),
        ("scores", Kind::SortedSet, 3000),
    ] {
        assert_eq!(view.length(&key(0, name), kind).await.unwrap(), length, "{name}");
    }
    for (name, kind, length) in
        [("set", Kind::Set, 3000), ("hash", Kind::Hash, 1500), ("scores", Kind::SortedSet, 3000)]
    {
        let elements = view.all_elements(&key(0, name), kind).await.unwrap();
        assert_eq!(elements.len(), length, "{name}");
    }
    let list = view.list_range(&key(0, "list"), 0..u64::MAX).await.unwrap();
    let in_order = (0..3000).zip(&list).all(|(n, value)| **value == *format!("{n:050}").as_bytes());
    assert!(in_order && list.len() == 3000);
    assert_eq!(view.all_fields(&key(0, "fields")).await.unwrap().len(), 3000);
    let stream = view.stream(&key(0, "stream")).await.unwrap().unwrap();
    assert_eq!((stream.length, stream.last, stream.added), (3000, EntryId::new(3000, 7), 3001));
    let entries = view.entries(&stream, EntryId::ZERO..=EntryId::MAX, Side::Left, 9999).await.unwrap();
    assert!(entries.iter().map(|entry| entry.id.ms()).eq(1..=3000));
    for name in ["list", "set", "hash", "fields", "scores", "stream"] {
        let expiry = view.expiry(&key(0, name)).await.unwrap();
        assert_eq!(expiry, Some(Some(4_102_444_800_000)), "{name}");
    }
    assert_eq!(store.size(0), 6);
}

#[test]
fn large_collections_are_written_in_parts() {
    let env = memory();
    block_on(&env, async {
        let bytes = large_values();
        for _ in 0..2 {
            assert_eq!(import(&env, &bytes, true).await.unwrap().keys(), 6);
            let store = store(&env).await;
            check_large_values(&store).await;
            store.close().await.unwrap();
        }
    });
}

/// Power fails in the midst of an import, or its process is killed. A second one that replaces
/// completes it.
#[test]
fn a_second_import_completes_one_that_has_crashed() {
    let bytes = large_values();
    // A simulated database is not closed.
    let read = async |env: &Env, replaces| {
        let mut importer = open(env, replaces).await;
        for name in ["list", "set", "hash", "fields", "scores", "stream"] {
            // A part of one has its expiry.
            let expiry = importer.store.view(0).expiry(&key(0, name)).await.unwrap();
            assert!(expiry.is_none_or(|expiry| expiry == Some(4_102_444_800_000)), "{name}: {expiry:?}");
        }
        let read = importer.read_file(&bytes[..], |_, _| ControlFlow::Continue(())).await;
        assert_eq!((read, importer.imported().keys()), (Ok(true), 6));
        importer
    };
    let mut interrupted = 0;
    for seed in 0..24 {
        let simulation = Simulation::new(seed);
        let env = simulation.env().clone();
        simulation.fs().lose_power_after(5 + 2 * seed);
        let ended = simulation.run(async { read(&env, false).await.store.sync().await.is_ok() });
        interrupted += u64::from(ended.is_none());
        let crash = if seed % 2 == 0 { Crash::Power } else { Crash::Process };
        let simulation = simulation.restart(crash, seed);
        let env = simulation.env().clone();
        let completed = simulation.run(async { check_large_values(&read(&env, true).await.store).await });
        assert!(completed.is_some(), "the power stays");
    }
    println!("{interrupted} of 24 imports were interrupted");
    assert!(interrupted > 12, "{interrupted} of 24 imports were interrupted");
}
