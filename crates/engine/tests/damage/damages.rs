//! Ways to damage a file.

use super::samples::Sample;
use karst_format::file_name::FileName;
use karst_testkit::random::Random;
use std::collections::BTreeSet;
use std::mem::discriminant;

/// Size in bytes up to which the long run flips a bit of every byte.
const SMALL_BYTES: usize = 1200;

/// Damage to a file.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    /// One bit is wrong.
    Flip { byte: usize, bit: u8 },
    /// The end is missing.
    Truncate { to: usize },
    /// A range is zero.
    Zero { from: usize, to: usize },
    /// Extra bytes follow the end.
    Grow { by: usize },
    /// The file is missing.
    Missing,
    /// The file is exchanged with another one of its kind.
    Swap { with: String },
    /// The file of this name from another database of the same shape.
    Twin,
    /// Random bytes.
    Noise { bytes: usize },
    /// The file is intact, and a foreign file is added to the directory.
    Beside { name: String, bytes: Vec<u8> },
}

impl Damage {
    /// Returns true if a log with this damage may look like one whose last write did not complete.
    ///
    /// A flipped bit in a record's length makes the record extend past the end of the file, like
    /// that of a torn log.
    pub(crate) fn looks_torn(&self) -> bool {
        matches!(self, Damage::Truncate { .. } | Damage::Zero { .. } | Damage::Flip { .. })
    }

    /// Returns the changed files: new bytes, or `None` for a missing file.
    pub(crate) fn apply(&self, sample: &Sample, name: &str) -> Vec<(String, Option<Vec<u8>>)> {
        let mut bytes = sample.files[name].clone();
        match self {
            Damage::Flip { byte, bit } => bytes[*byte] ^= 1 << bit,
            Damage::Truncate { to } => bytes.truncate(*to),
            Damage::Zero { from, to } => bytes[*from..*to].fill(0),
            Damage::Grow { by } => bytes.extend(Random::new(*by as u64).bytes(*by)),
            Damage::Missing => return vec![(name.to_owned(), None)],
            Damage::Swap { with } => {
                let other = sample.files[with].clone();
                return vec![(name.to_owned(), Some(other)), (with.clone(), Some(bytes))];
            }
            Damage::Twin => bytes.clone_from(&sample.twin[name]),
            Damage::Noise { bytes: count } => bytes = Random::new(*count as u64).bytes(*count),
            Damage::Beside { name, bytes } => return vec![(name.clone(), Some(bytes.clone()))],
        }
        vec![(name.to_owned(), Some(bytes))]
    }
}

/// Returns about `cases` random damages of a file, and all fixed ones.
pub(crate) fn of(sample: &Sample, name: &str, bytes: &[u8], cases: usize, seed: u64) -> Vec<Damage> {
    let mut random = Random::new(seed ^ name.bytes().fold(0u64, |sum, b| sum.rotate_left(7) ^ u64::from(b)));
    let mut all = vec![Damage::Missing, Damage::Noise { bytes: bytes.len() }, Damage::Noise { bytes: 77 }];
    all.extend([1, 4096].map(|by| Damage::Grow { by }));
    if let Some(kind) = FileName::parse(name) {
        let alike = |other: &&String| {
            let parsed = FileName::parse(other);
            *other != name && parsed.is_some_and(|o| discriminant(&o) == discriminant(&kind))
        };
        let most = if cases > 100 { usize::MAX } else { 2 };
        all.extend(
            sample.files.keys().filter(alike).take(most).map(|with| Damage::Swap { with: with.clone() }),
        );
        if sample.twin.contains_key(name) && matches!(kind, FileName::Table(_) | FileName::Manifest(_)) {
            all.push(Damage::Twin);
        }
        if kind == FileName::Current {
            all.extend(beside(sample));
        }
    }
    let length = bytes.len();
    if length == 0 {
        return all;
    }
    let mut lengths = BTreeSet::from([0, 1, length / 2, length - 1, length.saturating_sub(48)]);
    lengths.extend((0..cases / 3).map(|_| random.index(length)));
    all.extend(lengths.into_iter().filter(|to| *to < length).map(|to| Damage::Truncate { to }));
    for _ in 0..=cases / 8 {
        let (from, most) = (random.index(length), [8, 64, 512, 4096][random.index(4)]);
        let to = length.min(from + 1 + random.index(most));
        if bytes[from..to].iter().any(|b| *b != 0) {
            all.push(Damage::Zero { from, to });
        }
    }
    let mut flip = |byte: usize| Damage::Flip { byte, bit: random.index(8) as u8 };
    if length <= SMALL_BYTES && cases > 100 {
        all.extend((0..length).map(&mut flip));
    } else {
        // More flips in the tail, because it has the footer and the records that locate all else.
        all.extend((0..cases / 4).map(|i| flip(length - 1 - (i * 7) % length.min(160))));
    }
    all.extend((0..cases).map(|_| {
        let byte = random.index(length);
        Damage::Flip { byte, bit: random.index(8) as u8 }
    }));
    all
}

/// Returns the addition of foreign files to the directory.
fn beside(sample: &Sample) -> Vec<Damage> {
    let noise = Random::new(5).bytes(3000);
    let table = sample.files.iter().find(|(name, _)| name.ends_with(".sst")).map(|(_, bytes)| bytes.clone());
    let files = [
        ("notes.txt", noise.clone()),
        ("900000.sst", noise.clone()),
        ("900001.sst", table.unwrap_or_default()),
        ("900002.blob", noise.clone()),
        ("900003.log", noise.clone()),
        ("900004.log", Vec::new()),
        ("MANIFEST-900005", noise.clone()),
        ("OPTIONS-900006", noise.clone()),
        ("OPTIONS-900007.dbtmp", noise.clone()),
        ("900008.dbtmp", noise),
        ("99999999999999999999999999.sst", Vec::new()),
    ];
    files.into_iter().map(|(name, bytes)| Damage::Beside { name: name.to_owned(), bytes }).collect()
}
