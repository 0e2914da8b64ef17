//! Verification after opening: operations that the life before left undecided are decided and
//! settled, and every key of the database is compared with its expected value, in four ways of
//! reading.

use super::calls::{Calls, Found, run_blocking};
use super::counts::{Count, Counts};
use super::expected::Expected;
use super::lane::{mismatch, name_of, named, sum_of_accounts};
use super::rows::{ACCOUNT, Key, Place, family_name};
use super::wrong::{Wrong, shown};
use crate::bench::Front;
use crate::random::Random;
use karst_engine::{Db, ReadOptions};
use std::collections::{BTreeMap, BTreeSet};

/// Number of keys of one multi_get.
const BATCH: usize = 100;
/// One key in this number is also read by get.
const GET_ONE_IN: u64 = 4;

/// Decides the prepared transactions that opening recovered: by the recorded decision, otherwise by
/// chance. Each one that was acknowledged and not decided must have been recovered.
pub(crate) fn decide(calls: &Calls, expected: &Expected, counts: &Counts, seed: u64) -> Result<(), Wrong> {
    let Front::Locking(db) = &calls.store.front else { return Ok(()) };
    let mut found = BTreeSet::new();
    for name in db.get_all_prepared_transactions() {
        let text = name.escape_ascii().to_string();
        let unknown = || Wrong::Mismatch(format!("of prepared transactions: {text} was never prepared"));
        let (lane, operation) =
            named(&name).filter(|(lane, _)| *lane < expected.shape.lanes).ok_or_else(unknown)?;
        let head = expected.head(lane);
        let pending = expected.undecided(lane).map(|(operation, _)| operation);
        if head.ended >= operation || pending != Some(operation) {
            return Err(Wrong::Mismatch(format!(
                "of prepared transactions: {text} was decided, and is found prepared"
            )));
        }
        let commit = match head.deciding == operation {
            true => head.commit,
            false => Random::of(&[seed, 6, lane as u64, operation]).one_in(2),
        };
        expected.prepared(lane, operation)?;
        expected.deciding(lane, operation, commit)?;
        let failed = |e: karst_engine::Error| Wrong::Failed(format!("prepared transaction {text}: {e}"));
        let mut transaction = db.get_transaction_by_name(&name).map_err(failed)?;
        match commit {
            true => transaction.commit().map_err(failed)?,
            false => transaction.rollback().map_err(failed)?,
        }
        db.db().flush_wal(false).map_err(failed)?;
        let places = expected.undecided(lane).map_or(Vec::new(), |(_, places)| places);
        check_outcome(
            calls,
            expected,
            &places,
            Some(commit),
            &format!("{text}, found prepared and decided"),
        )?;
        expected.end(lane, operation, commit, places)?;
        counts.add(Count::Recovered, 1);
        found.insert((lane, operation));
    }
    for lane in 0..expected.shape.lanes {
        let Some((operation, _)) = expected.undecided(lane) else { continue };
        let head = expected.head(lane);
        let lost = head.prepared == operation && head.ended < operation && head.deciding != operation;
        if lost && !found.contains(&(lane, operation)) {
            return Err(Wrong::Mismatch(format!(
                "of prepared transactions: {} was acknowledged and is missing",
                name_of(lane, operation)
            )));
        }
    }
    Ok(())
}

/// Settles each lane's last operation: it took place as a whole or not at all, and with the
/// recorded outcome if one was acknowledged.
pub(crate) fn settle(calls: &Calls, expected: &Expected) -> Result<(), Wrong> {
    for lane in 0..expected.shape.lanes {
        let Some((operation, places)) = expected.undecided(lane) else { continue };
        let head = expected.head(lane);
        let known = if head.ended == operation {
            Some(head.kept)
        } else if head.prepared == operation && head.deciding == operation {
            // It was prepared and is no longer found prepared, so its decision took place.
            Some(head.commit)
        } else {
            None
        };
        let what = format!("operation {operation} of lane {lane}");
        let kept = check_outcome(calls, expected, &places, known, &what)?;
        expected.end(lane, operation, kept, places)?;
    }
    Ok(())
}

/// Returns true if an operation took place, which it must have in all of its rows or in none.
fn check_outcome(
    calls: &Calls,
    expected: &Expected,
    places: &[Place],
    known: Option<bool>,
    what: &str,
) -> Result<bool, Wrong> {
    let (shape, o) = (expected.shape, ReadOptions::default());
    // Outcome shown by the first row whose states differ, and that row.
    let mut told: Option<(bool, Place)> = None;
    for place in places {
        let (key, row) = (shape.key(place.lane, place.row), expected.row(*place));
        let found = run_blocking(calls.get(&o, place.family, &key))
            .map_err(|e| Wrong::Failed(format!("get: {e}")))?;
        let (old, new) = (shape.text(*place, row.now), shape.text(*place, row.next));
        let possible = match known {
            Some(kept) => vec![if kept { new.clone() } else { old.clone() }],
            None => vec![old.clone(), new.clone()],
        };
        if !possible.contains(&found) {
            return Err(mismatch(&format!("get, after {what}"), *place, &key, &possible, found.as_deref()));
        }
        if old == new {
            continue;
        }
        let kept = found == new;
        match told {
            None => told = Some((kept, *place)),
            Some((other, at)) if other != kept => {
                let happened = |kept| if kept { "has happened" } else { "has not happened" };
                return Err(Wrong::Mismatch(format!(
                    "of a batch that is torn: {what} {} to column family {}, key {}, and {} to column family {}, key {}, found {}",
                    happened(other),
                    family_name(at.family),
                    shape.key(at.lane, at.row).escape_ascii(),
                    happened(kept),
                    family_name(place.family),
                    key.escape_ascii(),
                    shown(found.as_deref())
                )));
            }
            Some(_) => {}
        }
    }
    // If no row tells, both outcomes show the same.
    Ok(known.or(told.map(|(kept, _)| kept)).unwrap_or(true))
}

/// Parameters of a verification of all rows.
pub(crate) struct Whole<'a> {
    pub(crate) expected: &'a Expected,
    pub(crate) ordered: &'a [(Key, usize, usize)],
    pub(crate) counts: &'a Counts,
    pub(crate) seed: u64,
}

impl Whole<'_> {
    /// Verifies every key of every family, forward, backward, by multi_get and some by get, and the
    /// absence of others.
    pub(crate) fn verify(&self, calls: &Calls) -> Result<(), Wrong> {
        let families = self.expected.shape.families;
        let results: Vec<Result<(), Wrong>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..families)
                .map(|family| scope.spawn(move || run_blocking(self.family(calls, family))))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        results.into_iter().collect::<Result<(), Wrong>>()?;
        let snapshot = calls.store.db().snapshot();
        run_blocking(sum_of_accounts(calls, &snapshot, families, false))
    }

    async fn family(&self, calls: &Calls, family: usize) -> Result<(), Wrong> {
        let failed = |e: karst_engine::Error| {
            Wrong::Failed(format!("reading all of column family {}: {e}", family_name(family)))
        };
        let (shape, snapshot) = (self.expected.shape, calls.store.db().snapshot());
        let o = ReadOptions { snapshot: Some(snapshot), total_order_seek: true, ..ReadOptions::default() };
        let mut right: BTreeMap<Key, (Place, Option<Vec<u8>>)> = BTreeMap::new();
        for (key, lane, row) in self.ordered {
            let place = Place { lane: *lane, family, row: *row };
            right.insert(*key, (place, shape.text(place, self.expected.row(place).now)));
        }
        let least = vec![ACCOUNT + 1];
        for backward in [false, true] {
            let found = calls.walk(&o, family, &least, &[0xff; 16], backward).await.map_err(failed)?;
            let way =
                if backward { "an iterator backward over everything" } else { "an iterator over everything" };
            check_all(way, family, &right, found)?;
        }
        let keys: Vec<Key> = right.keys().copied().collect();
        let mut random = Random::of(&[self.seed, 7, family as u64]);
        for some in keys.chunks(BATCH) {
            let found = calls.multi_get(&o, family, some).await.map_err(failed)?;
            for (key, found) in some.iter().zip(found) {
                let (place, right) = &right[key];
                if found != *right {
                    return Err(mismatch(
                        "multi_get",
                        *place,
                        key,
                        std::slice::from_ref(right),
                        found.as_deref(),
                    ));
                }
                if random.one_in(GET_ONE_IN) {
                    let found = calls.get(&o, family, key).await.map_err(failed)?;
                    if found != *right {
                        let right = std::slice::from_ref(right);
                        return Err(mismatch("get", *place, key, right, found.as_deref()));
                    }
                }
            }
        }
        self.counts.add(Count::Verified, keys.len() as u64);
        Ok(())
    }
}

fn check_all(
    way: &str,
    family: usize,
    right: &BTreeMap<Key, (Place, Option<Vec<u8>>)>,
    found: Vec<Found>,
) -> Result<(), Wrong> {
    let mut by_key: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (key, value) in found {
        if let Some(twice) = by_key.insert(key.clone(), value) {
            return Err(Wrong::Mismatch(format!(
                "by {way}: column family {}, key {}: expected once, found twice, with {} too",
                family_name(family),
                key.escape_ascii(),
                shown(Some(&twice))
            )));
        }
    }
    for (key, (place, right)) in right {
        let found = by_key.remove(&key[..]);
        if found != *right {
            return Err(mismatch(way, *place, key, std::slice::from_ref(right), found.as_deref()));
        }
    }
    match by_key.first_key_value() {
        None => Ok(()),
        Some((key, value)) => Err(Wrong::Mismatch(format!(
            "by {way}: column family {}, key {}: expected nothing, as it was never written, found {}",
            family_name(family),
            key.escape_ascii(),
            shown(Some(value))
        ))),
    }
}

/// Checks after closing that the database's directory has no file that it does not need.
pub(crate) fn check_files(db: &Db) -> Result<(), Wrong> {
    let (live, _) = db.live_file_names();
    let names = db.env().fs().list_dir(db.path()).map_err(|e| Wrong::Failed(e.to_string()))?;
    let is_data = |name: &str| [".sst", ".blob", ".dbtmp"].iter().any(|end| name.ends_with(end));
    let needed = |name: &str| live.iter().any(|live| live.trim_start_matches('/') == name);
    let left: Vec<&String> = names.iter().filter(|name| is_data(name) && !needed(name)).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Wrong::Mismatch(format!(
            "of files after closing: {left:?} are obsolete and were not removed"
        ))),
    }
}
