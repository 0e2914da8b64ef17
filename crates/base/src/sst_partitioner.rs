//! Partitioners: the user's say in where compactions end one table and begin the next.
//!
//! In: each user key that a compaction writes, with the one before it. Out: whether a table begins
//! with it. A [`SstPartitionerFactory`] makes a partitioner for each part of each compaction.
//!
//! What a partitioner may rely on, as in RocksDB:
//! - Compactions end tables where it says so, and elsewhere as they do without it.
//! - It is not asked by flushes, nor by what else writes to L0, nor about range tombstones.
//! - A table that would move to another level as it is is merged instead, if the partitioner says
//!   that it may not move.
//!
//! Partitioners are called on background threads and must not block or use the database; one that
//! panics fails the compaction, and the database takes no more writes. [`from_name`] finds the one
//! that RocksDB ships.

use karst_format::options::Object;
use std::fmt::Debug;
use std::sync::Arc;

/// The compaction that a partitioner is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SstPartitionerContext<'a> {
    /// The compaction takes all tables of the column family.
    pub is_full_compaction: bool,
    /// Somebody asked for the compaction.
    pub is_manual_compaction: bool,
    /// The level that it writes to.
    pub output_level: u32,
    /// The smallest user key of its input.
    pub smallest_user_key: &'a [u8],
    /// The largest user key of its input.
    pub largest_user_key: &'a [u8],
}

impl<'a> SstPartitionerContext<'a> {
    /// A compaction of the keys from `range.0` to `range.1`.
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

/// What a partitioner is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionerRequest<'a> {
    /// The last user key of the table that is being written.
    pub prev_user_key: &'a [u8],
    /// The user key that comes next, another one.
    pub current_user_key: &'a [u8],
    /// Bytes of the table so far, about: what is being compressed may be missing.
    pub current_output_file_size: u64,
}

impl<'a> PartitionerRequest<'a> {
    /// Two keys that follow one another.
    #[doc(hidden)]
    pub fn new(prev_user_key: &'a [u8], current_user_key: &'a [u8], current_output_file_size: u64) -> Self {
        Self { prev_user_key, current_user_key, current_output_file_size }
    }
}

/// Says where tables end; see the module.
pub trait SstPartitioner: Send {
    /// Whether a table begins with the current key of the request. Asked for each user key but the
    /// first of a table, in order.
    fn should_partition(&mut self, request: &PartitionerRequest<'_>) -> bool;

    /// Whether a table with keys from `smallest_user_key` to `largest_user_key` may move to the
    /// level of the compaction as it is.
    ///
    /// Compat: RocksDB does not ask about moves to the last level, nor about those of universal
    /// compaction with `allow_trivial_move`.
    fn can_do_trivial_move(&mut self, smallest_user_key: &[u8], largest_user_key: &[u8]) -> bool;
}

/// Makes partitioners; see the module.
pub trait SstPartitionerFactory: Send + Sync + Debug {
    /// The name kept in OPTIONS.
    fn name(&self) -> &str;

    /// What OPTIONS says of it: the name, and whatever else is needed to make it again.
    fn option_text(&self) -> String {
        self.name().to_owned()
    }

    /// The partitioner for one part of a compaction, or for the question whether tables may move;
    /// `None` to cut nothing.
    fn create(&self, context: &SstPartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>>;
}

/// RocksDB's factory of partitioners that begin a table where the first bytes of keys change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SstPartitionerFixedPrefixFactory {
    /// How many bytes. With 0 nothing is cut.
    pub length: usize,
}

impl SstPartitionerFixedPrefixFactory {
    const NAME: &'static str = "SstPartitionerFixedPrefixFactory";
    /// The name of the partitioners that it makes, which many options name in its place. RocksDB
    /// refuses it, so OPTIONS never has it.
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

/// The factory that RocksDB ships under the name in `text`, as OPTIONS has it; the name of its
/// partitioners stands for it too. `None` also for a length that is no number.
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
