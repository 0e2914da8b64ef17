//! Refused commands, keys, channels and passwords, for ACL LOG.
//!
//! Lock: one mutex, for an entry or a copy.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of the newest entries among which a denial of the same kind is looked for.
const LOOKED_AT: usize = 10;
/// Time within which denials of the same kind are one entry.
const GROUPED_WITHIN: Duration = Duration::from_secs(60);
/// Maximum length of a text of an entry in bytes; longer ones are cut.
const TEXT_AT_MOST: usize = 1024;

/// Context in which a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Outside of a transaction.
    TopLevel,
    /// When a transaction queued or ran it.
    Transaction,
    /// When a script called it.
    Script,
}

/// Kind of what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Password,
}

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    pub(crate) place: Scene,
    /// Name of the command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// The client's line of CLIENT LIST.
    pub(crate) client: String,
}

impl Denial {
    /// Copies the first 1024 bytes of each text.
    pub(crate) fn new(reason: Reason, place: Scene, object: &[u8], user: &[u8], client: &str) -> Self {
        let cut = |text: &[u8]| text[..text.len().min(TEXT_AT_MOST)].to_vec();
        let client = String::from_utf8_lossy(&cut(client.as_bytes())).into_owned();
        Self { reason, place, object: cut(object), user: cut(user), client }
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.reason, self.place) == (other.reason, other.place)
            && self.object == other.object
            && self.user == other.user
    }
}

/// An entry: denials of one kind.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) denial: Denial,
    /// Time of the environment's clock of the first and the last one.
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

/// The denials, newest first.
#[derive(Debug, Default)]
pub(crate) struct AclLog(Mutex<Denials>);

#[derive(Debug, Default)]
struct Denials {
    list: VecDeque<LogEntry>,
    next_id: u64,
}

impl AclLog {
    /// Adds a denial at a time of the environment's clock, and drops the oldest entries beyond
    /// `at_most`.
    pub(crate) fn add(&self, denial: Denial, now: Duration, at_most: usize) {
        let mut entries = self.0.lock();
        let is_same = |entry: &LogEntry| {
            entry.denial.is_like(&denial) && now.saturating_sub(entry.last) <= GROUPED_WITHIN
        };
        let found = entries.list.iter().take(LOOKED_AT).position(is_same);
        let entry = match found.and_then(|at| entries.list.remove(at)) {
            Some(mut entry) => {
                entry.count += 1;
                (entry.last, entry.denial) = (now, denial);
                entry
            }
            None => {
                entries.next_id += 1;
                LogEntry { id: entries.next_id - 1, count: 1, denial, first: now, last: now }
            }
        };
        entries.list.push_front(entry);
        entries.list.truncate(at_most);
    }

    /// Returns the newest entries, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<LogEntry> {
        self.0.lock().list.iter().take(count).cloned().collect()
    }

    /// Drops all entries.
    pub(crate) fn reset(&self) {
        self.0.lock().list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_of_a_kind_are_one_entry() {
        let log = AclLog::default();
        let add = |object: &str, seconds| {
            let denial = Denial::new(Reason::Key, Scene::TopLevel, object.as_bytes(), b"me", "");
            log.add(denial, Duration::from_secs(seconds), 3);
        };
        let counts = || log.newest(9).iter().map(|entry| (entry.id, entry.count)).collect::<Vec<_>>();
        add("a", 1);
        add("b", 2);
        add("a", 3);
        assert_eq!(counts(), [(0, 2), (1, 1)]);
        add("a", 64);
        assert_eq!(counts(), [(2, 1), (0, 2), (1, 1)]);
        add("c", 64);
        assert_eq!(counts(), [(3, 1), (2, 1), (0, 2)]);
        assert_eq!(log.newest(1).len(), 1);
        log.reset();
        assert!(counts().is_empty());
    }

    #[test]
    fn texts_are_cut() {
        let long = "x".repeat(2 * TEXT_AT_MOST);
        let denial = Denial::new(Reason::Key, Scene::TopLevel, long.as_bytes(), long.as_bytes(), &long);
        for text in [&denial.object[..], &denial.user, denial.client.as_bytes()] {
            assert_eq!(text, &long.as_bytes()[..TEXT_AT_MOST]);
        }
        assert!(denial.object.capacity() < long.len() && denial.user.capacity() < long.len());
    }
}
