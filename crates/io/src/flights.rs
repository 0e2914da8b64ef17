//! Single flight: the table of reads in flight on all channels of an environment, which lets
//! several threads share one read.
//!
//! A channel that is about to read claims the read's place in the table. The answer is that it must
//! read, or that it has joined a read of another channel, which will send it the outcome.
//!
//! The read's key selects one place, which the read holds while it is in flight. A channel that
//! requests the same read leaves its name there; the owner takes all names when its read is done.
//! If a different read holds the place, the newcomer reads and cannot be joined. A place allocates
//! only when a read is joined, and a read without joiners costs two short, rarely contended locks.
//!
//! Invariants:
//! - Only an owner releases a place, and it answers every name it finds there: with the outcome, or
//!   with the notice that none will come.
//! - An owner waits for no other channel, because it has a read of its own in flight. Two channels
//!   therefore never wait for each other.
//! - The table does not know if an owner's channel is still polled. The joiner watches that
//!   ([`crate::channel::outbox::Outbox::beats`]).

use crate::sync::{Mutex, MutexGuard};

/// Number of places, which bounds the reads that can be joined at a time. With a few hundred reads
/// in flight, few find their place taken.
const PLACES: usize = if cfg!(loom) { 1 } else { 1024 };

/// Reads in flight by key `K`, each with its owner `O` and the names `J` of its joiners.
pub(crate) struct Flights<K, O, J> {
    places: Box<[Mutex<Place<K, O, J>>]>,
}

struct Place<K, O, J> {
    held: Option<(K, O)>,
    joiners: Vec<J>,
}

/// Result of [`Flights::claim`] for a channel that is about to read.
#[derive(Debug)]
pub(crate) enum Claim<O> {
    /// The caller reads, and then [ends](Flights::end) the flight.
    Own,
    /// The caller reads, and no channel can join.
    Alone,
    /// The owner of an identical read in flight, which now has the caller's name.
    Joined(O),
}

impl<K, O, J> Default for Flights<K, O, J> {
    fn default() -> Self {
        let place = |_| Mutex::new(Place { held: None, joiners: Vec::new() });
        Self { places: (0..PLACES).map(place).collect() }
    }
}

impl<K: Copy + Eq, O: Clone, J> Flights<K, O, J> {
    /// Claims the place of `key`. `hash` is the hash of `key` with all bits well mixed; `name`
    /// makes the name that a joiner leaves.
    pub(crate) fn claim(&self, key: K, hash: u64, owner: &O, name: impl FnOnce() -> J) -> Claim<O> {
        let mut place = self.place(hash);
        match &place.held {
            None => {
                place.held = Some((key, owner.clone()));
                Claim::Own
            }
            Some((held, owner)) if *held == key => {
                let owner = owner.clone();
                place.joiners.push(name());
                Claim::Joined(owner)
            }
            Some(_) => Claim::Alone,
        }
    }

    /// Releases the place that the caller owns and returns the names of its joiners.
    pub(crate) fn end(&self, key: K, hash: u64) -> Vec<J> {
        let mut place = self.place(hash);
        let held = place.held.take();
        let joiners = std::mem::take(&mut place.joiners);
        drop(place);
        assert!(held.is_some_and(|(held, _)| held == key), "only its owner gives a place back");
        joiners
    }

    fn place(&self, hash: u64) -> MutexGuard<'_, Place<K, O, J>> {
        self.places[hash as usize % PLACES].lock()
    }
}
