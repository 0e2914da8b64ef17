//! The store by itself: over files in memory, with the time of the accesses given by the test; and
//! against a model, on a simulated machine ([`model`]).

mod atomic;
mod fields;
mod maintenance;
mod model;
mod sorted;
mod streams;

use super::dead::Load;
use super::layout::{ELEMENTS, EXPIRIES, SERVER, size_key, stored_key};
use super::*;
use karstdb::io::{MemoryFileSystem, block_on};
use std::collections::BTreeMap;
use std::future::Future;

/// An environment with files in memory.
fn memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

const PATH: &str = "/store";

async fn open(env: &Env) -> Store {
    Store::open(Path::new(PATH), &StoreOptions::default(), env).await.unwrap()
}

/// Runs a test with a new store.
fn with_store<F: Future<Output = ()>>(test: impl FnOnce(Env, Store) -> F) {
    let env = memory();
    block_on(&env, async { test(env.clone(), open(&env).await).await });
}

fn key(name: &str) -> Key {
    Key { db: 0, name: name.into() }
}

fn names(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

impl Store {
    async fn set(&self, key: &Key, value: &str, lifetime: Lifetime, now: Millis) {
        let mut access = self.change_at(std::slice::from_ref(key), now).await;
        access.set_string(key, value.as_bytes(), lifetime).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
    }

    async fn fetch(&self, key: &Key, now: Millis) -> Option<String> {
        let value = self.view(now).string(key).await.unwrap();
        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    async fn add(&self, key: &Key, members: &[&str]) -> u64 {
        let mut access = self.change_at(std::slice::from_ref(key), 1).await;
        let members = members.iter().map(|member| (member.as_bytes(), &b""[..]));
        let added = access.put_elements(key, Kind::Set, members).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        added
    }

    async fn members(&self, key: &Key) -> Vec<String> {
        let all = self.view(1).all_elements(key, Kind::Set).await.unwrap();
        all.into_iter().map(|(member, _)| String::from_utf8(member).unwrap()).collect()
    }

    async fn remove(&self, key: &Key) -> bool {
        let mut access = self.change_at(std::slice::from_ref(key), 1).await;
        let removed = access.delete(key).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        removed
    }

    /// Keys and values of a family.
    async fn entries(&self, family: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut iter = self.db().cf(family).unwrap().iter().unwrap();
        let mut entries = BTreeMap::new();
        iter.seek_to_first_async().await.unwrap();
        while iter.valid() {
            entries.insert(iter.key().to_vec(), iter.value().to_vec());
            iter.next_async().await.unwrap();
        }
        entries
    }

    /// Checks that sizes and expiries are those of the keys.
    async fn check(&self) {
        let (entries, records) = (self.entries(EXPIRIES).await, self.entries(SERVER).await);
        let (mut sizes, mut lives) = (BTreeMap::<u16, u64>::new(), BTreeMap::<u64, u64>::new());
        let mut sorted = Vec::new();
        for (stored, value) in self.entries("default").await {
            let base = layout::split_stored(&stored).unwrap().0;
            *sizes.entry(base).or_default() += 1;
            let head = layout::Head::decode(&stored, &value).unwrap();
            if let Some(at) = head.expiry {
                assert!(entries.contains_key(&layout::expiry_key(at, &stored)[..]));
            }
            if let Some(version) = head.version() {
                sorted.extend((head.kind == Kind::SortedSet).then_some(version));
                assert_eq!(version >> layout::NUMBER_BITS, u64::from(base));
                assert_eq!(lives.insert(version, head.entries()), None, "two keys of one version");
            }
        }
        let elements = self.entries(ELEMENTS).await;
        for version in sorted {
            check_index(&elements, version);
        }
        for element in elements.into_keys() {
            let version = layout::version_at(&element, 0).unwrap();
            match lives.get_mut(&version) {
                Some(count) => *count = count.checked_sub(1).expect("no more elements than the count"),
                None => assert!(records.contains_key(&layout::dead_key(version)[..]), "an element of no key"),
            }
        }
        assert!(lives.values().all(|missing| *missing == 0), "elements are missing: {lives:?}");
        for (number, database) in self.0.databases.now().iter().enumerate() {
            let size = sizes.remove(&database.base).unwrap_or(0);
            assert_eq!(database.size(), size as i64, "of database {number}");
            let recorded = records.get(&size_key(database.base)[..]).cloned();
            assert_eq!(recorded.map_or(0, |it| u64::from_le_bytes(it.try_into().unwrap())), size);
        }
        assert!(sizes.is_empty(), "keys of no database: {sizes:?}");
    }
}

/// Checks that the members of a sorted set and its index have the same scores.
fn check_index(elements: &BTreeMap<Vec<u8>, Vec<u8>>, version: u64) {
    let entries = |from: &[u8], behind: &[u8]| {
        let entries = elements.range(from.to_vec()..behind.to_vec());
        let decoded = entries.map(|(key, value)| layout::split_scored(key, value).unwrap());
        let mut all: Vec<(Vec<u8>, f64)> = decoded.map(|(member, score)| (member.to_vec(), score)).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    let (members, index) = (layout::names_prefix(Kind::SortedSet, version), layout::scores_prefix(version));
    let end = (version + 1).to_be_bytes();
    assert_eq!(entries(&members, &index), entries(&index, &end), "of version {version:#x}");
}

#[test]
fn strings_with_their_lifetimes() {
    with_store(|_, store| async move {
        let a = key("a");
        assert_eq!(store.fetch(&a, 1).await, None);
        store.set(&a, "one", Lifetime::Until(100), 1).await;
        store.set(&a, "two", Lifetime::Keep, 2).await;
        assert_eq!(store.fetch(&a, 99).await.as_deref(), Some("two"));
        assert_eq!(store.fetch(&a, 100).await, None, "gone from its millisecond on");
        assert_eq!(store.view(99).expiry(&a).await.unwrap(), Some(Some(100)));
        store.check().await;
        store.set(&a, "three", Lifetime::Keep, 100).await;
        assert_eq!(store.view(200).expiry(&a).await.unwrap(), Some(None), "the expired key is another");
        store.set(&a, "", Lifetime::Until(5), 200).await;
        assert_eq!((store.fetch(&a, 1).await, store.size(0)), (None, 0));
        store.check().await;

        let (one, two, set) = (key("1"), key("2"), key("s"));
        store.set(&one, "x", Lifetime::Forever, 1).await;
        store.set(&two, "y", Lifetime::Until(50), 1).await;
        store.add(&set, &["m"]).await;
        let read = store.view(50).strings(&[two.clone(), one.clone(), set.clone(), a]).await.unwrap();
        assert_eq!(read, [None, Some(karstdb::Value::from(b"x".to_vec())), None, None]);
        assert_eq!(store.view(1).string(&set).await.unwrap_err(), Wrong::wrong_type());
        let kinds = store.view(1).kinds(&[one, set, two]).await.unwrap();
        assert_eq!(kinds, [Some(Kind::String), Some(Kind::Set), Some(Kind::String)]);
        assert_eq!(store.size(0), 3);
        store.check().await;
    });
}

#[test]
fn an_access_sees_its_writes_and_loses_them_without_a_commit() {
    with_store(|_, store| async move {
        let (a, b) = (key("a"), key("b"));
        let mut access = store.change_at(&[a.clone(), b.clone()], 1).await;
        access.set_string(&a, b"1", Lifetime::Forever).await.unwrap();
        access.rename(&a, &b).await.unwrap();
        access.put_elements(&a, Kind::Set, [(&b"m"[..], &b""[..])].into_iter()).await.unwrap();
        assert_eq!(access.size(0), 2);
        assert_eq!(access.string(&b).await.unwrap().unwrap().to_vec(), b"1");
        assert_eq!(access.all_elements(&a, Kind::Set).await.unwrap().len(), 1);
        assert_eq!(access.scan(0, 0, 10).await.unwrap().1.len(), 2);
        assert_eq!((store.size(0), store.fetch(&b, 1).await), (0, None));
        drop(access);
        assert_eq!((store.size(0), store.fetch(&b, 1).await), (0, None));
        store.check().await;
        assert!(store.view(1).set_string(&a, b"", Lifetime::Forever).await.is_err(), "a view writes nothing");
    });
}

#[test]
fn collections_and_their_counts() {
    with_store(|env, store| async move {
        let set = key("set");
        assert_eq!(store.add(&set, &["b", "a", "b"]).await, 2);
        assert_eq!(store.add(&set, &["c", "a"]).await, 1);
        assert_eq!(store.members(&set).await, ["a", "b", "c"]);
        let view = store.view(1);
        assert_eq!(view.length(&set, Kind::Set).await.unwrap(), 3);
        assert_eq!(view.length(&set, Kind::Hash).await.unwrap_err(), Wrong::wrong_type());
        let found = view.elements(&set, Kind::Set, &names(&["c", "x"])).await.unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);

        let mut access = store.change_at(std::slice::from_ref(&set), 1).await;
        assert_eq!(access.delete_elements(&set, Kind::Set, &names(&["a", "x", "a"])).await.unwrap(), 1);
        assert_eq!(access.length(&set, Kind::Set).await.unwrap(), 2);
        access.set_expiry(&set, Some(50)).await.unwrap();
        access.commit(Durability::Synced).await.unwrap();
        drop(access);
        store.check().await;
        store.close().await.unwrap();

        let store = open(&env).await;
        assert_eq!(store.members(&set).await, ["b", "c"]);
        assert_eq!(store.view(50).length(&set, Kind::Set).await.unwrap(), 0);
        let mut access = store.change_at(std::slice::from_ref(&set), 1).await;
        assert_eq!(access.delete_elements(&set, Kind::Set, &names(&["b", "c"])).await.unwrap(), 2);
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert_eq!((store.size(0), store.view(1).kind(&set).await.unwrap()), (0, None));
        store.check().await;

        let hash = key("hash");
        let mut access = store.change_at(std::slice::from_ref(&hash), 1).await;
        let pairs = [(&b"f"[..], &b"1"[..]), (b"f", b"2")];
        assert_eq!(access.put_elements(&hash, Kind::Hash, pairs.into_iter()).await.unwrap(), 1);
        access.commit(Durability::Logged).await.unwrap();
        let value = access.element(&hash, Kind::Hash, b"f").await.unwrap().unwrap();
        assert_eq!((value.to_vec(), access.length(&hash, Kind::Hash).await.unwrap()), (b"2".to_vec(), 1));
    });
}

#[test]
fn a_deleted_collection_leaves_nothing() {
    with_store(|env, store| async move {
        let (one, two) = (key("one"), key("two"));
        for name in [&one, &two] {
            store.add(name, &["a", "b"]).await;
        }
        let before = store.view(1);
        assert_eq!(before.all_elements(&one, Kind::Set).await.unwrap().len(), 2);
        assert!(store.remove(&one).await && !store.remove(&one).await);
        store.add(&one, &["c"]).await;
        assert_eq!(store.members(&one).await, ["c"]);

        // The snapshot of `before` keeps the elements.
        let oldest = store.db().int_property("rocksdb.oldest-snapshot-sequence");
        assert_eq!(store.0.dead.release(oldest.filter(|&it| it > 0)).versions, 0);
        store.drop_dead().await.unwrap();
        assert_eq!(before.all_elements(&one, Kind::Set).await.unwrap().len(), 2);
        drop(before);
        store.close().await.unwrap();

        let store = open(&env).await;
        assert_eq!(store.0.dead.release(None), Load { versions: 1, elements: 2 });
        assert_eq!(store.entries(ELEMENTS).await.len(), 5);
        store.drop_dead().await.unwrap();
        assert_eq!(store.entries(ELEMENTS).await.len(), 3);
        assert_eq!((store.members(&one).await.len(), store.members(&two).await.len()), (1, 2));
        assert!(store.entries(SERVER).await.keys().all(|key| !key.starts_with(layout::DEAD)));
        assert_eq!(store.0.dead.release(None), Load::default());
        store.check().await;
    });
}

#[test]
fn names_are_changed_and_copied() {
    with_store(|_, store| async move {
        let (a, b, far) = (key("a"), key("b"), Key { db: 3, name: b"a".to_vec() });
        store.add(&a, &["x", "y"]).await;
        store.set(&b, "old", Lifetime::Until(70), 1).await;
        let all = [a.clone(), b.clone(), far.clone()];
        let mut access = store.change_at(&all, 1).await;
        assert!(access.rename(&a, &b).await.unwrap() && !access.rename(&a, &b).await.unwrap());
        assert!(access.copy(&b, &a).await.unwrap() && access.copy(&b, &b).await.unwrap());
        assert!(access.rename(&b, &far).await.unwrap());
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert_eq!((store.size(0), store.size(3)), (1, 1));
        assert_eq!(store.members(&far).await, ["x", "y"]);
        store.check().await;
        store.remove(&a).await;
        store.drop_dead().await.unwrap();
        assert_eq!(store.members(&far).await, ["x", "y"], "the copy is its own");
    });
}

#[test]
fn databases_are_swapped_and_flushed_whole() {
    with_store(|env, store| async move {
        let in_one = Key { db: 1, name: b"a".to_vec() };
        store.set(&key("a"), "zero", Lifetime::Until(90), 1).await;
        store.add(&in_one, &["m"]).await;
        let old = store.view(1);
        let mut access = store.change_all_at(1).await;
        access.swap(0, 1).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert_eq!(store.members(&key("a")).await, ["m"]);
        assert_eq!(store.fetch(&in_one, 1).await.as_deref(), Some("zero"));
        assert_eq!(old.kind(&in_one).await.unwrap(), Some(Kind::Set), "an access has one mapping");
        drop(old);

        let mut access = store.change_all_at(1).await;
        access.set_string(&key("gone"), b"1", Lifetime::Forever).await.unwrap();
        access.flush(0).await.unwrap();
        assert_eq!((access.size(0), access.kind(&key("a")).await.unwrap()), (0, None));
        access.set_string(&key("new"), b"1", Lifetime::Forever).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert_eq!((store.size(0), store.size(1)), (1, 1));
        assert_eq!(
            (store.fetch(&key("gone"), 1).await, store.fetch(&key("new"), 1).await),
            (None, Some("1".into()))
        );
        assert!(store.entries(ELEMENTS).await.is_empty());
        store.check().await;
        store.close().await.unwrap();

        let store = open(&env).await;
        assert_eq!((store.size(0), store.size(1)), (1, 1));
        assert_eq!(store.fetch(&in_one, 1).await.as_deref(), Some("zero"));
        // The expiry of a flushed key is left, and goes without harm to a new key of that name.
        let mut access = store.change_all_at(1).await;
        access.flush(1).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        store.set(&in_one, "again", Lifetime::Forever, 1).await;
        store.delete_due(100).await.unwrap();
        assert_eq!(store.fetch(&in_one, 100).await.as_deref(), Some("again"));
        store.check().await;
    });
}

#[test]
fn expired_keys_are_deleted_in_the_background() {
    with_store(|_, store| async move {
        for index in 0..200 {
            store.set(&key(&format!("{index:03}")), "x", Lifetime::Until(10 + index), 1).await;
        }
        store.add(&key("set"), &["m"]).await;
        let mut access = store.change_at(&[key("set"), key("010")], 1).await;
        access.set_expiry(&key("set"), Some(15)).await.unwrap();
        access.set_expiry(&key("010"), None).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        store.delete_due(109).await.unwrap();
        // 100 of the strings were due, one of them no more, and the set.
        assert_eq!(store.size(0), 101);
        assert_eq!(store.0.due[0].load(Ordering::Relaxed), 110);
        assert!(store.fetch(&key("010"), 1000).await.is_some());
        store.check().await;
        store.delete_due(1000).await.unwrap();
        assert_eq!((store.size(0), store.0.due[0].load(Ordering::Relaxed)), (1, Millis::MAX));
        store.check().await;
    });
}

#[test]
fn watches_see_what_redis_says_they_see() {
    with_store(|_, store| async move {
        let (a, b) = (key("a"), key("b"));
        store.set(&a, "1", Lifetime::Until(50), 1).await;
        let watch = async |key: &Key, now| {
            let access = store.change_at(std::slice::from_ref(key), now).await;
            store.watch_with(access, key).await.unwrap()
        };
        let (first, absent, expired) = (watch(&a, 1).await, watch(&b, 1).await, watch(&a, 60).await);
        assert!(!first.is_touched(49) && first.is_touched(50), "an expiry that comes touches");
        // An expired key that goes was absent before.
        let mut access = store.change_at(std::slice::from_ref(&a), 60).await;
        assert!(!access.delete(&a).await.unwrap());
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert!(!expired.is_touched(60) && !absent.is_touched(60));

        let there = {
            store.set(&a, "2", Lifetime::Forever, 60).await;
            watch(&a, 60).await
        };
        assert!(expired.is_touched(60) && !there.is_touched(60));
        let mut access = store.change_all_at(60).await;
        access.flush(0).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert!(there.is_touched(60) && !absent.is_touched(60), "a removal touches what there was");
        drop((first, absent, expired, there));

        store.set(&Key { db: 1, ..b.clone() }, "1", Lifetime::Forever, 60).await;
        let (moved, other) = (watch(&b, 60).await, watch(&a, 60).await);
        let mut access = store.change_all_at(60).await;
        access.swap(0, 1).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert!(moved.is_touched(60) && !other.is_touched(60));
    });
}

#[test]
fn scans_return_all_that_stays() {
    with_store(|env, store| async move {
        for index in 0..300 {
            store.set(&key(&format!("key:{index:04}")), "x", Lifetime::Forever, 1).await;
        }
        let mut store = store;
        let (mut cursor, mut seen, mut rounds) = (0, std::collections::BTreeSet::new(), 0);
        loop {
            let (next, found) = store.view(1).scan(0, cursor, 10).await.unwrap();
            seen.extend(found.into_iter().map(|(name, _)| name));
            rounds += 1;
            if next == 0 {
                break;
            }
            cursor = next;
            if rounds == 15 {
                store.close().await.unwrap();
                store = open(&env).await;
            }
            let gone = key(&format!("key:{:04}", 2 * rounds));
            store.set(&gone, "y", Lifetime::Forever, 1).await;
        }
        assert_eq!(seen.len(), 300);
        let mut prefixed = 0;
        store.view(1).names(0, b"key:01", |_| prefixed += 1).await.unwrap();
        assert_eq!(prefixed, 100);
        let random: std::collections::BTreeSet<_> = {
            let mut all = std::collections::BTreeSet::new();
            for _ in 0..100 {
                all.insert(store.view(1).random_key(0).await.unwrap().unwrap());
            }
            all
        };
        assert!(random.len() > 10 && random.is_subset(&seen), "{} keys of 100 draws", random.len());
        assert_eq!(store.view(1).random_key(1).await.unwrap(), None);
    });
}

#[test]
fn large_sets_are_scanned_and_drawn_from() {
    with_store(|_, store| async move {
        let set = key("set");
        let members: Vec<String> = (0..1000).map(|index| format!("m{index}")).collect();
        store.add(&set, &members.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let (mut cursor, mut seen) = (0, std::collections::BTreeSet::new());
        loop {
            let (next, found) = store.view(1).scan_elements(&set, Kind::Set, cursor, 64).await.unwrap();
            seen.extend(found.into_iter().map(|(member, _)| member));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), 1000);
        for count in [0, 1, 100, 999, 1000, 5000] {
            let drawn = store.view(1).random_elements(&set, Kind::Set, count).await.unwrap();
            let different: std::collections::BTreeSet<_> = drawn.iter().map(|(member, _)| member).collect();
            assert_eq!((drawn.len(), different.len()), (count.min(1000) as usize, count.min(1000) as usize));
        }
    });
}

#[test]
fn damaged_records_are_errors_that_name_them() {
    with_store(|_, store| async move {
        let base = store.0.databases.now()[0].base;
        store.db().put(stored_key(base, b"bad"), b"\x07rest").unwrap();
        let error = store.view(1).string(&key("bad")).await.unwrap_err();
        assert!(error.text().contains("default") && error.text().contains("bad"), "{error}");
        assert!(store.view(1).scan(0, 0, 10).await.is_err());
        store.db().cf(EXPIRIES).unwrap().put(b"short", b"").unwrap();
        assert!(store.delete_due(1).await.unwrap_err().text().contains(EXPIRIES));
    });
    let env = memory();
    let other = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let db = Db::open(PATH, &other).unwrap();
    db.put("a", "b").unwrap();
    db.close().unwrap();
    let opened = block_on(&env, Store::open(Path::new(PATH), &StoreOptions::default(), &env));
    assert_eq!(opened.err().unwrap().kind(), ErrorKind::NotSupported);
}

#[test]
fn writers_of_one_key_count_exactly() {
    let env = memory();
    let store = block_on(&env, open(&env));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (env, store) = (env.clone(), store.clone());
            std::thread::spawn(move || {
                block_on(&env, async {
                    for _ in 0..50 {
                        let (counter, set) = (key("counter"), key("set"));
                        let mut access = store.change_at(&[set.clone(), counter.clone()], 1).await;
                        let text = access.string(&counter).await.unwrap();
                        let number: u64 = text.map_or(0, |it| str::from_utf8(&it).unwrap().parse().unwrap());
                        let next = (number + 1).to_string();
                        access.set_string(&counter, next.as_bytes(), Lifetime::Forever).await.unwrap();
                        let member = [(next.as_bytes(), &b""[..])];
                        access.put_elements(&set, Kind::Set, member.into_iter()).await.unwrap();
                        access.commit(Durability::Logged).await.unwrap();
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    block_on(&env, async {
        assert_eq!(store.fetch(&key("counter"), 1).await.as_deref(), Some("200"));
        assert_eq!(store.view(1).length(&key("set"), Kind::Set).await.unwrap(), 200);
        store.check().await;
    });
}

#[test]
fn the_background_task_ends_with_the_store() {
    let env = memory();
    let store = block_on(&env, open(&env));
    let running = store.clone();
    let thread = std::thread::spawn(move || block_on(&env, running.maintain()));
    block_on(store.db().env(), async {
        let now = store.now();
        let mut access = store.change_at(&[key("a")], now).await;
        access.set_string(&key("a"), b"1", Lifetime::Until(now + 1)).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        while store.size(0) > 0 {
            karstdb::io::sleep(store.db().env(), std::time::Duration::from_millis(1)).await;
        }
        store.close().await.unwrap();
    });
    thread.join().unwrap();
}
