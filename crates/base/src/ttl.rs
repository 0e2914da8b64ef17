//! Entries that expire: the time of the write is appended to each value, and compactions drop
//! expired entries.
//!
//! In: the lifetime of a column family's entries, and the user's merge operator and compaction
//! filter. Out: wrappers of both for values with times: expired entries are dropped by compactions,
//! the user's code never sees a time, and its results get one.
//!
//! Compat: RocksDB's `DBWithTTL`. The time is a 32-bit number of seconds after the value, and the
//! names are RocksDB's, so that each reads files of the other.

use crate::compaction_filter::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterInput,
    TableCreationReason,
};
use crate::merge_operator::{MergeFailed, MergeOperator, Merged};
use crate::sync::atomic::{AtomicU32, Ordering};
use karst_format::options::{Object, text};
use karst_io::Env;
use std::sync::Arc;
use std::time::Duration;

/// Size of a time, in bytes.
pub const STAMP_BYTES: usize = 4;

/// Smallest valid time, in Unix seconds: the release of RocksDB's utility. A stored value that ends
/// in a smaller number has no time.
pub const FIRST_TIME_S: i32 = 1_368_146_402;

/// Lifetime of a column family's entries.
#[derive(Debug)]
pub struct TimeToLive {
    /// Lifetime in seconds, at most `i32::MAX`; 0 for ever. Ordering: publishes no other data.
    seconds: AtomicU32,
    env: Env,
}

impl TimeToLive {
    /// Creates a lifetime; zero means entries never expire. Compat: rounded up to whole seconds.
    pub fn new(env: &Env, ttl: Duration) -> Arc<TimeToLive> {
        Arc::new(TimeToLive { seconds: AtomicU32::new(whole_seconds(ttl)), env: env.clone() })
    }

    /// Creates an independent copy for another column family.
    pub fn of_another_family(&self) -> Arc<TimeToLive> {
        TimeToLive::new(&self.env, self.get())
    }

    /// Returns the current lifetime.
    pub fn get(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::Relaxed).into())
    }

    /// Changes the lifetime, also for existing entries.
    pub fn set(&self, ttl: Duration) {
        self.seconds.store(whole_seconds(ttl), Ordering::Relaxed);
    }

    /// Returns `value` with the current time appended, as stored.
    pub fn stamped(&self, value: &[u8]) -> Vec<u8> {
        stamped_at(&self.env, value)
    }

    fn has_passed_since(&self, stamp: [u8; STAMP_BYTES]) -> bool {
        let (written, lives) = (i32::from_le_bytes(stamp), self.seconds.load(Ordering::Relaxed));
        lives > 0 && i64::from(written) + i64::from(lives) < i64::from(now_s(&self.env))
    }

    /// Wraps the user's operator for values with times.
    pub fn over_operator(self: &Arc<Self>, user: Arc<dyn MergeOperator>) -> Arc<dyn MergeOperator> {
        Arc::new(StampedMerge { ttl: self.clone(), user })
    }

    /// Wraps the user's filter in one that drops expired entries first.
    pub fn over_filter(self: &Arc<Self>, user: Arc<dyn CompactionFilter>) -> Arc<dyn CompactionFilter> {
        Arc::new(ExpiryFilter { ttl: self.clone(), user: Some(user) })
    }

    /// Wraps the user's factory, or none, to create filters that drop expired entries.
    pub fn over_factory(
        self: &Arc<Self>,
        user: Option<Arc<dyn CompactionFilterFactory>>,
    ) -> Arc<dyn CompactionFilterFactory> {
        Arc::new(ExpiryFilterFactory { ttl: self.clone(), user })
    }
}

fn whole_seconds(ttl: Duration) -> u32 {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    i32::try_from(seconds).unwrap_or(i32::MAX).unsigned_abs()
}

fn now_s(env: &Env) -> i32 {
    i32::try_from(env.unix_time().as_secs()).unwrap_or(i32::MAX)
}

/// Returns `value` with the current time appended, as stored.
pub fn stamped_at(env: &Env, value: &[u8]) -> Vec<u8> {
    [value, &now_s(env).to_le_bytes()].concat()
}

/// Splits a stored value into the value and its time; `None` if the time is missing or invalid.
pub fn parts(stored: &[u8]) -> Option<(&[u8], [u8; STAMP_BYTES])> {
    let (value, stamp) = stored.split_last_chunk::<STAMP_BYTES>()?;
    (i32::from_le_bytes(*stamp) >= FIRST_TIME_S).then_some((value, *stamp))
}

fn without_stamp(stored: &[u8]) -> Result<&[u8], MergeFailed> {
    parts(stored)
        .map(|(value, _)| value)
        .ok_or_else(|| MergeFailed("a value or an operand does not end with a write time".into()))
}

/// A user's operator for values with times.
#[derive(Debug)]
struct StampedMerge {
    ttl: Arc<TimeToLive>,
    user: Arc<dyn MergeOperator>,
}

/// Name of every operator for values with times.
pub const MERGE_NAME: &str = "TtlMergeOperator";

/// Returns the option text of the user's operator: the option's own, or the one nested in an
/// operator for values with times.
pub fn users_operator(option: &Object) -> Option<&str> {
    match option.id() {
        Some(MERGE_NAME) => option.property("user_operator"),
        _ => option.text(),
    }
}

/// Returns the OPTIONS text of an operator for values with times.
pub fn described(user: &str) -> Object {
    let user = text::strip_braces(user);
    let user = if user.contains('=') { format!("{{{user}}}") } else { user.to_owned() };
    Object::new(&format!("{{id={MERGE_NAME};user_operator={user};}}"))
}

impl MergeOperator for StampedMerge {
    fn name(&self) -> &str {
        MERGE_NAME
    }

    // Compat: a merged value gets the time of the merge.
    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        let existing = existing.map(without_stamp).transpose()?;
        let operands =
            operands.iter().map(|operand| without_stamp(operand)).collect::<Result<Vec<_>, _>>()?;
        let merged = match self.user.full_merge(key, existing, &operands)? {
            Merged::Bytes(bytes) => self.ttl.stamped(&bytes),
            Merged::Operand(index) => match operands.get(index) {
                Some(operand) => self.ttl.stamped(operand),
                None => return Ok(Merged::Operand(index)),
            },
            Merged::Existing => match existing {
                Some(value) => self.ttl.stamped(value),
                None => return Ok(Merged::Existing),
            },
        };
        Ok(Merged::Bytes(merged))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let operands =
            operands.iter().map(|operand| without_stamp(operand).ok()).collect::<Option<Vec<_>>>()?;
        self.user.partial_merge(key, &operands).map(|merged| self.ttl.stamped(&merged))
    }

    fn allow_single_operand(&self) -> bool {
        self.user.allow_single_operand()
    }

    fn should_merge(&self, operands: &[&[u8]]) -> bool {
        let operands: Option<Vec<_>> = operands.iter().map(|operand| without_stamp(operand).ok()).collect();
        operands.is_some_and(|operands| self.user.should_merge(&operands))
    }
}

/// Drops expired entries, and passes the rest to the user's filter.
#[derive(Debug)]
struct ExpiryFilter {
    ttl: Arc<TimeToLive>,
    user: Option<Arc<dyn CompactionFilter>>,
}

impl CompactionFilter for ExpiryFilter {
    fn name(&self) -> &str {
        "TtlCompactionFilter"
    }

    fn ignore_snapshots(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.ignore_snapshots())
    }

    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        let (FilterInput::Value(stored) | FilterInput::MergeOperand(stored)) = entry else {
            return FilterDecision::Keep;
        };
        let Some((value, stamp)) = parts(stored) else { return FilterDecision::Keep };
        let is_operand = matches!(entry, FilterInput::MergeOperand(_));
        // Compat: an operand never expires until it is merged.
        if !is_operand && self.ttl.has_passed_since(stamp) {
            return FilterDecision::Remove;
        }
        let Some(user) = &self.user else { return FilterDecision::Keep };
        let shown = match is_operand {
            true => FilterInput::MergeOperand(value),
            false => FilterInput::Value(value),
        };
        match user.filter(level, key, shown) {
            // Compat: a changed value keeps the time of the old one.
            FilterDecision::ChangeValue(new) => FilterDecision::ChangeValue([&new[..], &stamp].concat()),
            decision => decision,
        }
    }
}

/// Creates such filters around those of a user's factory.
#[derive(Debug)]
struct ExpiryFilterFactory {
    ttl: Arc<TimeToLive>,
    user: Option<Arc<dyn CompactionFilterFactory>>,
}

impl CompactionFilterFactory for ExpiryFilterFactory {
    fn name(&self) -> &str {
        "TtlCompactionFilterFactory"
    }

    fn should_filter(&self, reason: TableCreationReason) -> bool {
        let by_user = self.user.as_ref().is_some_and(|user| user.should_filter(reason));
        reason == TableCreationReason::Compaction || by_user
    }

    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        let asked = self.user.as_ref().filter(|user| user.should_filter(context.reason));
        let user = asked.and_then(|user| user.create(context)).map(Arc::from);
        Some(Box::new(ExpiryFilter { ttl: self.ttl.clone(), user }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge_operator::from_name;

    #[test]
    fn values_have_their_time_behind_them() {
        let stored = stamped_at(&Env::posix(), b"value");
        let (value, stamp) = parts(&stored).unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert_eq!(value, b"value");
        assert!(now - u64::from(u32::from_le_bytes(stamp)) < 100);
        assert_eq!(parts(b"abc"), None);
        assert_eq!(parts(&[0; 9]), None, "older than the format");
    }

    #[test]
    fn a_time_to_live_is_of_whole_seconds_and_never_overflows() {
        let ttl = TimeToLive::new(&Env::posix(), Duration::from_millis(1));
        assert_eq!(ttl.get(), Duration::from_secs(1));
        ttl.set(Duration::MAX);
        assert_eq!(ttl.get(), Duration::from_secs(i32::MAX as u64));
        assert!(!ttl.has_passed_since(FIRST_TIME_S.to_le_bytes()));
        ttl.set(Duration::from_secs(1));
        assert!(ttl.has_passed_since(FIRST_TIME_S.to_le_bytes()));
        ttl.set(Duration::ZERO);
        assert!(!ttl.has_passed_since(FIRST_TIME_S.to_le_bytes()));
    }

    #[test]
    fn an_operator_sees_no_time_and_what_it_makes_has_one() {
        let ttl = TimeToLive::new(&Env::posix(), Duration::ZERO);
        let operator = ttl.over_operator(from_name("StringAppendOperator").unwrap());
        let (a, b) = (ttl.stamped(b"a"), ttl.stamped(b"b"));
        let merged = operator.full_merge(b"key", Some(&a), &[&b]).unwrap();
        let Merged::Bytes(bytes) = merged else { panic!("{merged:?}") };
        assert_eq!(parts(&bytes).unwrap().0, b"a,b");
        let folded = operator.partial_merge(b"key", &[&a, &b]).unwrap();
        assert_eq!(parts(&folded).unwrap().0, b"a,b");
        assert!(operator.full_merge(b"key", Some(b"a"), &[&b]).is_err());
        assert_eq!(operator.partial_merge(b"key", &[&a, b"b"]), None);
    }

    #[test]
    fn options_name_the_operator_inside_as_rocksdb_does() {
        // The text that RocksDB 7.8 writes.
        let rocksdbs = "{id=TtlMergeOperator;user_operator={id=StringAppendOperator;delimiter=\\:;};}";
        let option = Object::new(rocksdbs);
        let user = users_operator(&option).unwrap();
        assert_eq!(from_name(user).unwrap().name(), "StringAppendOperator");
        assert_eq!(described(user), option);
        assert_eq!(users_operator(&described("PutOperator")), Some("PutOperator"));
        assert_eq!(users_operator(&Object::new("PutOperator")), Some("PutOperator"));
    }

    #[derive(Debug)]
    struct Shouts;

    impl CompactionFilter for Shouts {
        fn name(&self) -> &str {
            "Shouts"
        }
        fn filter(&self, _: u32, _: &[u8], entry: FilterInput<'_>) -> FilterDecision {
            match entry {
                FilterInput::Value(value) | FilterInput::MergeOperand(value) => {
                    FilterDecision::ChangeValue(value.to_ascii_uppercase())
                }
                FilterInput::Entity(_) => FilterDecision::Keep,
            }
        }
    }

    #[test]
    fn a_users_filter_sees_what_has_not_expired_and_keeps_its_time() {
        let ttl = TimeToLive::new(&Env::posix(), Duration::from_secs(10));
        let filter = ttl.over_filter(Arc::new(Shouts));
        let old = [&b"a"[..], &FIRST_TIME_S.to_le_bytes()].concat();
        assert_eq!(filter.filter(0, b"key", FilterInput::Value(&old)), FilterDecision::Remove);
        let shouted = [&b"A"[..], &FIRST_TIME_S.to_le_bytes()].concat();
        let changed = FilterDecision::ChangeValue(shouted);
        assert_eq!(filter.filter(0, b"key", FilterInput::MergeOperand(&old)), changed);
        ttl.set(Duration::ZERO);
        assert_eq!(filter.filter(0, b"key", FilterInput::Value(&old)), changed);
        assert_eq!(filter.filter(0, b"key", FilterInput::Value(b"a")), FilterDecision::Keep);
    }
}
