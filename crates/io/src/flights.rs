//! Reads in flight on any channel of an environment, so that the same read wanted by several
//! threads is done once.
//!
//! In: the channel that is about to read something and how it can be told of the outcome. Out:
//! whether it has to read, or another channel reads and will tell it.
//!
//! A read has one place in a table, which its key names, and holds it while it is in flight:
//! whoever comes for the same leaves its name there, and the owner takes all names along when it is
//! done. If another read holds the place, the newcomer reads and is not to be joined. So nothing is
//! allocated unless a read is joined, and a read that meets nobody costs two short locks that are
//! hardly ever contended.
//!
//! Invariants:
//! - Only an owner gives a place back, and it tells every name that it finds there: of the outcome,
//!   or that there will be none.
//! - An owner waits for nobody: it has a read of its own under way. So no two channels ever wait
//!   for each other.
//! - The table knows nothing of whether an owner's channel is still polled. Who waits watches that
//!   ([`crate::channel::outbox::Outbox::beats`]).

use crate::sync::{Mutex, MutexGuard};

/// Reads that can be joined at a time. Why so many: with a few hundred in flight, few should find
/// their place taken.
const PLACES: usize = if cfg!(loom) { 1 } else { 1024 };

/// Reads by `K`, each with its owner `O` and the names `J` of those who wait for it.
pub(crate) struct Flights<K, O, J> {
    places: Box<[Mutex<Place<K, O, J>>]>,
}

struct Place<K, O, J> {
    held: Option<(K, O)>,
    joiners: Vec<J>,
}

/// What becomes of one who is about to read.
#[derive(Debug)]
pub(crate) enum Claim<O> {
    /// The channel reads, and then [ends](Flights::end) the flight.
    Own,
    /// The channel reads, and nobody can join.
    Alone,
    /// This one reads, and its name is with it.
    Joined(O),
}

impl<K, O, J> Default for Flights<K, O, J> {
    fn default() -> Self {
        let place = |_| Mutex::new(Place { held: None, joiners: Vec::new() });
        Self { places: (0..PLACES).map(place).collect() }
    }
}

impl<K: Copy + Eq, O: Clone, J> Flights<K, O, J> {
    /// `hash` is the key's, all its bits of use. `name` is what a joiner leaves.
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

    /// Gives back the place that the caller has claimed as its own. The names that were left there.
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
