//! Tells clients what commits have done: keyspace events as messages of their channels,
//! and invalidations of what they have cached.

use super::clients::Clients;
use super::settings::Settings;
use super::subscriptions::Space;
use super::tracking::Post;
use crate::store::{Classes, Interests, KeyEvent, News, Observer};
use futures_util::future::LocalBoxFuture;
use karstdb::io::Env;
use std::sync::Arc;

/// Tells the clients of a server.
pub(super) struct Teller {
    pub(super) clients: Arc<Clients>,
    pub(super) settings: Arc<Settings>,
    pub(super) interests: Arc<Interests>,
    pub(super) env: Env,
}

impl Teller {
    async fn publish(&self, KeyEvent { name, key }: &KeyEvent) {
        let (limit, now, classes) = (self.settings.pubsub_limit(), self.env.now(), self.interests.classes());
        let event = name.as_bytes();
        let by_key = (Classes::BY_KEY, format!("__keyspace@{}__:", key.db), &key.name[..], event);
        let by_event = (Classes::BY_EVENT, format!("__keyevent@{}__:", key.db), event, &key.name[..]);
        for (class, channel, of, message) in [by_key, by_event] {
            if classes.meets(class) {
                let channel = [channel.as_bytes(), of].concat();
                self.clients.pubsub().publish(Space::Channels, &channel, message, &limit, now).await;
            }
        }
    }
}

impl Observer for Teller {
    fn committed<'a>(&'a self, news: News<'a>) -> LocalBoxFuture<'a, ()> {
        Box::pin(async move {
            if news.is_flush || news.changed.iter().any(|keys| !keys.is_empty()) {
                let (limit, now) = (self.settings.pubsub_limit(), self.env.now());
                self.clients.tracking().tell(&news, Post { limit, now });
            }
            for event in news.events {
                self.publish(event).await;
            }
        })
    }
}
