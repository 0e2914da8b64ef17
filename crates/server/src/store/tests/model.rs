//! Random histories of a store against a model, on a simulated machine whose power fails.
//!
//! One task writes, with `always`; another deletes expired keys and dead elements meanwhile. After
//! each life the store has what was acknowledged, or that and the batch that was under way, and its
//! sizes, expiries and elements fit its keys.
//!
//! Environment: `KARST_SEED` runs one seed only, `KARST_SEEDS` this number of seeds from there on.

use super::super::*;
use super::streams::{ModelStream, StreamChange, change_stream, random_stream_change, read_stream};
use futures_util::future::join;
use karst_testkit::asked;
use karst_testkit::random::Random;
use karstdb::io::{Crash, Simulation};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

const LIVES: u64 = 5;
const BATCHES: u64 = 60;
const DATABASES: u16 = 3;

#[derive(Clone, Debug, PartialEq)]
enum Content {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Set(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, f64>),
    Stream(ModelStream),
}

type State = BTreeMap<(u16, Vec<u8>), (Content, Option<Millis>)>;

/// The data as it was acknowledged, and with the batch that is under way.
#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: State,
    under_way: State,
    now: Millis,
}

/// One change.
#[derive(Clone, Debug)]
enum Change {
    Set(Key, Vec<u8>, Lifetime),
    Expire(Key, Option<Millis>),
    Delete(Key),
    Rename(Key, Key),
    Copy(Key, Key),
    Put(Key, Kind, Vec<(Vec<u8>, Vec<u8>)>),
    Take(Key, Kind, Vec<Vec<u8>>),
    Push(Key, Side, Vec<Vec<u8>>),
    Pop(Key, Side, u64),
    Score(Key, Vec<Scored>, ScoreRule),
    Unscore(Key, Vec<Vec<u8>>),
    PopScored(Key, Side, u64),
    /// Removes the members with these ranks.
    Unrank(Key, u64, u64),
    /// Removes the members with scores from one to another.
    Unrange(Key, f64, f64),
    /// Replaces the elements from this place on; further than the end: none.
    Replace(Key, u64, Vec<Vec<u8>>),
    Stream(Key, StreamChange),
    Flush(u16),
    Swap(u16, u16),
}

fn random_key(random: &mut Random) -> Key {
    Key { db: random.below(DATABASES.into()) as u16, name: vec![b'a' + random.below(5) as u8] }
}

fn random_change(random: &mut Random, now: Millis) -> Change {
    let (key, other) = (random_key(random), random_key(random));
    let kind = if random.one_in(2) { Kind::Hash } else { Kind::Set };
    let later = |random: &mut Random| now + random.below(30) as Millis;
    let mut elements: Vec<Vec<u8>> = Vec::new();
    for _ in 0..=random.below(4) {
        elements.push(vec![b'0' + random.below(8) as u8]);
    }
    let side = if random.one_in(2) { Side::Left } else { Side::Right };
    match random.below(72) {
        0..4 => {
            let lifetime = match random.below(3) {
                0 => Lifetime::Forever,
                1 => Lifetime::Keep,
                _ => Lifetime::Until(later(random)),
            };
            Change::Set(key, random.bytes(random.clone().below(20) as usize), lifetime)
        }
        4..6 => Change::Expire(key, Some(later(random)).filter(|_| !random.one_in(3))),
        6..8 => Change::Delete(key),
        8..10 => Change::Rename(key, other),
        10..12 => Change::Copy(key, other),
        12..18 => Change::Put(key, kind, elements.into_iter().map(|it| (it, random.bytes(3))).collect()),
        18..22 => Change::Take(key, kind, elements),
        22..26 => Change::Push(key, side, elements),
        26..29 => Change::Pop(key, side, random.below(3)),
        29 => Change::Replace(key, random.below(4), elements),
        30 => Change::Flush(key.db),
        31 => Change::Swap(key.db, other.db),
        32..40 => {
            let pairs = elements.into_iter().map(|it| (it, random_score(random))).collect();
            Change::Score(key, pairs, random_rule(random))
        }
        40..43 => Change::Unscore(key, elements),
        43..46 => Change::PopScored(key, side, random.below(3)),
        46 => Change::Unrank(key, random.below(3), random.below(6)),
        47..71 => Change::Stream(key, random_stream_change(random)),
        _ => Change::Unrange(key, random_score(random), random_score(random)),
    }
}

/// A score out of few, so that many are equal.
fn random_score(random: &mut Random) -> f64 {
    [-1.5, 0.0, -0.0, 1.0, 2.0, f64::INFINITY][random.below(6) as usize]
}

fn random_rule(random: &mut Random) -> ScoreRule {
    let orders = [None, None, Some(Ordering::Greater), Some(Ordering::Less)];
    ScoreRule {
        is_there: [None, None, Some(true), Some(false)][random.below(4) as usize],
        order: orders[random.below(4) as usize],
        adds: random.one_in(3),
    }
}

impl Known {
    /// Removes what has expired.
    fn expire(&mut self) {
        for state in [&mut self.acknowledged, &mut self.under_way] {
            state.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > self.now));
        }
    }
}

fn kind_of(content: &Content) -> Kind {
    match content {
        Content::String(_) => Kind::String,
        Content::Hash(_) => Kind::Hash,
        Content::Set(_) => Kind::Set,
        Content::List(_) => Kind::List,
        Content::Sorted(_) => Kind::SortedSet,
        Content::Stream(_) => Kind::Stream,
    }
}

fn elements_of(content: &mut Content, wanted: Kind) -> Option<&mut BTreeMap<Vec<u8>, Vec<u8>>> {
    match content {
        Content::Hash(elements) if wanted == Kind::Hash => Some(elements),
        Content::Set(elements) if wanted == Kind::Set => Some(elements),
        _ => None,
    }
}

/// Makes a change in the model.
fn change_model(state: &mut State, change: &Change, now: Millis) {
    let id = |key: &Key| (key.db, key.name.clone());
    match change {
        Change::Set(key, value, lifetime) => {
            let old = state.remove(&id(key)).and_then(|(_, expiry)| expiry);
            let expiry = match lifetime {
                Lifetime::Forever => None,
                Lifetime::Until(at) => Some(*at),
                Lifetime::Keep => old,
            };
            state.insert(id(key), (Content::String(value.clone()), expiry));
        }
        Change::Expire(key, at) => {
            if let Some((_, expiry)) = state.get_mut(&id(key)) {
                *expiry = *at;
            }
        }
        Change::Delete(key) => drop(state.remove(&id(key))),
        Change::Rename(from, to) => {
            if let Some(value) = state.remove(&id(from)) {
                state.insert(id(to), value);
            }
        }
        Change::Copy(from, to) => {
            if let Some(value) = state.get(&id(from)).cloned() {
                state.insert(id(to), value);
            }
        }
        Change::Put(key, kind, pairs) => {
            let empty = match kind {
                Kind::Hash => Content::Hash(BTreeMap::new()),
                _ => Content::Set(BTreeMap::new()),
            };
            let (content, _) = state.entry(id(key)).or_insert((empty, None));
            if let Some(elements) = elements_of(content, *kind) {
                let value = |value: &Vec<u8>| if *kind == Kind::Hash { value.clone() } else { Vec::new() };
                elements.extend(pairs.iter().map(|(name, text)| (name.clone(), value(text))));
            }
        }
        Change::Take(key, kind, names) => {
            let is_empty = state.get_mut(&id(key)).is_some_and(|(content, _)| {
                elements_of(content, *kind).is_some_and(|elements| {
                    elements.retain(|name, _| !names.contains(name));
                    elements.is_empty()
                })
            });
            if is_empty {
                state.remove(&id(key));
            }
        }
        Change::Push(key, side, values) => {
            let empty = || (Content::List(VecDeque::new()), None);
            if let (Content::List(list), _) = state.entry(id(key)).or_insert_with(empty) {
                for value in values {
                    match side {
                        Side::Left => list.push_front(value.clone()),
                        Side::Right => list.push_back(value.clone()),
                    }
                }
            }
        }
        Change::Pop(key, side, count) => change_list(state, id(key), |list| {
            for _ in 0..*count {
                let _ = if *side == Side::Left { list.pop_front() } else { list.pop_back() };
            }
        }),
        Change::Replace(key, from, values) => change_list(state, id(key), |list| {
            if *from as usize <= list.len() {
                list.truncate(*from as usize);
                list.extend(values.iter().cloned());
            }
        }),
        Change::Score(key, pairs, rule) => score_model(state, id(key), pairs, *rule),
        Change::Unscore(key, names) => {
            change_sorted(state, id(key), |_, member, _| !names.contains(member));
        }
        Change::PopScored(key, side, count) => change_sorted(state, id(key), |place, _, length| {
            let place = if *side == Side::Left { place } else { length - 1 - place };
            place >= *count as usize
        }),
        Change::Unrank(key, from, behind) => {
            change_sorted(state, id(key), |place, _, _| !(*from..*behind).contains(&(place as u64)));
        }
        Change::Unrange(key, low, high) => {
            let scores = match state.get(&id(key)) {
                Some((Content::Sorted(scores), _)) => scores.clone(),
                _ => BTreeMap::new(),
            };
            change_sorted(state, id(key), |_, member, _| !(*low..=*high).contains(&scores[member]));
        }
        Change::Stream(key, change) => {
            if ModelStream::is_made_by(change) {
                state.entry(id(key)).or_insert_with(|| (Content::Stream(ModelStream::default()), None));
            }
            if let Some((Content::Stream(stream), _)) = state.get_mut(&id(key)) {
                stream.change(change, now);
            }
        }
        Change::Flush(db) => state.retain(|(of, _), _| of != db),
        Change::Swap(one, other) => {
            let moved = |db: u16| {
                if db == *one {
                    *other
                } else if db == *other {
                    *one
                } else {
                    db
                }
            };
            *state =
                std::mem::take(state).into_iter().map(|((db, name), it)| ((moved(db), name), it)).collect();
        }
    }
    state.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now));
}

/// Changes scores in the model, one after the other as the rule says.
fn score_model(state: &mut State, id: (u16, Vec<u8>), pairs: &[Scored], rule: ScoreRule) {
    let is_new = !state.contains_key(&id);
    let (content, _) = state.entry(id.clone()).or_insert((Content::Sorted(BTreeMap::new()), None));
    let Content::Sorted(scores) = content else { return };
    for (member, given) in pairs {
        let old = scores.get(member).copied();
        if rule.is_there.is_some_and(|is_there| is_there != old.is_some()) {
            continue;
        }
        let new = if rule.adds { old.unwrap_or(0.0) + given } else { *given };
        let is_allowed = old.zip(rule.order).is_none_or(|(old, order)| new.partial_cmp(&old) == Some(order));
        if is_allowed {
            scores.insert(member.clone(), new);
        }
    }
    if is_new && scores.is_empty() {
        state.remove(&id);
    }
}

/// Keeps the members of an existing sorted set for which `keeps` returns true, by their rank
/// and by the number of all, and removes the set once it is empty.
fn change_sorted(state: &mut State, id: (u16, Vec<u8>), keeps: impl Fn(usize, &Vec<u8>, usize) -> bool) {
    if let Some((Content::Sorted(scores), _)) = state.get_mut(&id) {
        let order = in_order(scores);
        let is_kept = |(place, (member, _)): &(usize, Scored)| keeps(*place, member, order.len());
        *scores = order.iter().cloned().enumerate().filter(is_kept).map(|(_, scored)| scored).collect();
        if scores.is_empty() {
            state.remove(&id);
        }
    }
}

/// The members in the order of their scores.
fn in_order(scores: &BTreeMap<Vec<u8>, f64>) -> Vec<Scored> {
    let mut all: Vec<Scored> = scores.iter().map(|(member, score)| (member.clone(), *score)).collect();
    all.sort_by(|(a, x), (b, y)| x.partial_cmp(y).expect("numbers").then_with(|| a.cmp(b)));
    all
}

/// Changes a list that is there, and removes it once it is empty.
fn change_list(state: &mut State, id: (u16, Vec<u8>), change: impl FnOnce(&mut VecDeque<Vec<u8>>)) {
    if let Some((Content::List(list), _)) = state.get_mut(&id) {
        change(list);
        if list.is_empty() {
            state.remove(&id);
        }
    }
}

/// Makes a change in the store.
async fn change_store(access: &mut Access, change: &Change) {
    let refused = match change {
        Change::Set(key, value, lifetime) => access.set_string(key, value, *lifetime).await.err(),
        Change::Expire(key, at) => access.set_expiry(key, *at).await.err(),
        Change::Delete(key) => access.delete(key).await.err(),
        Change::Rename(from, to) => access.rename(from, to).await.err(),
        Change::Copy(from, to) => access.copy(from, to).await.err(),
        Change::Put(key, kind, pairs) => {
            let pairs = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
            access.put_elements(key, *kind, pairs).await.err()
        }
        Change::Take(key, kind, names) => access.delete_elements(key, *kind, names).await.err(),
        Change::Push(key, side, values) => access.list_push(key, *side, values).await.err(),
        Change::Pop(key, side, count) => access.list_pop(key, *side, *count).await.err(),
        Change::Replace(key, from, values) => match access.length(key, Kind::List).await {
            Ok(length) if *from <= length => access.list_replace(key, *from, values).await.err(),
            Ok(_) => None,
            Err(wrong) => Some(wrong),
        },
        Change::Score(key, pairs, rule) => access.put_scores(key, pairs, *rule).await.err(),
        Change::Unscore(key, names) => access.remove_scored(key, names).await.err(),
        Change::PopScored(key, side, count) => access.pop_scored(key, *side, *count).await.err(),
        Change::Unrank(key, from, behind) => access.remove_ranks(key, *from..*behind).await.err(),
        Change::Unrange(key, low, high) => {
            let range = SortedRange::Scores(Bound::Included(*low), Bound::Included(*high));
            access.remove_range(key, &range).await.err()
        }
        Change::Stream(key, change) => change_stream(access, key, change).await.err(),
        Change::Flush(db) => access.flush(*db).await.err(),
        Change::Swap(one, other) => access.swap(*one, *other).await.err(),
    };
    assert!(refused.as_ref().is_none_or(|it| *it == Wrong::wrong_type()), "{change:?}: {refused:?}");
}

/// The keys that a change needs; `None`: all.
fn keys_of(change: &Change) -> Option<Vec<Key>> {
    Some(match change {
        Change::Set(key, ..) | Change::Expire(key, _) | Change::Delete(key) => vec![key.clone()],
        Change::Put(key, ..) | Change::Take(key, ..) => vec![key.clone()],
        Change::Push(key, ..) | Change::Pop(key, ..) | Change::Replace(key, ..) => vec![key.clone()],
        Change::Score(key, ..) | Change::Unscore(key, _) | Change::PopScored(key, ..) => vec![key.clone()],
        Change::Unrank(key, ..) | Change::Unrange(key, ..) | Change::Stream(key, _) => vec![key.clone()],
        Change::Rename(from, to) | Change::Copy(from, to) => vec![from.clone(), to.clone()],
        Change::Flush(_) | Change::Swap(..) => return None,
    })
}

/// Reads all of a store.
async fn all_of(access: &Access) -> State {
    let mut state = State::new();
    access.pin();
    for db in 0..DATABASES {
        let mut names = Vec::new();
        access.names(db, b"", |name| names.push(name.to_vec())).await.unwrap();
        for name in names {
            let key = Key { db, name };
            let kind = access.kind(&key).await.unwrap().expect("it was listed");
            let content = match kind {
                Kind::String => Content::String(access.string(&key).await.unwrap().unwrap().to_vec()),
                Kind::List => {
                    let all = access.list_range(&key, 0..u64::MAX).await.unwrap();
                    assert_eq!(access.length(&key, kind).await.unwrap(), all.len() as u64);
                    Content::List(all.iter().map(|value| value.to_vec()).collect())
                }
                Kind::SortedSet => {
                    let all = access.sorted_ranks(&key, 0..u64::MAX).await.unwrap();
                    let scores: BTreeMap<_, _> = all.iter().cloned().collect();
                    assert_eq!(access.length(&key, kind).await.unwrap(), all.len() as u64);
                    assert_eq!(in_order(&scores), all);
                    for (member, value) in access.all_elements(&key, kind).await.unwrap() {
                        assert_eq!(scores.get(&member), Some(&score_of(&value).unwrap()));
                    }
                    Content::Sorted(scores)
                }
                Kind::Stream => Content::Stream(read_stream(access, &key).await),
                kind => {
                    let all = access.all_elements(&key, kind).await.unwrap();
                    assert_eq!(access.length(&key, kind).await.unwrap(), all.len() as u64);
                    let elements = all.into_iter().map(|(name, value)| (name, value.to_vec())).collect();
                    if kind == Kind::Hash { Content::Hash(elements) } else { Content::Set(elements) }
                }
            };
            let expiry = access.expiry(&key).await.unwrap().expect("it was listed");
            assert_eq!(kind_of(&content), kind);
            state.insert((db, key.name), (content, expiry));
        }
    }
    state
}

async fn open(env: &Env) -> Store {
    let options =
        Options::new().set_all("write_buffer_size=65536;level0_file_num_compaction_trigger=2").unwrap();
    Store::open(Path::new("/store"), &StoreOptions { databases: DATABASES, options }, env).await.unwrap()
}

/// One life: checks what is there, then writes.
async fn live(env: Env, known: &RefCell<Known>, random: &mut Random) {
    let store = open(&env).await;
    store.check().await;
    {
        let mut known = known.borrow_mut();
        known.expire();
    }
    let now = known.borrow().now;
    let found = all_of(&store.view(now)).await;
    {
        let mut known = known.borrow_mut();
        assert!(found == known.acknowledged || found == known.under_way, "{found:#?}, not of {known:#?}");
        (known.acknowledged, known.under_way) = (found.clone(), found);
    }
    // Both run to their ends, because a commit whose future is dropped leaves sizes behind.
    let has_ended = Cell::new(false);
    let writing = async {
        write(&store, known, random).await;
        has_ended.set(true);
    };
    join(writing, tidy_up(&store, known, &has_ended)).await;
    store.check().await;
}

/// Deletes what is due, and drops what is dead, again and again.
async fn tidy_up(store: &Store, known: &RefCell<Known>, has_ended: &Cell<bool>) {
    while !has_ended.get() {
        let now = known.borrow().now;
        // A power failure is the end of the life; other errors there are none.
        let _ = store.delete_due(now).await;
        let oldest = store.db().int_property("rocksdb.oldest-snapshot-sequence");
        if store.0.dead.release(oldest.filter(|&it| it > 0)).versions > 3 {
            let _ = store.drop_dead().await;
        }
        karstdb::io::sleep(store.db().env(), std::time::Duration::from_millis(3)).await;
    }
}

async fn write(store: &Store, known: &RefCell<Known>, random: &mut Random) {
    for _ in 0..BATCHES {
        let now = {
            let mut known = known.borrow_mut();
            known.now += random.below(4) as Millis;
            known.expire();
            known.now
        };
        let mut changes = vec![random_change(random, now)];
        while random.one_in(2) {
            changes.push(random_change(random, now));
        }
        let keys: Option<Vec<Vec<Key>>> = changes.iter().map(keys_of).collect();
        let mut access = match keys {
            Some(keys) => store.change_at(&keys.concat(), now).await,
            None => store.change_all_at(now).await,
        };
        for change in &changes {
            change_store(&mut access, change).await;
            change_model(&mut known.borrow_mut().under_way, change, now);
        }
        if access.commit(Durability::Synced).await.is_err() {
            // The power has failed.
            std::future::pending::<()>().await;
        }
        drop(access);
        {
            let mut known = known.borrow_mut();
            known.acknowledged = known.under_way.clone();
        }
        if random.one_in(8) {
            let found = all_of(&store.view(now)).await;
            assert_eq!(found, known.borrow().acknowledged, "after {changes:#?}");
        }
        if random.one_in(4) {
            karstdb::io::sleep(store.db().env(), std::time::Duration::from_millis(random.below(5))).await;
        }
    }
}

#[test]
fn histories_are_those_of_the_model() {
    for seed in asked::seeds(30, 1000) {
        println!("KARST_SEED={seed} cargo test -p karst-server --lib store::tests::model");
        let known = RefCell::new(Known { now: 1000, ..Known::default() });
        let mut random = Random::new(seed);
        let mut simulation = Simulation::new(seed);
        for _ in 0..LIVES {
            if random.one_in(2) {
                simulation.fs().lose_power_after(20 + random.below(400));
            }
            let env = simulation.env().clone();
            let mut of_life = random.fork();
            let ended = simulation.run(live(env, &known, &mut of_life));
            let crash = if ended.is_none() || random.one_in(2) { Crash::Power } else { Crash::Process };
            simulation = simulation.restart(crash, random.next_u64());
        }
    }
}
