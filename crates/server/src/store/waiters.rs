//! Tasks that wait for keys: a queue for each key, in the order in which they came.
//!
//! In: the keys that a commit has written. Out: the first waiter of each is signalled; it tries its
//! command again under the stripes of its keys, and passes the signal to the one behind it if the
//! key is still there. So an element is taken by the waiter that came first, and a waiter that
//! leaves passes its signal on. Waiters that read, and take nothing, get signals in the same order,
//! and one of the key's removal too.
//!
//! Invariants:
//! - A waiter comes under the stripes of its keys, after it has found nothing there. A commit
//!   signals under the stripes too, so no write of a key is missed.
//! - A commit's [`Served`] is over when no signal of that commit is held any more: its waiters
//!   have taken what they could. A waiter whose client takes bytes slowly is passed over, and looks
//!   by itself afterwards, so that it keeps neither the commit nor those behind it waiting.
//!
//! Lock order: the queues, the signals of a waiter. Both are held for single operations.

use super::{Key, Store};
use crate::until::until;
use event_listener::Event;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The queues of a store.
#[derive(Default)]
pub(super) struct Waiters {
    queues: Mutex<HashMap<Key, VecDeque<Arc<Slot>>>>,
    /// Number of keys with waiters, so that commits without waiters take no lock.
    count: AtomicUsize,
}

/// A waiter in the queues.
#[derive(Default)]
struct Slot {
    /// It is signalled when the key was removed too.
    reads: bool,
    signals: Mutex<Signals>,
    event: Event,
}

#[derive(Default)]
struct Signals {
    given: Vec<Signal>,
    /// The waiter will not try at once: signals are for those behind it.
    is_busy: bool,
    /// A signal was not given because of that.
    has_missed: bool,
}

/// The notice that a key was written.
#[derive(Clone)]
pub(crate) struct Signal {
    pub(crate) key: Key,
    /// Kept so that the commit waits; `None` if the waiter looks by itself.
    _token: Option<Arc<Token>>,
}

/// Shared by all signals of one commit.
struct Token(Arc<Over>);

#[derive(Default)]
struct Over {
    is_over: AtomicBool,
    event: Event,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.event.notify(usize::MAX);
    }
}

/// The waiters that commits of one access have signalled.
#[derive(Default)]
pub(crate) struct Served(Vec<Arc<Over>>);

impl Served {
    /// Waits until they have taken what they could. The caller holds no stripes.
    pub(crate) async fn wait(self) {
        for of_commit in self.0 {
            until(&of_commit.event, || of_commit.is_over.load(Ordering::SeqCst)).await;
        }
    }

    pub(super) fn add(&mut self, other: Served) {
        self.0.extend(other.0);
    }
}

impl Slot {
    /// Gives a signal, and returns true, unless the waiter is busy.
    fn give(&self, signal: &Signal) -> bool {
        let mut signals = self.signals.lock();
        if signals.is_busy {
            signals.has_missed = true;
            return false;
        }
        signals.given.push(signal.clone());
        drop(signals);
        self.event.notify(usize::MAX);
        true
    }

    fn has(&self, key: &Key) -> bool {
        self.signals.lock().given.iter().any(|signal| signal.key == *key)
    }
}

impl Waiters {
    /// Signals the first waiters of keys that a commit has written, whose stripes it holds.
    pub(super) fn signal<'a>(&self, written: impl Iterator<Item = &'a Key>) -> Served {
        let mut served = Served::default();
        // A waiter comes under the key's stripe, so its count is known to the holder of the stripe.
        if self.count.load(Ordering::Relaxed) == 0 {
            return served;
        }
        let queues = self.queues.lock();
        let (mut token, mut seen) = (None, BTreeSet::new());
        for key in written {
            let Some(queue) = queues.get(key) else { continue };
            if !seen.insert(key) {
                continue;
            }
            let token = token.get_or_insert_with(|| {
                let over = Arc::<Over>::default();
                served.0.push(over.clone());
                Arc::new(Token(over))
            });
            let signal = Signal { key: key.clone(), _token: Some(token.clone()) };
            let _is_given = queue.iter().any(|slot| slot.give(&signal));
        }
        served
    }

    /// Returns the keys of a database with waiters, in order, because a simulation repeats it.
    pub(super) fn keys_in(&self, db: u16) -> Vec<Key> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut keys: Vec<Key> = self.queues.lock().keys().filter(|key| key.db == db).cloned().collect();
        keys.sort_unstable();
        keys
    }

    /// Returns those of the keys, whose stripes the caller holds, of which no waiter is about to
    /// take something.
    pub(super) fn unclaimed(&self, keys: &[Key]) -> Vec<Key> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return keys.to_vec();
        }
        let queues = self.queues.lock();
        let is_claimed = |key: &Key| queues.get(key).is_some_and(|queue| queue.iter().any(|it| it.has(key)));
        keys.iter().filter(|key| !is_claimed(key)).cloned().collect()
    }

    /// Returns true if one of the keys, whose stripes the caller holds, has a waiter.
    pub(super) fn have_any(&self, keys: &[Key]) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && {
            let queues = self.queues.lock();
            keys.iter().any(|key| queues.contains_key(key))
        }
    }

    fn add(&self, keys: &[Key], reads: bool) -> Arc<Slot> {
        let slot = Arc::new(Slot { reads, ..Slot::default() });
        let mut queues = self.queues.lock();
        for key in keys {
            let queue = queues.entry(key.clone()).or_default();
            if !queue.back().is_some_and(|last| Arc::ptr_eq(last, &slot)) {
                queue.push_back(slot.clone());
            }
        }
        self.count.store(queues.len(), Ordering::Relaxed);
        slot
    }

    /// Gives a signal to the next waiter behind `slot` in the queue of the signal's key, of those
    /// that read if the key is not there any more.
    fn pass(&self, slot: &Arc<Slot>, signal: &Signal, is_there: bool) {
        let queues = self.queues.lock();
        let Some(queue) = queues.get(&signal.key) else { return };
        let mut behind = queue.iter().skip_while(|other| !Arc::ptr_eq(other, slot)).skip(1);
        let _is_given = behind.any(|next| (is_there || next.reads) && next.give(signal));
    }

    fn remove(&self, slot: &Arc<Slot>, keys: &[Key]) {
        let mut queues = self.queues.lock();
        for key in keys {
            let Some(queue) = queues.get_mut(key) else { continue };
            queue.retain(|other| !Arc::ptr_eq(other, slot));
            if queue.is_empty() {
                queues.remove(key);
            }
        }
        self.count.store(queues.len(), Ordering::Relaxed);
    }
}

/// A place in the queues of keys; dropping it leaves them.
pub(crate) struct Waiter {
    store: Store,
    keys: Vec<Key>,
    slot: Arc<Slot>,
}

impl Waiter {
    /// Takes the last place in the queues of keys, whose stripes the caller holds.
    pub(super) fn new(store: &Store, keys: &[Key], reads: bool) -> Self {
        let slot = store.0.waiters.add(keys, reads);
        Self { store: store.clone(), keys: keys.to_vec(), slot }
    }

    /// Waits until a key was written.
    pub(crate) async fn signalled(&self) {
        until(&self.slot.event, || self.is_signalled()).await;
    }

    fn is_signalled(&self) -> bool {
        !self.slot.signals.lock().given.is_empty()
    }

    /// Takes its signals, in the order in which they came. The caller holds the stripes of the
    /// keys, and [passes](Self::pass) them on.
    pub(crate) fn take(&self) -> Vec<Signal> {
        std::mem::take(&mut self.slot.signals.lock().given)
    }

    /// Gives a signal to the next waiter for its key, of those that read if the key is not there.
    pub(crate) fn pass(&self, signal: &Signal, is_there: bool) {
        self.store.0.waiters.pass(&self.slot, signal, is_there);
    }

    /// Says that it will not try at once when a key is written, so that those behind it are
    /// signalled. Returns false if it is signalled already.
    pub(crate) fn set_busy(&self) -> bool {
        let mut signals = self.slot.signals.lock();
        signals.is_busy = signals.given.is_empty();
        signals.is_busy
    }

    /// Ends what [`set_busy`](Self::set_busy) began. It is signalled if a key was written
    /// meanwhile.
    pub(crate) fn set_idle(&self) {
        let mut signals = self.slot.signals.lock();
        signals.is_busy = false;
        if std::mem::take(&mut signals.has_missed) {
            let missed = self.keys.iter().map(|key| Signal { key: key.clone(), _token: None });
            signals.given.extend(missed);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        for signal in self.take() {
            self.pass(&signal, true);
        }
        self.store.0.waiters.remove(&self.slot, &self.keys);
        // One that was given meanwhile is for those that are left.
        for signal in self.take() {
            let queues = self.store.0.waiters.queues.lock();
            if let Some(queue) = queues.get(&signal.key) {
                let _is_given = queue.iter().any(|slot| slot.give(&signal));
            }
        }
    }
}
