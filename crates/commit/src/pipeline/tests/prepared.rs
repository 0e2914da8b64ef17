//! Sections inserted at prepare: hidden until their commit is visible, with slow writers too, and
//! for good if the log fails.

use super::failing::{failing, faulty_by, fragile_by};
use super::unordered::Slow;
use super::*;
use crate::pipeline::write::{Commit, Lead};
use crate::wal::sub_batches::SubBatches;
use crate::{Phase, PhaseWrite, Section};
use karst_base::snapshot::Snapshots;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

pub(super) fn two_queues() -> Rules {
    Rules { two_queues: true, ..rules() }
}

fn section(name: &str, key: &str) -> Arc<Section> {
    let mut batch = WriteBatch::new();
    batch.put(key, name).unwrap();
    let numbers = SubBatches::of(batch.iter(), |_, a, b| a.cmp(b));
    Arc::new(Section::new(name.as_bytes(), batch, Some(numbers)))
}

pub(super) fn phase(section: &Arc<Section>, phase: Phase) -> Source<'static> {
    Source::Phase(PhaseWrite::new(section, phase))
}

pub(super) fn readers(bench: &Bench) -> Arc<Snapshots> {
    Arc::new(Snapshots::new(bench.pipeline.pending.clone(), false))
}

/// RocksDB's pull request 14544: with two write queues a snapshot treated entries that were
/// inserted and not published as visible.
#[test]
fn a_commit_passes_slow_inserts_and_shows_nothing_that_is_prepared_among_them() {
    let bench = Bench::new(two_queues());
    let options = WriteOptions::new();
    let (one, two) = (section("one", "a"), section("two", "b"));
    bench.pipeline.write(&options, phase(&one, Phase::Prepare)).unwrap();
    let plain = Slow::order(&bench, &options, Source::one(put(b"c", b"")).unwrap());
    let slow = Slow::order(&bench, &options, phase(&two, Phase::Prepare));
    bench.pipeline.write(&options, phase(&one, Phase::Commit)).unwrap();
    assert_eq!((bench.pipeline.read_seq(), bench.pipeline.visible_seq()), (SeqNo(4), SeqNo(1)));
    let list = readers(&bench);
    let snapshot = list.take(|| bench.pipeline.read_seq(), 0, false).unwrap();
    let at = snapshot.read_at();
    assert!(!bench.pipeline.is_readable(at.seq) && at.hides(SeqNo(3)));
    slow.insert();
    plain.insert();
    bench.pipeline.wait_until_readable(at.seq);
    let hidden =
        |at: &karst_base::snapshot::ReadAt| (1..5).filter(|seq| at.hides(SeqNo(*seq))).collect::<Vec<_>>();
    assert_eq!(hidden(&at), [3]);
    bench.pipeline.write(&options, phase(&two, Phase::Commit)).unwrap();
    bench.pipeline.forget_decided();
    assert_eq!((hidden(&at), hidden(&list.newest(|| bench.pipeline.read_seq()))), (vec![3], vec![]));
    assert_eq!(bench.entries(), ["a@1=one", "c@2=", "b@3=two"]);
}

#[test]
fn with_one_queue_a_commit_waits_for_what_is_before_it() {
    let bench = Bench::new(rules());
    let one = section("one", "a");
    bench.pipeline.write(&WriteOptions::new(), phase(&one, Phase::Prepare)).unwrap();
    let slow = Slow::order(&bench, &WriteOptions::new(), Source::one(put(b"c", b"")).unwrap());
    let source = phase(&one, Phase::Commit);
    let mut commit = pin!(Commit::new(&bench.pipeline, WriteOptions::unlogged(), source, Lead::Here));
    let mut poll = || commit.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    slow.insert();
    assert!(poll().is_ready());
}

#[test]
fn a_failed_decision_leaves_what_is_prepared_undecided() {
    for last in [Phase::Commit, Phase::Rollback] {
        let (bench, faults) = faulty_by(two_queues());
        let (one, options) = (section("one", "a"), WriteOptions::new());
        bench.pipeline.write(&options, phase(&one, Phase::Prepare)).unwrap();
        faults.set_plan(failing());
        let mut before = WriteBatch::new();
        before.delete("a").unwrap();
        let decision = match last {
            Phase::Rollback => Source::Phase(PhaseWrite::restoring(&one, before)),
            _ => phase(&one, last),
        };
        bench.pipeline.write(&options, decision).unwrap_err();
        let range = one.range().expect("it is prepared");
        assert_eq!((range.decided_at(), bench.entries()), (None, vec!["a@1=one".to_owned()]));
        bench.pipeline.forget_decided();
        let at = readers(&bench).newest(|| bench.pipeline.read_seq());
        assert!(at.seq >= SeqNo(2) && at.hides(SeqNo(1)));
    }
}

#[test]
fn a_prepare_that_failed_has_inserted_nothing() {
    let (bench, faults) = faulty_by(two_queues());
    let one = section("one", "a");
    faults.set_plan(failing());
    bench.pipeline.write(&WriteOptions::new(), phase(&one, Phase::Prepare)).unwrap_err();
    bench.pipeline.withdraw(&one);
    assert!(bench.entries().is_empty());
    assert!(bench.pipeline.pending.as_ref().is_some_and(|pending| pending.now().is_empty()));
}

#[test]
fn a_prepare_whose_insert_panicked_may_have_inserted() {
    let bench = fragile_by(two_queues());
    let boom = section("one", "boom");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        bench.pipeline.write(&WriteOptions::new(), phase(&boom, Phase::Prepare))
    }));
    assert!(outcome.is_err() && boom.may_be_inserted());
    let at = readers(&bench).newest(|| bench.pipeline.read_seq());
    assert!(at.seq >= SeqNo(2) && at.hides(SeqNo(2)));
}

#[test]
fn only_what_decides_is_synced_for_jobs() {
    let bench = Bench::new(two_queues());
    let options = WriteOptions::new();
    let syncs = || {
        karst_io::block_on(&bench.env, bench.pipeline.sync_decisions()).unwrap();
        bench.pipeline.write_counts().log_syncs
    };
    let one = section("one", "a");
    bench.pipeline.write(&options, phase(&one, Phase::Prepare)).unwrap();
    bench.pipeline.write(&options, Source::one(put(b"c", b"")).unwrap()).unwrap();
    assert_eq!(syncs(), 0, "nothing is decided");
    bench.pipeline.write(&options, phase(&one, Phase::Commit)).unwrap();
    assert_eq!((syncs(), syncs()), (1, 1));
    // Everything before the next decision is synced already.
    let two = section("two", "b");
    bench.pipeline.write(&options, phase(&two, Phase::Prepare)).unwrap();
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap();
    assert_eq!(syncs(), 2);
    bench.pipeline.write(&options, phase(&two, Phase::Commit)).unwrap();
    assert_eq!((syncs(), syncs()), (3, 3));
}

/// RocksDB gives the operations of a batch one number until a mark; a range covers only smaller
/// numbers.
#[test]
fn a_range_is_apart_from_what_its_batch_put_before_it() {
    let bench = Bench::new(two_queues());
    let mut batch = WriteBatch::new();
    batch.put("m", "1").unwrap();
    batch.delete_range("a", "z").unwrap();
    batch.put("n", "2").unwrap();
    bench.pipeline.write(&WriteOptions::new(), Source::Batch(&batch)).unwrap();
    let log = bench.log_bytes(1);
    let mut reader =
        karst_format::log::LogReader::new(&log, FileNumber(1), RecoveryMode::AbsoluteConsistency);
    let record = reader.next_record().unwrap().unwrap();
    let logged = karst_format::write_batch::BatchReader::parse(record.bytes).unwrap();
    let kinds: String = logged.ops().map(|op| format!("{:?}", op.unwrap())[..3].to_owned() + " ").collect();
    assert_eq!((logged.count(), &*kinds), (3, "Put Noo Del Put Noo Log "));
    let (recovered, next) = recover(&[(1, &log)], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!((recovered, next), (bench.entries(), SeqNo(4)));
}
