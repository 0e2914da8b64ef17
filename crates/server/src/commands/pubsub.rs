//! Publish and subscribe.
//!
//! Acknowledgements of subscriptions go the way of the messages, through the client's mailbox, so
//! that both come in the order of the registry. Within EXEC they are elements of its reply.

use super::pace::Pace;
use super::table::Id;
use super::{Call, acl, containers};
use crate::pattern::Pattern;
use crate::resp::Encoder;
use crate::server::Space;
use crate::wrong::Wrong;
use std::sync::Arc;

/// True for the commands that a client with RESP2 may send while it is subscribed.
pub(super) fn is_allowed_while_subscribed(id: Id) -> bool {
    matches!(
        id,
        Id::Subscribe
            | Id::Unsubscribe
            | Id::PSubscribe
            | Id::PUnsubscribe
            | Id::SSubscribe
            | Id::SUnsubscribe
            | Id::Ping
            | Id::Quit
            | Id::Reset
    )
}

pub(super) async fn subscribe(call: &mut Call<'_>) -> Result<(), Wrong> {
    subscribe_to(call, Space::Channels, b"subscribe").await
}

pub(super) async fn psubscribe(call: &mut Call<'_>) -> Result<(), Wrong> {
    for pattern in &call.args[1..] {
        Pattern::new(pattern)?;
    }
    subscribe_to(call, Space::Patterns, b"psubscribe").await
}

pub(super) async fn ssubscribe(call: &mut Call<'_>) -> Result<(), Wrong> {
    subscribe_to(call, Space::Shards, b"ssubscribe").await
}

pub(super) async fn unsubscribe(call: &mut Call<'_>) -> Result<(), Wrong> {
    unsubscribe_from(call, Space::Channels, b"unsubscribe").await
}

pub(super) async fn punsubscribe(call: &mut Call<'_>) -> Result<(), Wrong> {
    unsubscribe_from(call, Space::Patterns, b"punsubscribe").await
}

pub(super) async fn sunsubscribe(call: &mut Call<'_>) -> Result<(), Wrong> {
    unsubscribe_from(call, Space::Shards, b"sunsubscribe").await
}

async fn subscribe_to(call: &mut Call<'_>, space: Space, word: &[u8]) -> Result<(), Wrong> {
    let (server, client) = (call.server, call.session.client.clone());
    let at_most = server.settings().limits().request;
    let mut pace = Pace::default();
    for name in &call.args[1..] {
        if client.subscribed_bytes() + name.len() > at_most {
            call.session.close();
            return Err(Wrong::err("subscriptions exceed client-query-buffer-limit"));
        }
        let pubsub = server.clients().pubsub();
        pubsub.subscribe(&client, space, name, || acknowledge(call, space, word, Some(name)));
        pace.step().await;
    }
    // A change of the user's rights since the command was checked has not seen these subscriptions.
    if !call.session.is_unrestricted()
        && let Some(spec) = super::find(&call.args[0])
        && acl::check(acl::Moment::Sent, server, call.session, spec, call.args).await.is_err()
    {
        call.session.close();
    }
    Ok(())
}

async fn unsubscribe_from(call: &mut Call<'_>, space: Space, word: &[u8]) -> Result<(), Wrong> {
    let (server, client) = (call.server, call.session.client.clone());
    let pubsub = server.clients().pubsub();
    let names: Vec<Arc<[u8]>> = match call.args {
        [_] => pubsub.names_of(&client, space),
        [_, names @ ..] => names.iter().map(|name| name[..].into()).collect(),
        [] => Vec::new(),
    };
    if names.is_empty() {
        acknowledge(call, space, word, None);
    }
    let mut pace = Pace::default();
    for name in names {
        pubsub.unsubscribe(&client, space, &name, || acknowledge(call, space, word, Some(&name)));
        pace.step().await;
    }
    Ok(())
}

/// Tells the client of a subscription that began or ended, and how many it has.
fn acknowledge(call: &mut Call<'_>, space: Space, word: &[u8], name: Option<&[u8]>) {
    let client = &call.session.client;
    let count = match space {
        Space::Channels | Space::Patterns => {
            client.subscribed(Space::Channels) + client.subscribed(Space::Patterns)
        }
        Space::Shards => client.subscribed(Space::Shards),
    };
    let mut push = Encoder::new(call.session.protocol());
    push.push(3);
    push.bulk(word);
    push.optional_bulk(name);
    push.count(count);
    match call.session.is_in_exec() {
        true => call.out.append(push),
        false => {
            client.post([&push.take(), &[]], &call.server.settings().pubsub_limit(), call.server.env().now())
        }
    }
}

pub(super) async fn publish(call: &mut Call<'_>) -> Result<(), Wrong> {
    publish_in(call, Space::Channels).await
}

pub(super) async fn spublish(call: &mut Call<'_>) -> Result<(), Wrong> {
    publish_in(call, Space::Shards).await
}

async fn publish_in(call: &mut Call<'_>, space: Space) -> Result<(), Wrong> {
    let (limit, now) = (call.server.settings().pubsub_limit(), call.server.env().now());
    let pubsub = call.server.clients().pubsub();
    let receivers = pubsub.publish(space, &call.args[1], &call.args[2], &limit, now).await;
    call.out.count(receivers);
    Ok(())
}

pub(super) async fn pubsub(call: &mut Call<'_>) -> Result<(), Wrong> {
    match &*call.word(1) {
        "channels" => channels(call, Space::Channels).await?,
        "shardchannels" => channels(call, Space::Shards).await?,
        "numsub" => numbers(call, Space::Channels).await,
        "shardnumsub" => numbers(call, Space::Shards).await,
        "numpat" => call.out.count(call.server.clients().pubsub().count(Space::Patterns)),
        "help" => containers::help(call, Id::PubSub),
        _ => return Err(Wrong::syntax()),
    }
    Ok(())
}

async fn channels(call: &mut Call<'_>, space: Space) -> Result<(), Wrong> {
    let mut found = call.server.clients().pubsub().names(space);
    match call.args {
        [_, _] => {}
        [_, _, pattern] => Pattern::new(pattern)?.retain(&mut found, |name| name).await,
        _ => {
            let word = call.word(1);
            let what = "unknown subcommand or wrong number of arguments for";
            return Err(Wrong::err(format_args!("{what} '{word}'. Try PUBSUB HELP.")));
        }
    }
    call.out.array(found.len());
    found.iter().for_each(|name| call.out.bulk(name));
    Ok(())
}

async fn numbers(call: &mut Call<'_>, space: Space) {
    let names = &call.args[2..];
    call.out.map(names.len());
    let mut pace = Pace::default();
    for name in names {
        call.out.bulk(name);
        call.out.count(call.server.clients().pubsub().subscribers(space, name));
        pace.step().await;
    }
}
