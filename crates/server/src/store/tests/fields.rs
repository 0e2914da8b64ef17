//! Fields with expiries: random histories against a model, with the maintenance in between.

use super::super::*;
use super::{key, names, with_store};
use karst_testkit::random::Random;
use std::collections::BTreeMap;

type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<Millis>)>;

/// The hashes of a store by their keys. A hash without fields is none.
type Model = BTreeMap<Key, Fields>;

fn expire(model: &mut Model, now: Millis) {
    model.values_mut().for_each(|fields| fields.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now)));
    model.retain(|_, fields| !fields.is_empty());
}

/// Makes a random change in both, at a time.
async fn change(store: &Store, model: &mut Model, random: &mut Random, now: Millis) {
    let hash =
        |random: &mut Random| Key { db: random.below(2) as u16, name: vec![b'a' + random.below(3) as u8] };
    let (one, other) = (hash(random), hash(random));
    let mut access = store.change_all_at(now).await;
    let names: Vec<Vec<u8>> = (0..=random.below(3)).map(|_| vec![b'0' + random.below(5) as u8]).collect();
    let at = now + random.below(12) as Millis;
    match random.below(10) {
        0..4 => {
            let lifetime = match random.below(4) {
                0 => Lifetime::Until(at + 1),
                1 => Lifetime::Keep,
                _ => Lifetime::Forever,
            };
            let value = random.bytes(3);
            let pairs = names.iter().map(|name| (&name[..], &value[..]));
            let added = access.put_elements_for(&one, Kind::Hash, pairs, lifetime).await.unwrap();
            let fields = model.entry(one).or_default();
            let before = fields.len() as u64;
            for name in names {
                let old = fields.get(&name).and_then(|(_, expiry)| *expiry);
                let expiry = match lifetime {
                    Lifetime::Forever => None,
                    Lifetime::Until(at) => Some(at),
                    Lifetime::Keep => old,
                };
                fields.insert(name, (value.clone(), expiry));
            }
            assert_eq!(added, fields.len() as u64 - before);
        }
        4..6 => {
            let at = Some(at).filter(|_| !random.one_in(4));
            let changes = access.set_field_expiries(&one, &names, at, |_| true).await.unwrap();
            for (name, change) in names.iter().zip(changes) {
                let fields = model.entry(one.clone()).or_default();
                match fields.get_mut(name) {
                    None => assert_eq!(change, FieldChange::Missing),
                    Some(_) if at.is_some_and(|at| at <= now) => {
                        assert_eq!(change, FieldChange::Deleted);
                        fields.remove(name);
                    }
                    Some((_, expiry)) => {
                        assert_eq!(change, FieldChange::Done);
                        *expiry = at;
                    }
                }
            }
        }
        6 => {
            let removed = access.delete_elements(&one, Kind::Hash, &names).await.unwrap();
            let fields = model.entry(one).or_default();
            let before = fields.len();
            fields.retain(|name, _| !names.contains(name));
            assert_eq!(removed, (before - fields.len()) as u64);
        }
        7 => {
            access.rename(&one, &other).await.unwrap();
            // A hash without fields may be there until it is deleted.
            if one != other {
                let moved = model.remove(&one).unwrap_or_default();
                if !moved.is_empty() || access.kind(&other).await.unwrap().is_none() {
                    model.insert(other, moved);
                } else if access.all_fields(&other).await.unwrap().is_empty() {
                    model.remove(&other);
                }
            }
        }
        8 => {
            access.copy(&one, &other).await.unwrap();
            let copied = model.get(&one).cloned().unwrap_or_default();
            if one != other && (!copied.is_empty() || access.all_fields(&other).await.unwrap().is_empty()) {
                model.insert(other, copied);
            }
        }
        _ if random.one_in(4) => {
            access.flush(one.db).await.unwrap();
            model.retain(|key, _| key.db != one.db);
        }
        _ => {
            access.swap(0, 1).await.unwrap();
            let swapped = std::mem::take(model).into_iter();
            *model = swapped.map(|(key, it)| (Key { db: 1 - key.db, ..key }, it)).collect();
        }
    }
    access.commit(Durability::Logged).await.unwrap();
    model.retain(|_, fields| !fields.is_empty());
}

async fn check(store: &Store, model: &Model, now: Millis) {
    let view = store.view(now);
    for db in 0..2 {
        for name in [b"a", b"b", b"c"] {
            let key = Key { db, name: name.to_vec() };
            let found = view.all_fields(&key).await.unwrap().into_iter();
            let found: Fields = found.map(|(name, (value, at))| (name, (value.to_vec(), at))).collect();
            assert_eq!(found, model.get(&key).cloned().unwrap_or_default(), "{key:?} at {now}");
            let names: Vec<Vec<u8>> = (b'0'..b'5').map(|name| vec![name]).collect();
            let each = view.elements(&key, Kind::Hash, &names).await.unwrap();
            let there = each.iter().flatten().count();
            assert_eq!(there, found.len());
        }
    }
}

/// Checks that nothing is left of fields that are gone, and that counts and entries fit.
async fn check_deleted(store: &Store, model: &Model, now: Millis) {
    let view = store.view(now);
    let mut entries = 0;
    for (key, fields) in model {
        assert_eq!(view.length(key, Kind::Hash).await.unwrap(), fields.len() as u64);
        entries += fields.values().filter(|(_, expiry)| expiry.is_some()).count();
    }
    assert_eq!(store.size(0) + store.size(1), model.len() as u64);
    let mut found = store.0.db.iter_cf(&karstdb::ReadOptions::new(), &store.0.fields).unwrap();
    found.seek_to_first_async().await.unwrap();
    let mut kept = 0;
    while found.valid() {
        assert!(layout::split_field(found.key()).unwrap().0 > now);
        kept += 1;
        found.next_async().await.unwrap();
    }
    // Those of deleted hashes stay until their time or a compaction comes.
    assert!(kept >= entries, "{kept} entries of {entries} fields");
}

#[test]
fn fields_expire_as_in_the_model() {
    for seed in karst_testkit::asked::seeds(20, 500) {
        println!("KARST_SEED={seed}");
        with_store(|_, store| async move {
            let (mut random, mut model, mut now) = (Random::new(seed), Model::new(), 1000);
            for _ in 0..150 {
                change(&store, &mut model, &mut random, now).await;
                check(&store, &model, now).await;
                now += random.below(4) as Millis;
                expire(&mut model, now);
                check(&store, &model, now).await;
                if random.one_in(3) {
                    store.delete_due(now).await.unwrap();
                    check_deleted(&store, &model, now).await;
                    check(&store, &model, now).await;
                }
                if random.one_in(40) {
                    store.drop_dead().await.unwrap();
                }
            }
            store.delete_due(now + 100).await.unwrap();
            expire(&mut model, now + 100);
            check_deleted(&store, &model, now + 100).await;
        });
    }
}

#[test]
fn fields_of_before_are_read() {
    with_store(|_, store| async move {
        let hash = key("h");
        let mut access = store.change(std::slice::from_ref(&hash)).await;
        let pair = [(&b"f"[..], &b"v"[..])];
        access.put_elements(&hash, Kind::Hash, pair.into_iter()).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        // The bytes are those that were written before fields had expiries.
        let stored = async |family, key: Vec<u8>| {
            let options = karstdb::ReadOptions::new();
            store.0.db.get_cf_async(&options, family, &key).await.unwrap().unwrap()
        };
        let record = stored(store.0.db.default_column_family(), b"\0\0h".to_vec()).await;
        assert_eq!((record[0], record.len()), (2, 17));
        let element = [&record[1..9], b"f"].concat();
        let value = stored(&store.0.elements, element.clone()).await;
        assert_eq!(&value[..], b"\0v");
        drop(access);
        let mut changes = store.change(std::slice::from_ref(&hash)).await;
        let at = changes.now() + 1_000_000;
        changes.set_field_expiries(&hash, &[b"f".to_vec()], Some(at), |_| true).await.unwrap();
        changes.commit(Durability::Logged).await.unwrap();
        let record = stored(store.0.db.default_column_family(), b"\0\0h".to_vec()).await;
        assert_eq!(record[0], 0x42);
        let value = stored(&store.0.elements, element.clone()).await;
        assert_eq!(value[..], [&[1], &at.to_be_bytes()[..], b"v"].concat());
    });
}

/// Events that an observer was told of.
#[derive(Clone, Default)]
struct Told(Arc<parking_lot::Mutex<Vec<&'static str>>>);

impl Observer for Told {
    fn committed<'a>(&'a self, news: News<'a>) -> futures_util::future::LocalBoxFuture<'a, ()> {
        self.0.lock().extend(news.events.iter().map(|event| event.name));
        Box::pin(async {})
    }
}

#[test]
fn a_hash_whose_last_fields_have_expired_has_an_end() {
    with_store(|_, store| async move {
        let told = Told::default();
        store.observe(told.clone());
        store.interests().set_classes(Classes::parse(b"EA").unwrap());
        let hash = key("h");
        let mut access = store.change_at(std::slice::from_ref(&hash), 1).await;
        let fields = [(&b"a"[..], &b"1"[..]), (b"b", b"2")].into_iter();
        access.put_elements_for(&hash, Kind::Hash, fields, Lifetime::Until(5)).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        let mut access = store.change_at(std::slice::from_ref(&hash), 9).await;
        assert_eq!(access.delete_elements(&hash, Kind::Hash, &names(&["a"])).await.unwrap(), 0);
        assert_eq!(access.delete_elements(&hash, Kind::Hash, &names(&["b"])).await.unwrap(), 0);
        access.commit(Durability::Logged).await.unwrap();
        assert_eq!(*told.0.lock(), ["hexpired", "del"]);
    });
}
