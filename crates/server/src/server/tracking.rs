//! Client-side caching: the clients that get invalidations, and their keys.
//!
//! In: names of keys that clients are about to read, and what commits have written, from any
//! thread. Out: invalidations in the mailboxes of the clients, or of those that they redirect to.
//!
//! Invariant: a client whose read saw a key before a commit of the key gets an invalidation behind
//! the reply of that read. The key is noted here before it is read, and commits look here once they
//! can be seen: a read that began before is noted, and one that begins later sees the commit. The
//! connection takes its mailbox between commands only.
//!
//! Names are those of all databases, as in Redis: a client that gets a name drops it in each.
//!
//! Lock order: the registry, a mailbox. The registry is locked for one key or one commit.

use super::client::{Client, Mode};
use super::mailbox::OutputLimit;
use crate::resp::{Encoder, Protocol};
use crate::store::{Interests, News};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Maximum sum of the lengths of the names that are noted, in bytes.
const NAMES_AT_MOST: usize = 256 << 20;
/// Maximum number of prefixes of a client.
pub(crate) const PREFIXES_AT_MOST: usize = 1024;
/// Channel of invalidations for clients with RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Numbers of tracking clients.
type Ids = BTreeSet<u64>;

/// The registry of tracking clients and of the keys that they have read.
#[derive(Debug, Default)]
pub(crate) struct Tracking(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    clients: BTreeMap<u64, Tracker>,
    /// Clients that have read a key since they were told of it last. Some may have left.
    readers: BTreeMap<Arc<[u8]>, Ids>,
    /// Sum of the lengths of the names in `readers`.
    bytes: usize,
    /// Number of entries of the sets in `readers`.
    items: usize,
    prefixes: BTreeMap<Arc<[u8]>, Ids>,
    /// Number of prefixes of each length in bytes.
    lengths: BTreeMap<usize, usize>,
}

#[derive(Debug)]
struct Tracker {
    client: Arc<Client>,
    /// The client that gets its invalidations, if it is another one.
    target: Option<Arc<Client>>,
    prefixes: BTreeSet<Arc<[u8]>>,
}

/// Numbers for INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackingTotals {
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) items: usize,
    pub(crate) prefixes: usize,
}

/// Limits of mailboxes, and the environment's monotonic time.
#[derive(Clone, Copy)]
pub(crate) struct Post {
    pub(crate) limit: OutputLimit,
    pub(crate) now: Duration,
}

/// Two prefixes of a client of which one begins with the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) given: Vec<u8>,
    pub(crate) other: Vec<u8>,
    /// True if the other one was there before the command.
    pub(crate) is_old: bool,
}

impl Tracking {
    /// Has a client be told of changes from now on, in place of what it was told before, except for
    /// its prefixes, which stay. A broadcast without prefixes is one of all keys.
    ///
    /// # Errors
    /// Two of its prefixes would overlap. Nothing has changed.
    pub(crate) fn enable(
        &self,
        client: &Arc<Client>,
        mode: Mode,
        target: Option<Arc<Client>>,
        prefixes: &[Vec<u8>],
        interests: &Interests,
    ) -> Result<(), Overlap> {
        let mut registry = self.0.lock();
        let known = registry.clients.get(&client.id).map(|tracker| tracker.prefixes.clone());
        let (known, mut all) = (known.clone().unwrap_or_default(), known.unwrap_or_default());
        for prefix in prefixes {
            // No two of `all` overlap, so one that overlaps this one is beside it.
            let before = all.range::<[u8], _>((Bound::Unbounded, Bound::Included(&prefix[..]))).next_back();
            let behind = all.range::<[u8], _>((Bound::Included(&prefix[..]), Bound::Unbounded)).next();
            let other = before.filter(|before| prefix.starts_with(before));
            if let Some(other) = other.or(behind.filter(|behind| behind.starts_with(prefix))) {
                let (given, other) = (prefix.clone(), other.to_vec());
                return Err(match known.contains(&other[..]) {
                    true => Overlap { given, other, is_old: true },
                    // The one that the command has first is named first.
                    false => Overlap { given: other, other: given, is_old: false },
                });
            }
            all.insert(prefix[..].into());
        }
        if mode.has(Mode::BROADCAST) && all.is_empty() {
            all.insert(Arc::default());
        }
        for prefix in &all {
            registry.add_prefix(prefix, client.id);
        }
        client.set_tracking(mode.and(Mode::ON), target.as_ref().map_or(0, |target| target.id));
        registry.clients.insert(client.id, Tracker { client: client.clone(), target, prefixes: all });
        interests.set_changes(true);
        Ok(())
    }

    /// Has a client be told of nothing any more.
    pub(crate) fn disable(&self, client: &Client, interests: &Interests) {
        if !client.tracking().has(Mode::ON) {
            return;
        }
        let mut registry = self.0.lock();
        client.set_tracking(Mode::default(), 0);
        let Some(tracker) = registry.clients.remove(&client.id) else { return };
        for prefix in tracker.prefixes {
            registry.remove_prefix(&prefix, client.id);
        }
        if registry.clients.is_empty() {
            (registry.readers, registry.bytes, registry.items) = Default::default();
            interests.set_changes(false);
        }
    }

    /// Prefixes of a client, in the order of their bytes.
    pub(crate) fn prefixes(&self, client: &Client) -> Vec<Arc<[u8]>> {
        let registry = self.0.lock();
        let tracker = registry.clients.get(&client.id);
        tracker.map_or(Vec::new(), |tracker| tracker.prefixes.iter().cloned().collect())
    }

    pub(crate) fn totals(&self) -> TrackingTotals {
        let registry = self.0.lock();
        TrackingTotals {
            clients: registry.clients.len(),
            keys: registry.readers.len(),
            items: registry.items,
            prefixes: registry.prefixes.len(),
        }
    }

    /// Notes that a client is about to read a key. If there are more than `at_most` keys then,
    /// another one is forgotten, and its clients are told as if it had changed; 0: no limit.
    pub(crate) fn remember(&self, client: &Client, name: &[u8], at_most: usize, post: Post) {
        let mut registry = self.0.lock();
        let Registry { clients, readers, bytes, items, .. } = &mut *registry;
        match readers.get_mut(name) {
            Some(ids) => {
                // Those that have left make up half of it at most.
                if ids.len() > 2 * clients.len() {
                    let before = ids.len();
                    ids.retain(|id| clients.contains_key(id));
                    *items -= before - ids.len();
                }
                *items += usize::from(ids.insert(client.id));
                return;
            }
            None => {
                readers.insert(name.into(), Ids::from([client.id]));
                (*bytes, *items) = (*bytes + name.len(), *items + 1);
            }
        }
        while registry.is_beyond(at_most) && registry.forget_behind(name, post) {}
    }

    /// Forgets a key if there are more than `at_most`. Returns true if there may be more to forget.
    pub(crate) fn shrink(&self, at_most: usize, post: Post) -> bool {
        let mut registry = self.0.lock();
        registry.is_beyond(at_most) && registry.forget_behind(&[], post)
    }

    /// Tells clients of a commit.
    pub(super) fn tell(&self, news: &News<'_>, post: Post) {
        let mut registry = self.0.lock();
        if registry.clients.is_empty() {
            return;
        }
        if news.is_flush {
            (registry.readers, registry.bytes, registry.items) = Default::default();
            registry.clients.values().for_each(|tracker| tracker.invalidate(None, post));
            return;
        }
        let all = news.changed.iter().flat_map(|keys| keys.iter()).map(|key| &key.name[..]);
        let mut seen = BTreeSet::new();
        let changed: Vec<&[u8]> = all.filter(|name| seen.insert(*name)).collect();
        for name in &changed {
            registry.forget(name, news.writer, post);
        }
        let mut matching: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for name in seen {
            for length in registry.lengths.range(..=name.len()).map(|(length, _)| *length) {
                if registry.prefixes.contains_key(&name[..length]) {
                    matching.entry(&name[..length]).or_default().push(name);
                }
            }
        }
        for (prefix, names) in matching {
            let ids = registry.prefixes.get(prefix).into_iter().flatten();
            let told = ids.filter_map(|id| registry.clients.get(id));
            told.filter(|tracker| !tracker.skips(news.writer))
                .for_each(|tracker| tracker.invalidate(Some(&names), post));
        }
    }
}

impl Registry {
    /// Has a client be told of names with a prefix.
    fn add_prefix(&mut self, prefix: &Arc<[u8]>, id: u64) {
        let ids = self.prefixes.entry(prefix.clone()).or_default();
        if ids.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        ids.insert(id);
    }

    fn remove_prefix(&mut self, prefix: &[u8], id: u64) {
        let Some(ids) = self.prefixes.get_mut(prefix) else { return };
        ids.remove(&id);
        if !ids.is_empty() {
            return;
        }
        self.prefixes.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    fn is_beyond(&self, at_most: usize) -> bool {
        at_most > 0 && self.readers.len() > at_most || self.bytes > NAMES_AT_MOST
    }

    /// Forgets the key behind one in the order of their names, or the first one. Returns false if
    /// there is none.
    fn forget_behind(&mut self, name: &[u8], post: Post) -> bool {
        let behind = (Bound::Excluded(name), Bound::Unbounded);
        let next = self.readers.range::<[u8], _>(behind).next().or_else(|| self.readers.first_key_value());
        let next = next.map(|(next, _)| next.clone());
        if let Some(next) = &next {
            self.forget(next, 0, post);
        }
        next.is_some()
    }

    /// Tells the readers of a key that was written by a client, and forgets them.
    fn forget(&mut self, name: &[u8], writer: u64, post: Post) {
        let Some((_, ids)) = self.readers.remove_entry(name) else { return };
        (self.bytes, self.items) = (self.bytes - name.len(), self.items - ids.len());
        let told = ids.iter().filter_map(|id| self.clients.get(id));
        // One that broadcasts has read the key before it did.
        told.filter(|tracker| !tracker.skips(writer) && !tracker.client.tracking().has(Mode::BROADCAST))
            .for_each(|tracker| tracker.invalidate(Some(&[name]), post));
    }
}

impl Tracker {
    /// True if it is not told of what this client writes.
    fn skips(&self, writer: u64) -> bool {
        writer == self.client.id && self.client.tracking().has(Mode::NO_LOOP)
    }

    /// Tells it, or the client that it redirects to, that names have changed; `None`: all.
    fn invalidate(&self, names: Option<&[&[u8]]>, post: Post) {
        let target = match &self.target {
            Some(target) if target.is_leaving() => return self.tell_broken(post),
            Some(target) => target,
            None => &self.client,
        };
        let mut out = match (target.is_resp3(), &self.target) {
            (true, _) => {
                let mut out = Encoder::new(Protocol::Three);
                out.push(2);
                out.bulk("invalidate");
                out
            }
            (false, Some(_)) if target.is_subscribed() => {
                let mut out = Encoder::new(Protocol::Two);
                out.array(3);
                out.bulk("message");
                out.bulk(CHANNEL);
                out
            }
            (false, _) => return,
        };
        match names {
            None => out.null(),
            Some(names) => {
                out.array(names.len());
                names.iter().for_each(|name| out.bulk(name));
            }
        }
        target.post([&out.take(), &[]], &post.limit, post.now);
    }

    /// Tells it that the client that it redirects to has gone.
    fn tell_broken(&self, post: Post) {
        self.client.set_tracking_broken();
        if self.client.is_resp3() {
            let mut out = Encoder::new(Protocol::Three);
            out.push(2);
            out.bulk("tracking-redir-broken");
            out.integer(self.client.tracking_redirect().cast_signed());
            self.client.post([&out.take(), &[]], &post.limit, post.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::users::Users;
    use crate::store::Key;
    use std::net::SocketAddr;

    #[derive(Default)]
    struct World {
        tracking: Tracking,
        interests: Interests,
        /// Number of the last client.
        last: std::cell::Cell<u64>,
    }

    impl World {
        fn post(&self) -> Post {
            Post { limit: OutputLimit::default(), now: Duration::ZERO }
        }

        fn client(&self) -> Arc<Client> {
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            self.last.set(self.last.get() + 1);
            let user = Users::new(b"").default().clone();
            let client =
                Client::new(self.last.get(), (address, address), user, Arc::default(), Duration::ZERO);
            client.note_protocol(Protocol::Three);
            Arc::new(client)
        }

        fn enable(&self, client: &Arc<Client>, mode: Mode, prefixes: &[&str]) -> Result<(), Overlap> {
            let prefixes: Vec<_> = prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect();
            self.tracking.enable(client, mode, None, &prefixes, &self.interests)
        }

        fn read(&self, client: &Client, name: &str, at_most: usize) {
            self.tracking.remember(client, name.as_bytes(), at_most, self.post());
        }

        fn write(&self, names: &[&str], writer: u64) {
            let keys: Vec<Key> =
                names.iter().map(|name| Key { db: 0, name: name.as_bytes().to_vec() }).collect();
            let news = News { changed: [&keys, &[]], writer, ..News::default() };
            self.tracking.tell(&news, self.post());
        }
    }

    fn mail(client: &Client) -> String {
        let text = String::from_utf8(client.mailbox.take()).unwrap().replace("\r\n", " ");
        text.replace(">2 $10 invalidate ", "!")
    }

    #[test]
    fn readers_are_told_once() {
        let world = World::default();
        let (one, other) = (world.client(), world.client());
        world.enable(&one, Mode::default(), &[]).unwrap();
        world.enable(&other, Mode::NO_LOOP, &[]).unwrap();
        for client in [&one, &other] {
            world.read(client, "a", 0);
            world.read(client, "a", 0);
        }
        let totals = world.tracking.totals();
        assert_eq!(totals, TrackingTotals { clients: 2, keys: 1, items: 2, prefixes: 0 });
        world.write(&["b", "a", "a"], other.id);
        world.write(&["a"], one.id);
        assert_eq!((&*mail(&one), &*mail(&other)), ("!*1 $1 a ", ""));
        world.tracking.disable(&one, &world.interests);
        world.tracking.disable(&other, &world.interests);
        assert_eq!(world.tracking.totals().clients, 0);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let world = World::default();
        let client = world.client();
        world.enable(&client, Mode::default(), &[]).unwrap();
        for name in ["a", "b", "c", "d"] {
            world.read(&client, name, 2);
        }
        assert_eq!(world.tracking.totals().keys, 2);
        assert_eq!(mail(&client), "!*1 $1 a !*1 $1 b ");
        while world.tracking.shrink(1, world.post()) {}
        assert_eq!((world.tracking.totals().keys, &*mail(&client)), (1, "!*1 $1 c "));
    }

    #[test]
    fn readers_that_have_left_are_forgotten() {
        let world = World::default();
        let stays = world.client();
        world.enable(&stays, Mode::default(), &[]).unwrap();
        for _ in 0..50 {
            let leaves = world.client();
            world.enable(&leaves, Mode::default(), &[]).unwrap();
            world.read(&leaves, "a", 0);
            world.tracking.disable(&leaves, &world.interests);
        }
        world.read(&stays, "a", 0);
        assert!(world.tracking.totals().items <= 6);
        world.write(&["a"], 0);
        assert_eq!((&*mail(&stays), world.tracking.totals().items), ("!*1 $1 a ", 0));
    }

    #[test]
    fn prefixes_do_not_overlap() {
        let world = World::default();
        let client = world.client();
        let overlap = |given: &str, other: &str, is_old| {
            Err(Overlap { given: given.into(), other: other.into(), is_old })
        };
        let enable = |prefixes: &[&str]| world.enable(&client, Mode::BROADCAST, prefixes);
        assert_eq!(enable(&["ab", "b", "a"]), overlap("ab", "a", false));
        enable(&["ab", "b"]).unwrap();
        assert_eq!(enable(&["c", "abc"]), overlap("abc", "ab", true));
        assert_eq!(enable(&["b"]), overlap("b", "b", true));
        enable(&["ac"]).unwrap();
        world.write(&["abx", "x", "ab", "b"], 0);
        assert_eq!(mail(&client), "!*2 $2 ab $3 abx !*1 $1 b ");
        assert_eq!(world.tracking.totals().prefixes, 3);
    }

    #[test]
    fn lengths_are_those_of_the_prefixes() {
        let world = World::default();
        let (one, other) = (world.client(), world.client());
        let lengths = || -> Vec<(usize, usize)> {
            world.tracking.0.lock().lengths.iter().map(|(length, count)| (*length, *count)).collect()
        };
        world.enable(&one, Mode::BROADCAST, &["ab", "cd", "e"]).unwrap();
        world.enable(&other, Mode::BROADCAST, &["ab", "abcd"]).unwrap_err();
        world.enable(&other, Mode::BROADCAST, &["ab", "c"]).unwrap();
        world.enable(&one, Mode::BROADCAST, &["xyz"]).unwrap();
        assert_eq!(lengths(), [(1, 2), (2, 2), (3, 1)]);
        world.write(&["abcd", "cd", "x", ""], 0);
        assert_eq!((&*mail(&one), &*mail(&other)), ("!*1 $4 abcd !*1 $2 cd ", "!*1 $4 abcd !*1 $2 cd "));
        world.tracking.disable(&one, &world.interests);
        assert_eq!(lengths(), [(1, 1), (2, 1)]);
        world.tracking.disable(&other, &world.interests);
        assert!(lengths().is_empty() && world.tracking.totals().prefixes == 0);
    }
}
