//! Events of an access, which the commit tells the observer.

use super::super::events::{Classes, KeyEvent, News};
use super::{Access, Key};
use crate::wrong::Wrong;

impl Access {
    /// Names the client whose commands it carries out.
    pub(crate) fn by(mut self, client: u64) -> Self {
        self.writer = client;
        self
    }

    /// True if events of one of these classes are asked for.
    pub(crate) fn are_asked(&self, classes: Classes) -> bool {
        self.store.0.observed.interests.has(classes)
    }

    /// Has the commit tell of an event, if events of the class are asked for.
    pub(crate) fn event(&mut self, class: Classes, name: &'static str, key: &Key) {
        if self.are_asked(class)
            && let Some(changes) = &mut self.changes
        {
            changes.events.push(KeyEvent { name, key: key.clone() });
        }
    }

    /// [`event`](Self::event), unless it is the last one that the commit is to tell of.
    pub(super) fn event_once(&mut self, class: Classes, name: &'static str, key: &Key) {
        let last = self.changes.as_ref().and_then(|changes| changes.events.last());
        if last.is_none_or(|last| last.name != name || last.key != *key) {
            self.event(class, name, key);
        }
    }

    /// Tells of elements that were removed from a collection, and of the end of its key if none is
    /// left.
    pub(crate) async fn event_of_removal(
        &mut self,
        class: Classes,
        name: &'static str,
        key: &Key,
    ) -> Result<(), Wrong> {
        self.event(class, name, key);
        if self.are_asked(Classes::GENERIC) && self.kind(key).await?.is_none() {
            self.event(Classes::GENERIC, "del", key);
        }
        Ok(())
    }

    /// Tells of `count` elements that were stored in place of what a key was: of the end of the key
    /// if they are none, and if there was a key.
    pub(crate) fn event_of_store(
        &mut self,
        class: Classes,
        name: &'static str,
        key: &Key,
        count: usize,
        was_there: bool,
    ) {
        match count {
            0 if was_there => self.event(Classes::GENERIC, "del", key),
            0 => {}
            _ => self.event(class, name, key),
        }
    }

    /// Notes that a lookup of a view has found no key.
    pub(super) fn note_miss(&self, key: &Key) {
        if self.are_asked(Classes::MISS) {
            self.misses.lock().push(KeyEvent { name: "keymiss", key: key.clone() });
        }
    }

    /// Tells the observer of the lookups of a view that have found no key.
    pub(crate) async fn tell_misses(&self) {
        if self.are_asked(Classes::MISS) {
            let misses = std::mem::take(&mut *self.misses.lock());
            self.store.0.observed.tell(News { events: &misses, ..News::default() }).await;
        }
    }
}
