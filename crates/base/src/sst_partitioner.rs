//! Partitioners: user code that decides where compactions cut tables.
//!
//! In: each user key that a compaction writes, with the one before it. Out: true if a new table
//! begins with it. A [`SstPartitionerFactory`] creates a partitioner for each part of each
//! compaction.
//!
//! A partitioner may rely on the following, as in RocksDB:
//! - Compactions cut tables where it returns true, and also where they would without it.
//! - It is not called by flushes, by other writers of L0 tables, or for range tombstones.
//! - A table that would be moved unchanged to another level is merged instead if the partitioner
//!   forbids the move.
//!
//! Partitioners are called on background threads and must not block or use the database; a panic
//! fails the compaction, and the database then refuses writes. [`from_name`] finds the partitioner
//! that RocksDB ships.

use karst_format::options::Object;
use std::fmt::Debug;
use std::sync::Arc;

/// The compaction that a partitioner is created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SstPartitionerContext<'a> {
    /// True if the compaction reads all tables of the column family.
    pub is_full_compaction: bool,
    /// True if the user started the compaction.
    pub is_manual_compaction: bool,
    /// The level that the compaction writes to.
    pub output_level: u32,
    /// The smallest user key of the input.
    pub smallest_user_key: &'a [u8],
    /// The largest user key of the input.
    pub largest_user_key: &'a [u8],
}

impl<'a> SstPartitionerContext<'a> {
    /// Describes a compaction of the keys from `range.0` to `range.1`.
    #[doc(hidden)]
    pub fn new((full, manual): (bool, bool), output_level: u32, range: (&'a [u8], &'a [u8])) -> Self {
        let (smallest_user_key, largest_user_key) = range;
        Self {
            is_full_compaction: full,
            is_manual_compaction: manual,
            output_level,
            smallest_user_key,
            largest_user_key,
        }
    }
}

/// Two consecutive user keys between which a table may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionerRequest<'a> {
    /// The last user key of the table being written.
    pub prev_user_key: &'a [u8],
    /// The next user key, which differs from it.
    pub current_user_key: &'a [u8],
    /// Approximate size of the table so far, in bytes: data being compressed may be missing.
    pub current_output_file_size: u64,
}

impl<'a> PartitionerRequest<'a> {
    /// Describes two consecutive keys.
    #[doc(hidden)]
    pub fn new(prev_user_key: &'a [u8], current_user_key: &'a [u8], current_output_file_size: u64) -> Self {
        Self { prev_user_key, current_user_key, current_output_file_size }
    }
}

/// Decides where tables are cut; see the module.
pub trait SstPartitioner: Send {
    /// Returns true if a new table begins with the request's current key. Called in order for each
    /// user key except the first of a table.
    fn should_partition(&mut self, request: &PartitionerRequest<'_>) -> bool;

    /// Returns true if a table with keys from `smallest_user_key` to `largest_user_key` may be
    /// moved unchanged to the compaction's output level.
    ///
    /// Compat: RocksDB does not call it for moves to the last level, nor for those of universal
    /// compaction with `allow_trivial_move`.
    fn can_do_trivial_move(&mut self, smallest_user_key: &[u8], largest_user_key: &[u8]) -> bool;
}

/// Creates partitioners; see the module.
pub trait SstPartitionerFactory: Send + Sync + Debug {
    /// The name written to OPTIONS.
    fn name(&self) -> &str;

    /// The text written to OPTIONS: the name, and the properties needed to recreate the factory.
    fn option_text(&self) -> String {
        self.name().to_owned()
    }

    /// Creates the partitioner for one part of a compaction, or for a trivial move check; `None` to
    /// cut nothing.
    fn create(&self, context: &SstPartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>>;
}

/// RocksDB's factory of partitioners that cut tables where the first bytes of keys change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SstPartitionerFixedPrefixFactory {
    /// Length of the prefix in bytes. With 0 nothing is cut.
    pub length: usize,
}

impl SstPartitionerFixedPrefixFactory {
    const NAME: &'static str = "SstPartitionerFixedPrefixFactory";
    /// Name of the partitioners it creates, which many users put in options in place of the
    /// factory's. RocksDB refuses it, so OPTIONS never contains it.
    const PARTITIONER_NAME: &'static str = "SstPartitionerFixedPrefix";
}

impl SstPartitionerFactory for SstPartitionerFixedPrefixFactory {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn option_text(&self) -> String {
        format!("{{id={};length={};}}", Self::NAME, self.length)
    }

    fn create(&self, _: &SstPartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>> {
        Some(Box::new(FixedPrefix(self.length)))
    }
}

struct FixedPrefix(usize);

impl FixedPrefix {
    fn is_shared(&self, a: &[u8], b: &[u8]) -> bool {
        a[..a.len().min(self.0)] == b[..b.len().min(self.0)]
    }
}

impl SstPartitioner for FixedPrefix {
    fn should_partition(&mut self, request: &PartitionerRequest<'_>) -> bool {
        !self.is_shared(request.prev_user_key, request.current_user_key)
    }

    fn can_do_trivial_move(&mut self, smallest_user_key: &[u8], largest_user_key: &[u8]) -> bool {
        self.is_shared(smallest_user_key, largest_user_key)
    }
}

/// Returns the factory that RocksDB ships under the name in `text`, in OPTIONS syntax; the name of
/// its partitioners is accepted too. `None` also if the length is not a number.
#[must_use]
pub fn from_name(text: &str) -> Option<Arc<dyn SstPartitionerFactory>> {
    let object = Object::new(text);
    let named = [SstPartitionerFixedPrefixFactory::NAME, SstPartitionerFixedPrefixFactory::PARTITIONER_NAME];
    if !named.contains(&object.id()?) {
        return None;
    }
    let length = object.property("length").map_or(Some(0), |length| length.trim().parse().ok())?;
    Some(Arc::new(SstPartitionerFixedPrefixFactory { length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_compared_as_far_as_keys_have_them() {
        let context = SstPartitionerContext::new((false, false), 1, (b"", b""));
        let mut of = SstPartitionerFixedPrefixFactory { length: 2 }.create(&context).unwrap();
        let mut cuts = |a: &[u8], b: &[u8]| {
            let cuts = of.should_partition(&PartitionerRequest::new(a, b, 0));
            assert_eq!(of.can_do_trivial_move(a, b), !cuts);
            cuts
        };
        assert!(!cuts(b"aa1", b"aa2") && !cuts(b"aa", b"aa2") && !cuts(b"", b""));
        assert!(cuts(b"a", b"aa") && cuts(b"aa9", b"ab0") && cuts(b"", b"a"));
        let mut of = SstPartitionerFixedPrefixFactory { length: 0 }.create(&context).unwrap();
        assert!(!of.should_partition(&PartitionerRequest::new(b"a", b"b", 0)));
    }

    #[test]
    fn options_name_them() {
        let made = |text| from_name(text).map(|factory| factory.option_text());
        let text = "{id=SstPartitionerFixedPrefixFactory;length=7;}";
        assert_eq!(made(text).as_deref(), Some(text));
        let bare = made("SstPartitionerFixedPrefixFactory").unwrap();
        assert_eq!(bare, "{id=SstPartitionerFixedPrefixFactory;length=0;}");
        assert_eq!(made("{id=SstPartitionerFixedPrefix;length=7;}").as_deref(), Some(text));
        for unknown in ["", "nullptr", "my.Factory", "{id=SstPartitionerFixedPrefixFactory;length=-1;}"] {
            assert!(from_name(unknown).is_none(), "{unknown}");
        }
    }
}
