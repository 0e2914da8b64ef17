//! Random histories in the simulator, which checks every pick and every tree; and the long-run
//! shape of trees.

use super::simulator::{ENTRY_BYTES, Simulator};
use super::*;
use proptest::prelude::*;

/// Returns options for a tree of a few thousand entries: files of 20 entries, L1 of 80.
fn small(style: &str) -> String {
    format!(
        "target_file_size_base=2000;max_bytes_for_level_base=8000;max_bytes_for_level_multiplier=4;num_levels=5;\
         level0_file_num_compaction_trigger=3;write_buffer_size=65536;max_compaction_bytes=12000;{style}"
    )
}

const LEVELED: [&str; 8] = [
    "",
    "level_compaction_dynamic_level_bytes=false",
    "compaction_pri=kByCompensatedSize;level_compaction_dynamic_level_bytes=false",
    "compaction_pri=kOldestLargestSeqFirst",
    "compaction_pri=kOldestSmallestSeqFirst;num_levels=2",
    "compaction_pri=kRoundRobin",
    "compaction_pri=kRoundRobin;level_compaction_dynamic_level_bytes=false;ttl=500",
    "ttl=300;periodic_compaction_seconds=700",
];

const UNIVERSAL: [&str; 7] = [
    "",
    "num_levels=1",
    "compaction_options_universal={allow_trivial_move=true}",
    "compaction_options_universal={stop_style=kCompactionStopStyleSimilarSize;min_merge_width=3}",
    "compaction_options_universal={max_merge_width=3;max_size_amplification_percent=25}",
    "compaction_options_universal={max_read_amp=0}",
    "periodic_compaction_seconds=500;num_levels=3",
];

/// Event of a history.
#[derive(Clone, Debug)]
enum Event {
    /// `count` random keys from a range of the key space are flushed to L0.
    Flush { from: u32, among: u32, count: u32 },
    /// Ascending keys behind all others are flushed to L0.
    Append { count: u32 },
    /// The next compaction starts.
    Start,
    /// A running compaction ends.
    Finish(prop::sample::Index),
    /// Seconds pass.
    Wait(u64),
    /// The last snapshot is released.
    Release,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0u32..4000, 1u32..3000, 1u32..60).prop_map(|(from, among, count)| Event::Flush { from, among, count }),
        1 => (1u32..60).prop_map(|count| Event::Append { count }),
        6 => Just(Event::Start),
        5 => any::<prop::sample::Index>().prop_map(Event::Finish),
        1 => (1u64..200).prop_map(Event::Wait),
        1 => Just(Event::Release),
    ]
}

/// Plays the history, and then runs all compactions that are due.
fn play(options: CompactionOptions, events: Vec<Event>) -> (Simulator, std::collections::BTreeSet<u32>) {
    let mut simulator = Simulator::new(options);
    let mut written = std::collections::BTreeSet::new();
    let (mut behind, mut random) = (10_000, 1u32);
    for event in events {
        match event {
            Event::Flush { from, among, count } => {
                let mut keys = Vec::new();
                for _ in 0..count {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    keys.push(from + (random >> 8) % among);
                }
                written.extend(&keys);
                simulator.flush(keys);
            }
            Event::Append { count } => {
                let keys = behind..behind + count;
                behind += count;
                written.extend(keys.clone());
                simulator.flush(keys);
            }
            Event::Start => {
                simulator.start();
            }
            Event::Finish(index) if simulator.running_count() > 0 => {
                let index = index.index(simulator.running_count());
                simulator.finish(index);
            }
            Event::Finish(_) => {}
            Event::Wait(seconds) => simulator.now_s += seconds,
            Event::Release => simulator.release_snapshots(),
        }
    }
    simulator.settle();
    (simulator, written)
}

/// Checks that after all compactions nothing is lost, nothing is due, and every level is within its
/// target.
fn check_settled(simulator: &Simulator, written: &std::collections::BTreeSet<u32>) {
    let keys: std::collections::BTreeSet<u32> = simulator.keys().into_keys().collect();
    assert_eq!(&keys, written);
    assert!(pick(simulator.context()).is_none());
    if simulator.options.family.compaction_style == CompactionStyle::Level {
        let scores = Scores::new(simulator.context());
        assert!(scores.largest() < 1.0, "{scores:?}: {}", simulator.shape());
        assert!(!needs_compaction(simulator.context()));
        let targets = LevelTargets::new(&simulator.version, &simulator.options);
        for level in 1..simulator.options.level_count() - 1 {
            assert!(simulator.level_bytes(level) < targets.of(level), "L{level}: {}", simulator.shape());
        }
        let pending = estimated_pending_compaction_bytes(&simulator.version, &simulator.options);
        assert_eq!(pending, 0, "{}", simulator.shape());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn leveled_trees_keep_in_order(variant in 0..LEVELED.len(), events in prop::collection::vec(event(), 1..150)) {
        let (simulator, written) = play(options(&small(LEVELED[variant])), events);
        check_settled(&simulator, &written);
    }

    #[test]
    fn universal_trees_keep_in_order(variant in 0..UNIVERSAL.len(), events in prop::collection::vec(event(), 1..150)) {
        let text = format!("compaction_style=kCompactionStyleUniversal;{}", UNIVERSAL[variant]);
        let (simulator, written) = play(options(&small(&text)), events);
        check_settled(&simulator, &written);
    }
}

/// Flushes `flushes` times `entries` random keys out of `keys`.
fn fill(simulator: &mut Simulator, keys: u32, flushes: u32, entries: u32) {
    let mut random = 0x2545_F491u32;
    simulator.checks_entries = false;
    for _ in 0..flushes {
        let mut batch = Vec::new();
        for _ in 0..entries {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            batch.push(random % keys);
        }
        simulator.flush(batch);
        simulator.settle();
    }
}

fn large(more: &str) -> CompactionOptions {
    options(&format!(
        "target_file_size_base=10000;max_bytes_for_level_base=40000;max_bytes_for_level_multiplier=10;num_levels=7;\
         level0_file_num_compaction_trigger=4;{more}"
    ))
}

/// For any size of the data, nine tenths of it end up on the last level, and levels between it and
/// L0 are not used.
#[test]
fn dynamic_levels_converge() {
    for keys in [300, 3_000, 30_000] {
        let mut simulator = Simulator::new(large(""));
        fill(&mut simulator, keys, keys * 4 / 100, 100);
        let all: u64 = (0..7).map(|level| simulator.level_bytes(level)).sum();
        let last = simulator.level_bytes(6);
        let distinct = simulator.keys().len() as u64 * ENTRY_BYTES;
        assert!(last * 100 >= all * 70, "{}", simulator.shape());
        assert!(all * 100 <= distinct * 145, "space amplification: {}", simulator.shape());
        let base = LevelTargets::new(&simulator.version, &simulator.options).base_level.unwrap();
        assert!((1..base).all(|level| simulator.level_bytes(level) == 0), "{}", simulator.shape());
        let expected = match keys {
            300 => 6,
            3_000 => 5,
            _ => 4,
        };
        assert_eq!(base, expected, "{}", simulator.shape());
    }
}

/// The usual estimate: a flush, and for every level a write factor of the ratio of its size to that
/// of the level above, plus one; RocksDB's own measurements are lower, because ranges of small
/// overlap are picked first.
#[test]
fn leveled_write_amplification_is_as_expected() {
    let mut simulator = Simulator::new(large("level_compaction_dynamic_level_bytes=false"));
    let keys = 20_000;
    fill(&mut simulator, keys, 800, 100);
    // L0 to L1 rewrites L1 for four files of L0: about 1 + 1; L1 to L2 and L2 to L3 at most 11
    // each.
    let found = simulator.write_amplification();
    assert!((5.0..20.0).contains(&found), "{found}: {}", simulator.shape());
    // With random keys, picking the file of the smallest overlap saves much.
    let mut by_size =
        Simulator::new(large("level_compaction_dynamic_level_bytes=false;compaction_pri=kByCompensatedSize"));
    fill(&mut by_size, keys, 800, 100);
    assert!(found <= by_size.write_amplification(), "{found} against {}", by_size.write_amplification());
}

/// A load in key order is written once, because all its files move.
#[test]
fn a_sorted_load_is_not_rewritten() {
    for more in ["", "level_compaction_dynamic_level_bytes=false"] {
        let mut simulator = Simulator::new(large(more));
        for at in 0..300 {
            simulator.flush(at * 100..(at + 1) * 100);
            simulator.settle();
        }
        let found = simulator.write_amplification();
        assert!(found < 1.1, "{found}: {}", simulator.shape());
        assert!(simulator.moved_files >= 290, "{}", simulator.moved_files);
    }
}

/// Universal compaction writes less than leveled if several runs are allowed: a byte is written
/// about as often as runs double in size from a flush to all of the data, here 200 flushes.
#[test]
fn universal_write_amplification_is_as_expected() {
    let mut simulator = Simulator::new(large(
        "compaction_style=kCompactionStyleUniversal;level0_file_num_compaction_trigger=10",
    ));
    fill(&mut simulator, 20_000, 800, 100);
    let universal = simulator.write_amplification();
    let mut leveled = Simulator::new(large(""));
    fill(&mut leveled, 20_000, 800, 100);
    assert!(
        universal < leveled.write_amplification(),
        "{universal} against {}",
        leveled.write_amplification()
    );
    assert!(universal < 10.0, "{universal}");
}

/// Several compactions run at once if the tree is far behind.
#[test]
fn a_tree_that_is_behind_compacts_in_parallel() {
    let mut simulator =
        Simulator::new(large("level_compaction_dynamic_level_bytes=false;max_compaction_bytes=60000"));
    fill(&mut simulator, 20_000, 300, 100);
    simulator.options = large(
        "level_compaction_dynamic_level_bytes=false;max_compaction_bytes=60000;max_bytes_for_level_base=10000",
    );
    while simulator.start() {}
    assert!(simulator.most_running >= 3, "{} of {}", simulator.most_running, simulator.shape());
    simulator.settle();
}

/// With files that share at most a user key at their ends, and files that overlap: no pick moves a
/// version of a key below an older one.
#[test]
fn nothing_goes_below_an_older_version_of_its_key() {
    let styles = [
        "level0_file_num_compaction_trigger=2;num_levels=4;level_compaction_dynamic_level_bytes=false",
        "level0_file_num_compaction_trigger=2;num_levels=4;level_compaction_dynamic_level_bytes=true",
        "level0_file_num_compaction_trigger=2;num_levels=4;compaction_style=kCompactionStyleUniversal",
        "level0_file_num_compaction_trigger=2;num_levels=4;compaction_style=kCompactionStyleUniversal;compaction_options_universal={allow_trivial_move=true}",
    ];
    let mut state = 1u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let (mut moves, mut merges) = (0, 0);
    for round in 0..4000 {
        let mut tree = TestTree::new(styles[round % styles.len()]);
        let name = |n: u64| char::from(b'a' + n as u8).to_string();
        for level in [3, 2, 1] {
            let mut from = below(4);
            while from < 20 && below(3) > 0 {
                let to = from + below(3);
                tree.file(level, &name(from), &name(to), 1000 + below(5000));
                from = to + 1 + below(4);
            }
        }
        for _ in 0..2 + below(4) {
            let from = below(20);
            tree.file(0, &name(from), &name(from + below(4)), 1000 + below(5000));
        }
        let Some(compaction) = tree.pick() else { continue };
        match compaction.work {
            CompactionWork::Move => moves += 1,
            _ => merges += 1,
        }
        let version = tree.version();
        let is_input =
            |number| compaction.inputs.iter().flat_map(|input| &input.files).any(|f| f.number == number);
        for input in &compaction.inputs {
            for file in &input.files {
                for (level, other) in version.all_files().filter(|(_, other)| !is_input(other.number)) {
                    let within_l0 = compaction.output_level.0 == 0;
                    let passed = match level.0 {
                        0 if within_l0 => {
                            (compaction.output_epoch() + 1..file.epoch_number).contains(&other.epoch_number)
                        }
                        0 => input.level.0 == 0 && other.epoch_number < file.epoch_number,
                        _ => level > input.level && level <= compaction.output_level,
                    };
                    let apart = other.largest_user_key() < file.smallest_user_key()
                        || file.largest_user_key() < other.smallest_user_key();
                    assert!(
                        !passed || apart,
                        "{}: file {} goes below file {} of {level}",
                        shown(&compaction),
                        file.number,
                        other.number
                    );
                }
            }
        }
    }
    assert!(moves > 100 && merges > 100, "{moves} {merges}");
}
