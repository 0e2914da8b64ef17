//! Random histories with transactions that inserted before they were decided: readers see equal
//! results before and after a job, regardless of later decisions.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// A write of one key, unless a transaction has it locked.
    Plain(u8, u8),
    /// A transaction is prepared with those of these keys that are not locked.
    Prepare(u8, Vec<(u8, u8)>),
    Commit(u8),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let keys = proptest::collection::vec((0..4u8, any::<u8>()), 1..4);
    prop_oneof![
        6 => (0..4u8, any::<u8>()).prop_map(|(k, v)| Step::Plain(k, v)),
        3 => (0..3u8, keys).prop_map(|(t, keys)| Step::Prepare(t, keys)),
        3 => (0..3u8).prop_map(Step::Commit),
        3 => Just(Step::Snapshot),
    ]
}

/// A prepared transaction: its number, its keys, and the number of its decision.
#[derive(Clone, Debug)]
struct Prepared {
    name: u8,
    seq: u64,
    keys: BTreeSet<u8>,
    decided: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Past {
    entries: Vec<Entry>,
    snapshots: Vec<u64>,
    prepared: Vec<Prepared>,
    last: u64,
}

/// A key that is put if it is absent, and otherwise single-deleted.
const SINGLE: u8 = 3;

fn entry(past: &Past, k: u8, v: u8, seq: u64) -> Entry {
    let is_there = past.entries.iter().filter(|entry| entry.0 == user_key(k)).count() % 2 == 1;
    let (kind, value) = match v % 5 {
        _ if k == SINGLE && is_there => (ValueType::SingleDeletion, Vec::new()),
        _ if k == SINGLE => (ValueType::Value, vec![b'a' + v % 26]),
        0 => (ValueType::Deletion, Vec::new()),
        1 | 2 => (ValueType::Merge, vec![b'0' + v % 10]),
        _ => (ValueType::Value, vec![b'a' + v % 26]),
    };
    (user_key(k), seq, kind, value)
}

fn past(steps: &[Step]) -> Past {
    let mut past = Past::default();
    for step in steps {
        let open =
            |past: &Past, name: u8| past.prepared.iter().position(|p| p.name == name && p.decided.is_none());
        let is_free =
            |past: &Past, k: u8| !past.prepared.iter().any(|p| p.decided.is_none() && p.keys.contains(&k));
        past.last += 1;
        let seq = past.last;
        match step {
            Step::Plain(k, v) if is_free(&past, *k) => past.entries.push(entry(&past, *k, *v, seq)),
            Step::Prepare(name, keys) if open(&past, *name).is_none() => {
                let mut own = BTreeSet::new();
                for (k, v) in keys {
                    if is_free(&past, *k) && own.insert(*k) {
                        past.entries.push(entry(&past, *k, *v, seq));
                    }
                }
                past.prepared.push(Prepared { name: *name, seq, keys: own, decided: None });
            }
            Step::Commit(name) => {
                if let Some(at) = open(&past, *name) {
                    past.prepared[at].decided = Some(seq);
                }
            }
            Step::Snapshot => past.snapshots.push(seq),
            _ => {}
        }
    }
    past.entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    past
}

impl Past {
    /// Returns the value of each key for a reader at `at`. `later` is the number at which undecided
    /// transactions are decided.
    fn seen(&self, entries: &[Entry], at: u64, later: Option<u64>) -> Vec<Option<Vec<u8>>> {
        let from = |seq: u64| match self.prepared.iter().find(|p| p.seq == seq) {
            Some(prepared) => prepared.decided.or(later).unwrap_or(u64::MAX),
            None => seq,
        };
        let seen: Vec<&Entry> = entries.iter().filter(|entry| from(entry.1) <= at).collect();
        (0..4).map(|k| read(&seen, &[], &user_key(k), u64::MAX)).collect()
    }

    /// Runs a job that finds as pending the committed transactions whose bit in `listed` is set.
    fn check(&self, bottommost: bool, flush: bool, listed: u8) {
        let still = |index: usize| listed >> (index % 8) & 1 == 1;
        let mut pending = Vec::new();
        for (index, p) in self.prepared.iter().enumerate() {
            let kept = |decided: u64| self.snapshots.iter().any(|s| p.seq <= *s && *s < decided);
            let known = match p.decided {
                None => Some(None),
                Some(_) if still(index) => Some(None),
                Some(decided) => kept(decided).then_some(Some(SeqNo(decided))),
            };
            pending.extend(known.map(|decided| (SeqNo(p.seq), SeqNo(p.seq + 1), decided)));
        }
        let older = if bottommost { BTreeSet::new() } else { (0..4).map(user_key).collect() };
        let job = Job {
            snapshots: self.snapshots.clone(),
            pending,
            bottommost: bottommost && !flush,
            flush,
            older,
            operator: "stringappend",
            write_prepared: true,
            ..Job::default()
        };
        let (output, _) = job.run(&self.entries).unwrap();
        let internal = |e: &Entry| key::InternalKey { user_key: &e.0, seq: SeqNo(e.1), kind: e.2 }.to_vec();
        for pair in output.windows(2) {
            let order = (pair[0].0.cmp(&pair[1].0)).then(pair[1].1.cmp(&pair[0].1));
            assert!(order.is_lt(), "{:?} before {:?}", internal(&pair[0]), internal(&pair[1]));
        }
        let unlisted = self.prepared.iter().enumerate().filter(|(index, _)| !still(*index));
        // No reader arrives below a decision that has left the list.
        let least = unlisted.filter_map(|(_, p)| p.decided).max().unwrap_or(0);
        let late = self.prepared.iter().filter_map(|p| p.decided).map(|decided| decided - 1);
        let late = late.filter(|at| *at >= least && self.is_all_plain_behind(*at));
        for at in self.snapshots.iter().copied().chain(late).chain([self.last]) {
            assert_eq!(self.seen(&self.entries, at, None), self.seen(&output, at, None), "at {at}");
        }
        let later = self.last + 1;
        assert_eq!(
            self.seen(&self.entries, later, Some(later)),
            self.seen(&output, later, Some(later)),
            "later"
        );
    }

    /// Returns true if only commits follow `at`, so that a reader that arrives after the job may
    /// read there.
    fn is_all_plain_behind(&self, at: u64) -> bool {
        self.entries.iter().all(|entry| entry.1 <= at)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
    #[test]
    fn readers_see_the_same_whatever_is_decided(
        steps in proptest::collection::vec(step(), 0..30),
        bottommost: bool,
        flush: bool,
        listed: u8,
    ) {
        past(&steps).check(bottommost, flush, listed);
    }
}

#[test]
fn what_is_undecided_stays_as_it_is_at_the_bottom_too() {
    let pending = vec![(SeqNo(5), SeqNo(6), None)];
    let job = Job { pending, bottommost: true, operator: "stringappend", ..Job::default() };
    let entries = [("a", 9, Put, "z"), ("a", 5, Put, "undecided"), ("a", 4, Put, "y"), ("a", 3, Put, "x")];
    // Every reader sees the newest entry, so no entry below it will ever be seen.
    assert_eq!(run(&job, &entries), ["a@0 Value z"]);
    assert_eq!(run(&job, &entries[1..]), ["a@5 Value undecided", "a@0 Value y"]);
    let deleted = [("a", 5, Del, ""), ("a", 4, Put, "y")];
    assert_eq!(run(&job, &deleted), ["a@5 Deletion ", "a@0 Value y"]);
    let added = [("a", 5, Merge, "1"), ("a", 4, Merge, "2"), ("a", 3, Put, "x")];
    assert_eq!(run(&job, &added), ["a@5 Merge 1", "a@0 Value x,2"]);
}

/// An example of an undecided entry below is a commit that jobs do not use yet.
#[test]
fn a_single_deletion_that_everybody_sees_ends_what_is_undecided_below_it() {
    let pending = vec![(SeqNo(5), SeqNo(6), None)];
    let bottom = Job { pending, bottommost: true, write_prepared: true, ..Job::default() };
    let entries =
        [("a", 9, Single, ""), ("a", 5, Put, "undecided"), ("a", 4, Single, ""), ("a", 3, Put, "x")];
    assert!(run(&bottom, &entries).is_empty());
    assert!(run(&Job { bottommost: false, ..bottom.clone() }, &entries[..2]).is_empty());
    let older = Job { bottommost: false, older: [b"a".to_vec()].into(), ..bottom.clone() };
    assert_eq!(run(&older, &entries[..2]), ["a@9 SingleDeletion ", "a@5 Value undecided"]);
    let read = Job { snapshots: vec![7], ..bottom };
    assert_eq!(run(&read, &entries[..2]), ["a@9 SingleDeletion ", "a@5 Value undecided"]);
}

/// The entry below was decided before the one above was written, because a transaction locks its
/// keys, or it is never seen.
#[test]
fn what_everybody_sees_ends_what_is_undecided_below_it() {
    let pending = vec![(SeqNo(5), SeqNo(6), None)];
    let job = Job { pending, older: [b"a".to_vec()].into(), ..Job::default() };
    let entries = [("a", 9, Put, "x"), ("a", 5, Put, "undecided")];
    assert_eq!(run(&job, &entries), ["a@9 Value x"]);
    assert_eq!(run(&job, &[("a", 9, Del, ""), entries[1]]), ["a@9 Deletion "]);
    let read = Job { snapshots: vec![7], ..job };
    assert_eq!(run(&read, &entries), ["a@9 Value x", "a@5 Value undecided"]);
}

/// If a key was put, rolled back and put again, it has more entries than its user knows of, who
/// deletes it once.
#[test]
fn a_single_deletion_hides_what_was_rolled_back_in_older_files() {
    let older = Job { older: [b"a".to_vec()].into(), write_prepared: true, ..Job::default() };
    let pair = [("a", 9, Single, ""), ("a", 7, Put, "again"), ("a", 5, Put, "rolled back")];
    assert_eq!(run(&older, &pair), ["a@9 Deletion "]);
    assert_eq!(run(&older, &pair[..2]), ["a@9 Deletion "]);
    assert_eq!(run(&older, &pair[..1]), ["a@9 SingleDeletion "]);
    assert!(run(&Job { older: BTreeSet::new(), ..older.clone() }, &pair).is_empty(), "nothing older is left");
    assert!(run(&Job { bottommost: true, older: BTreeSet::new(), ..older.clone() }, &pair).is_empty());
    assert_eq!(
        run(&Job { snapshots: vec![7], ..older.clone() }, &pair),
        ["a@9 SingleDeletion ", "a@7 Value again"]
    );
    // A rollback of an absent key has put a deletion, which its user does not know of.
    assert_eq!(run(&older, &[("a", 9, Single, ""), ("a", 7, Del, "")]), ["a@7 Deletion "]);
}
