//! The workloads by their db_bench names, and the --benchmarks list.

use super::key::Order;
use karst_format::options::nearest;

/// Operation of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read(Reading),
    /// Reads by tasks on reactor threads; `true` for batches.
    Coroutines(bool),
    ReadToCache,
    /// `true` for the checksums of whole files.
    Verify(bool),
    Fill(Filling),
    /// Fills levels one by one; the largest is filled in this order.
    FillDeterministic(Order),
    /// `true` for keys in order.
    Delete(bool),
    Update,
    MergeRandom,
    ReadRandomWriteRandom,
    ReadRandomMergeRandom,
    RandomTransaction,
    /// Readers, and a thread that writes puts or merges until they are done.
    Beside(Reading, Beside),
    /// Makes tables and ingests them.
    Ingest,
    Compact,
    CompactAll,
    Flush,
    WaitForCompaction,
    /// Makes a backup of the database.
    Backup,
    /// Restores the latest backup to another directory.
    Restore,
    /// Replays the trace in --trace_file.
    Replay,
    /// Prints `rocksdb.NAME`.
    Property(&'static str),
}

/// A loop of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Random,
    Missing,
    MultiRandom,
    Seek,
    Forward,
    Backward,
}

/// Kind of writes next to the readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Puts,
    Merges,
}

/// Variant of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filling {
    pub(crate) order: Order,
    /// True if it begins with an empty database.
    pub(crate) fresh: bool,
    /// True if it uses a thousandth of --num.
    pub(crate) short: bool,
    pub(crate) sync: bool,
    /// Replaces --value_size.
    pub(crate) value_bytes: Option<usize>,
    /// Replaces --batch_size.
    pub(crate) batch: Option<u64>,
}

const fn filling(order: Order) -> Filling {
    Filling { order, fresh: true, short: false, sync: false, value_bytes: None, batch: None }
}

const WORKLOADS: [(&str, Work); 43] = [
    ("fillseq", Work::Fill(filling(Order::Sequential))),
    ("fillbatch", Work::Fill(Filling { batch: Some(1000), ..filling(Order::Sequential) })),
    ("fillrandom", Work::Fill(filling(Order::Random))),
    ("filluniquerandom", Work::Fill(filling(Order::UniqueRandom))),
    ("overwrite", Work::Fill(Filling { fresh: false, ..filling(Order::Random) })),
    ("fillsync", Work::Fill(Filling { short: true, sync: true, ..filling(Order::Random) })),
    ("fill100K", Work::Fill(Filling { short: true, value_bytes: Some(100_000), ..filling(Order::Random) })),
    ("fillseqdeterministic", Work::FillDeterministic(Order::Sequential)),
    ("filluniquerandomdeterministic", Work::FillDeterministic(Order::UniqueRandom)),
    ("deleteseq", Work::Delete(true)),
    ("deleterandom", Work::Delete(false)),
    ("updaterandom", Work::Update),
    ("mergerandom", Work::MergeRandom),
    ("readrandomwriterandom", Work::ReadRandomWriteRandom),
    ("readrandommergerandom", Work::ReadRandomMergeRandom),
    ("randomtransaction", Work::RandomTransaction),
    ("readwhilewriting", Work::Beside(Reading::Random, Beside::Puts)),
    ("readwhilemerging", Work::Beside(Reading::Random, Beside::Merges)),
    ("multireadwhilewriting", Work::Beside(Reading::MultiRandom, Beside::Puts)),
    ("seekrandomwhilewriting", Work::Beside(Reading::Seek, Beside::Puts)),
    ("seekrandomwhilemerging", Work::Beside(Reading::Seek, Beside::Merges)),
    ("readrandom", Work::Read(Reading::Random)),
    ("multireadrandom", Work::Read(Reading::MultiRandom)),
    ("seekrandom", Work::Read(Reading::Seek)),
    ("readseq", Work::Read(Reading::Forward)),
    ("readreverse", Work::Read(Reading::Backward)),
    ("readmissing", Work::Read(Reading::Missing)),
    ("readtocache", Work::ReadToCache),
    ("verifychecksum", Work::Verify(false)),
    ("verifyfilechecksums", Work::Verify(true)),
    ("readrandomcoroutine", Work::Coroutines(false)),
    ("multireadrandomcoroutine", Work::Coroutines(true)),
    ("ingestexternalfile", Work::Ingest),
    ("compact", Work::Compact),
    ("compactall", Work::CompactAll),
    ("flush", Work::Flush),
    ("waitforcompaction", Work::WaitForCompaction),
    ("backup", Work::Backup),
    ("restore", Work::Restore),
    ("replay", Work::Replay),
    ("stats", Work::Property("rocksdb.stats")),
    ("levelstats", Work::Property("rocksdb.levelstats")),
    ("sstables", Work::Property("rocksdb.sstables")),
];

impl Work {
    /// Returns true if it needs the database open for writing.
    pub(crate) fn writes(self) -> bool {
        use Work::{Coroutines, Property, Read, ReadToCache, Restore, Verify};
        !matches!(self, Read(_) | Coroutines(_) | ReadToCache | Restore | Verify(_) | Property(_))
    }

    /// Returns true if it begins with an empty database.
    pub(crate) fn fresh(self) -> bool {
        matches!(self, Work::Fill(Filling { fresh: true, .. }) | Work::FillDeterministic(_))
    }

    /// Returns true if it can run on an empty database.
    pub(crate) fn needs_no_data(self) -> bool {
        self.fresh() || matches!(self, Work::RandomTransaction | Work::Ingest | Work::Replay)
    }

    /// Returns true if it uses one thread, ignoring --threads.
    pub(crate) fn alone(self) -> bool {
        match self {
            Work::Fill(filling) => filling.order == Order::UniqueRandom,
            Work::FillDeterministic(_) | Work::ReadToCache | Work::Ingest => true,
            _ => false,
        }
    }

    /// Returns true if its result line has the number of keys found.
    pub(crate) fn counts_found(self) -> bool {
        let reading = match self {
            Work::Coroutines(_) => return true,
            Work::Read(reading) | Work::Beside(reading, _) => reading,
            _ => return false,
        };
        !matches!(reading, Reading::Forward | Reading::Backward)
    }
}

/// One entry of --benchmarks.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) repeats: usize,
    pub(crate) warm_ups: usize,
}

/// Returns the workload of this name, to run once.
pub(crate) fn named(name: &str) -> Result<Workload, String> {
    let found = WORKLOADS.iter().find(|(own, _)| *own == name);
    let unknown = || match nearest(name, WORKLOADS.iter().map(|(name, _)| *name)) {
        Some(near) => format!("unknown benchmark `{name}`; did you mean `{near}`?"),
        None => format!("unknown benchmark `{name}`; there are {}", names()),
    };
    let (_, work) = found.ok_or_else(unknown)?;
    Ok(Workload { name: name.to_string(), work: *work, repeats: 1, warm_ups: 0 })
}

/// Returns all names, for the help.
pub(crate) fn names() -> String {
    WORKLOADS.map(|(name, _)| name).join(", ")
}

/// Parses a --benchmarks list.
pub(crate) fn parse(list: &str) -> Result<Vec<Workload>, String> {
    let mut workloads = Vec::new();
    for entry in list.split(',').filter(|e| !e.is_empty()) {
        let (name, mut suffix) = entry.split_at(entry.find('[').unwrap_or(entry.len()));
        let mut workload = named(name)?;
        while let Some(rest) = suffix.strip_prefix('[') {
            let (argument, after) =
                rest.split_once(']').ok_or(format!("benchmark `{entry}`: `[` without `]`"))?;
            for part in argument.split('-') {
                let count = part.get(1..).and_then(|n| n.parse().ok());
                match (part.chars().next(), count) {
                    (Some('X'), Some(n)) if n > 0 => workload.repeats = n,
                    (Some('W'), Some(n)) => workload.warm_ups = n,
                    _ => return Err(format!("benchmark `{entry}`: `{part}` is neither X3 nor W1")),
                }
            }
            suffix = after;
        }
        if !suffix.is_empty() {
            return Err(format!("benchmark `{entry}`: text after `]`"));
        }
        workloads.push(workload);
    }
    if workloads.is_empty() { Err("--benchmarks names no workload".into()) } else { Ok(workloads) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_a_workload() {
        let w = parse("readrandom[X3-W1],seekrandom").unwrap();
        assert_eq!((w[0].name.as_str(), w[0].repeats, w[0].warm_ups), ("readrandom", 3, 1));
        assert_eq!((w[1].repeats, w[1].warm_ups), (1, 0));
        assert!(parse("fillsideways").unwrap_err().contains("unknown benchmark `fillsideways`"));
        assert!(parse("readseq[X0]").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn what_writes_and_what_begins_anew() {
        let work = |name| named(name).unwrap().work;
        assert!(work("fillrandom").fresh() && !work("overwrite").fresh() && work("overwrite").writes());
        assert!(!work("readseq").writes() && !work("levelstats").writes() && work("compact").writes());
        assert!(work("filluniquerandom").alone() && !work("fillrandom").alone());
        assert!(work("readwhilewriting").counts_found() && !work("readseq").counts_found());
    }
}
