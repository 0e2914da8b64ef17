//! Bytes that other connections put to a client: messages of its subscriptions.
//!
//! In: whole pushes, from any thread. Out: their bytes in the order in which they were put, taken
//! by the task of the client's connection between its windows and while it waits for input.
//!
//! Invariant: the bytes of a mailbox are at most [`OutputLimit::hard`]; a push beyond it empties
//! the mailbox, and the connection is to be ended. A client without pushes has no buffer, and its
//! connection reads one number for it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Capacity that an empty mailbox keeps, in bytes.
const KEPT_AT_MOST: usize = 4 << 10;

/// Limits of the bytes that wait in a mailbox (`client-output-buffer-limit pubsub`); 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Bytes beyond which the client is closed at once.
    pub(crate) hard: u64,
    /// Bytes beyond which it is closed once they wait for `soft_seconds`.
    pub(crate) soft: u64,
    pub(crate) soft_seconds: u64,
}

impl Default for OutputLimit {
    fn default() -> Self {
        Self { hard: 32 << 20, soft: 8 << 20, soft_seconds: 60 }
    }
}

/// Pushes that the connection has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// Number of bytes that wait.
    size: AtomicUsize,
    mail: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    bytes: Vec<u8>,
    /// Environment's monotonic time since which the soft limit is exceeded.
    above_since: Option<Duration>,
}

impl Mailbox {
    /// Adds the bytes of a push, which are the parts one after the other. Returns false if they
    /// exceed the limit: the mailbox is empty then.
    pub(super) fn put(&self, parts: [&[u8]; 2], limit: &OutputLimit, now: Duration) -> bool {
        let mut mail = self.mail.lock();
        let length = (mail.bytes.len() + parts[0].len() + parts[1].len()) as u64;
        mail.above_since = match limit.soft > 0 && length > limit.soft {
            true => mail.above_since.or(Some(now)),
            false => None,
        };
        let soft_for = mail.above_since.map(|since| now.saturating_sub(since));
        if limit.hard > 0 && length > limit.hard
            || soft_for.is_some_and(|span| span > Duration::from_secs(limit.soft_seconds))
        {
            *mail = Mail::default();
            self.size.store(0, Ordering::SeqCst);
            return false;
        }
        parts.iter().for_each(|part| mail.bytes.extend_from_slice(part));
        self.size.store(mail.bytes.len(), Ordering::SeqCst);
        true
    }

    /// True if there are bytes to take.
    pub(crate) fn has_mail(&self) -> bool {
        self.size() > 0
    }

    /// Number of bytes that wait.
    pub(super) fn size(&self) -> usize {
        self.size.load(Ordering::SeqCst)
    }

    /// Takes all bytes.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut mail = self.mail.lock();
        self.size.store(0, Ordering::SeqCst);
        mail.above_since = None;
        match mail.bytes.capacity() <= KEPT_AT_MOST {
            true => {
                let taken = mail.bytes.clone();
                mail.bytes.clear();
                taken
            }
            false => std::mem::take(&mut mail.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: OutputLimit = OutputLimit { hard: 100, soft: 50, soft_seconds: 10 };

    fn put(mailbox: &Mailbox, length: usize, second: u64) -> bool {
        mailbox.put([b"", &vec![b'x'; length]], &LIMIT, Duration::from_secs(second))
    }

    #[test]
    fn pushes_are_taken_in_order() {
        let mailbox = Mailbox::default();
        assert!(!mailbox.has_mail() && mailbox.take().is_empty());
        assert!(mailbox.put([b"a", b"b"], &LIMIT, Duration::ZERO));
        assert!(mailbox.put([b"c", b""], &LIMIT, Duration::ZERO));
        assert!(mailbox.has_mail());
        assert_eq!(mailbox.take(), b"abc");
        assert!(!mailbox.has_mail() && mailbox.take().is_empty());
    }

    #[test]
    fn a_push_beyond_the_hard_limit_empties_the_mailbox() {
        let mailbox = Mailbox::default();
        assert!(put(&mailbox, 50, 0) && put(&mailbox, 50, 0) && !put(&mailbox, 1, 0));
        assert!(!mailbox.has_mail() && mailbox.take().is_empty());
    }

    #[test]
    fn the_soft_limit_may_be_exceeded_for_its_time() {
        let mailbox = Mailbox::default();
        assert!(put(&mailbox, 60, 0) && put(&mailbox, 1, 10));
        mailbox.take();
        assert!(put(&mailbox, 60, 11) && put(&mailbox, 1, 21) && !put(&mailbox, 1, 22));
    }
}
