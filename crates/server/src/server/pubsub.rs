//! Registry of the subscriptions of all clients to channels and patterns.
//!
//! In: subscriptions of clients, and messages, from any thread. Out: pushes in the mailboxes of
//! the subscribers.
//!
//! Invariants: all subscribers get the messages in one order, that of the registry's lock; a client
//! gets the messages of a channel between the two acknowledgements of its subscription, because
//! these are put under the lock too. The names are kept twice: by name in the registry, and by
//! client in its [`Client`].
//!
//! Lock order: the registry, a client's subscriptions, its mailbox. The registry is locked for one
//! subscription or one message; patterns are matched outside of it.

use super::client::Client;
use super::mailbox::OutputLimit;
use super::subscriptions::Space;
use crate::pattern::Pattern;
use crate::resp::{Encoder, Protocol};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Subscribers of one name, by their numbers: a simulation repeats the order.
type Subscribers = BTreeMap<u64, Arc<Client>>;

/// The registry of subscriptions.
#[derive(Debug, Default)]
pub(crate) struct PubSub(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry([BTreeMap<Arc<[u8]>, Subscribers>; 3]);

impl PubSub {
    /// Subscribes a client to a name, and calls `acknowledge` before any message of it comes.
    pub(crate) fn subscribe(
        &self,
        client: &Arc<Client>,
        space: Space,
        name: &[u8],
        acknowledge: impl FnOnce(),
    ) {
        let mut registry = self.0.lock();
        let names = &mut registry.0[space as usize];
        let known = names.get_key_value(name).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| name.into());
        if client.subscriptions.insert(space, &name) {
            names.entry(name).or_default().insert(client.id, client.clone());
        }
        acknowledge();
    }

    /// Ends a subscription, if there is one, and calls `acknowledge` when no more messages of it
    /// come.
    pub(crate) fn unsubscribe(&self, client: &Client, space: Space, name: &[u8], acknowledge: impl FnOnce()) {
        let mut registry = self.0.lock();
        if client.subscriptions.remove(space, name) {
            let names = &mut registry.0[space as usize];
            if let Some(subscribers) = names.get_mut(name) {
                subscribers.remove(&client.id);
                if subscribers.is_empty() {
                    names.remove(name);
                }
            }
        }
        acknowledge();
    }

    /// Ends all subscriptions of a client, without acknowledgements.
    pub(crate) fn leave(&self, client: &Client) {
        for space in Space::ALL {
            for name in client.subscriptions.of(space) {
                self.unsubscribe(client, space, &name, || {});
            }
        }
    }

    /// Names of a space that a client is subscribed to, in the order of their bytes.
    pub(crate) fn names_of(&self, client: &Client, space: Space) -> Vec<Arc<[u8]>> {
        client.subscriptions.of(space)
    }

    /// Sends a message to the subscribers of a channel, and to those of patterns that match one of
    /// [`Space::Channels`]. Returns their number.
    pub(crate) async fn publish(
        &self,
        space: Space,
        channel: &[u8],
        message: &[u8],
        limit: &OutputLimit,
        now: Duration,
    ) -> usize {
        let matching = match space {
            Space::Channels => self.matching(channel).await,
            Space::Patterns | Space::Shards => Vec::new(),
        };
        let registry = self.0.lock();
        let mut receivers = 0;
        let mut send = |subscribers: &Subscribers, words: &[&[u8]]| {
            let push = encoded(words);
            subscribers.values().for_each(|client| client.push(&push, limit, now));
            receivers += subscribers.len();
        };
        if let Some(subscribers) = registry.0[space as usize].get(channel) {
            let kind = if space == Space::Shards { &b"smessage"[..] } else { b"message" };
            send(subscribers, &[kind, channel, message]);
        }
        for pattern in &matching {
            if let Some(subscribers) = registry.0[Space::Patterns as usize].get(pattern) {
                send(subscribers, &[b"pmessage", pattern, channel, message]);
            }
        }
        receivers
    }

    /// Number of those who would get a message of a channel now.
    pub(crate) async fn receivers(&self, space: Space, channel: &[u8]) -> usize {
        let matching = match space {
            Space::Channels => self.matching(channel).await,
            Space::Patterns | Space::Shards => Vec::new(),
        };
        let of_patterns = matching.iter().map(|pattern| self.subscribers(Space::Patterns, pattern));
        self.subscribers(space, channel) + of_patterns.sum::<usize>()
    }

    /// Returns the patterns with subscribers that match a channel.
    async fn matching(&self, channel: &[u8]) -> Vec<Arc<[u8]>> {
        let patterns: Vec<_> = self.0.lock().0[Space::Patterns as usize].keys().cloned().collect();
        let mut found = Vec::new();
        for pattern in patterns {
            let is_match = match Pattern::new(&pattern) {
                Ok(mut compared) => compared.matches(channel).await,
                Err(_) => false, // none is subscribed to that is too long
            };
            if is_match {
                found.push(pattern);
            }
        }
        found
    }

    /// Names of a space with subscribers, in the order of their bytes.
    pub(crate) fn names(&self, space: Space) -> Vec<Arc<[u8]>> {
        self.0.lock().0[space as usize].keys().cloned().collect()
    }

    /// Number of names of a space with subscribers.
    pub(crate) fn count(&self, space: Space) -> usize {
        self.0.lock().0[space as usize].len()
    }

    /// Number of subscribers of a name.
    pub(crate) fn subscribers(&self, space: Space, name: &[u8]) -> usize {
        self.0.lock().0[space as usize].get(name).map_or(0, BTreeMap::len)
    }
}

/// A push of these strings, for clients with RESP3.
fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Encoder::new(Protocol::Three);
    out.push(words.len());
    words.iter().for_each(|word| out.bulk(word));
    out.take()
}
