//! The connection itself: authentication, the protocol, the database, and CLIENT.

use super::table::Id;
use super::{Call, QUOTED_AT_MOST, containers, quoted, tracking};
use crate::lua::REDIS_VERSION;
use crate::numbers::{integer, milliseconds_argument};
use crate::resp::Protocol;
use crate::server::{Client, DEFAULT_USER};
use crate::session::Replies;
use crate::wrong::Wrong;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn ping(call: &mut Call<'_>) -> Result<(), Wrong> {
    let is_subscribed = call.session.client.is_subscribed() && call.session.protocol() == Protocol::Two;
    match call.args {
        [_] | [_, _] if is_subscribed => {
            call.out.array(2);
            call.out.bulk("pong");
            call.out.bulk(call.args.get(1).map_or(&b""[..], |text| text));
        }
        [_] => call.out.simple("PONG"),
        [_, text] => call.out.bulk(text),
        _ => return Err(Wrong::arity("ping")),
    }
    Ok(())
}

pub(super) async fn echo(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.out.bulk(&call.args[1]);
    Ok(())
}

pub(super) async fn quit(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.session.close();
    call.out.ok();
    Ok(())
}

pub(super) async fn reset(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.server.clients().pubsub().leave(&call.session.client);
    call.server.clients().remove_monitor(&call.session.client);
    call.server.clients().tracking().disable(&call.session.client, call.server.store().interests());
    call.out.encoded(call.session.client.mailbox.take());
    call.session.reset(call.server.users().default());
    call.out.set_protocol(Protocol::Two);
    call.out.simple("RESET");
    Ok(())
}

pub(super) async fn select(call: &mut Call<'_>) -> Result<(), Wrong> {
    let number = integer(&call.args[1]).ok_or(Wrong::not_an_integer())?;
    let number = u16::try_from(number).ok().filter(|number| *number < call.server.store().databases());
    call.session.select(number.ok_or(Wrong::db_out_of_range())?);
    call.out.ok();
    Ok(())
}

pub(super) async fn auth(call: &mut Call<'_>) -> Result<(), Wrong> {
    match call.args {
        [_, _] if call.server.users().default().rights().no_password => {
            return Err(Wrong::err(
                "AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?",
            ));
        }
        [_, password] => authenticate(call, DEFAULT_USER, password)?,
        [_, user, password] => authenticate(call, user, password)?,
        _ => return Err(Wrong::syntax()),
    }
    call.out.ok();
    Ok(())
}

fn authenticate(call: &Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Wrong> {
    super::acl::authenticate(call.server, call.session, &call.args[0], (user, password))
}

pub(super) async fn hello(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mut protocol = call.session.protocol();
    if let Some(version) = call.args.get(1) {
        protocol = match integer(version) {
            Some(2) => Protocol::Two,
            Some(3) => Protocol::Three,
            Some(_) => return Err(Wrong::no_proto()),
            None => return Err(Wrong::err("Protocol version is not an integer or out of range")),
        };
    }
    // Nothing takes effect before all options are known to be right.
    let (mut user, mut name, mut at) = (None, None, 2);
    while at < call.args.len() {
        match (&*call.word(at), call.args.len() - at) {
            ("auth", 3..) => {
                user = Some((&call.args[at + 1], &call.args[at + 2]));
                at += 3;
            }
            ("setname", 2..) => {
                name = Some(client_name(&call.args[at + 1])?);
                at += 2;
            }
            _ => {
                let option = quoted(&call.args[at], QUOTED_AT_MOST);
                return Err(Wrong::err(format_args!("Syntax error in HELLO option '{option}'")));
            }
        }
    }
    if let Some((user, password)) = user {
        authenticate(call, user, password)?;
    }
    if !call.session.is_authenticated() {
        return Err(Wrong::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
             version at the same time",
        ));
    }
    if let Some(name) = name {
        call.session.client.set_name(name);
    }
    call.session.set_protocol(protocol);
    let out = &mut *call.out;
    out.set_protocol(protocol);
    out.map(7);
    out.bulk("server");
    out.bulk("redis");
    out.bulk("version");
    out.bulk(REDIS_VERSION);
    out.bulk("proto");
    out.integer(if protocol == Protocol::Three { 3 } else { 2 });
    out.bulk("id");
    out.integer(call.session.client.id as i64);
    out.bulk("mode");
    out.bulk("standalone");
    out.bulk("role");
    out.bulk("master");
    out.bulk("modules");
    out.array(0);
    Ok(())
}

/// Checks the name that a client gives itself.
fn client_name(name: &[u8]) -> Result<Vec<u8>, Wrong> {
    match name.iter().all(u8::is_ascii_graphic) {
        true => Ok(name.to_vec()),
        false => Err(Wrong::err("Client names cannot contain spaces, newlines or special characters.")),
    }
}

pub(super) async fn client(call: &mut Call<'_>) -> Result<(), Wrong> {
    let this = call.session.client.clone();
    match (&*call.word(1), call.args.len()) {
        ("id", 2) => call.out.integer(this.id as i64),
        ("info", 2) => {
            let line = this.line(call.server.env().now()) + "\n";
            call.out.verbatim(&line);
        }
        ("list", _) => list(call)?,
        ("getname", 2) => {
            let name = this.name();
            call.out.optional_bulk(Some(name).filter(|name| !name.is_empty()));
        }
        ("setname", 3) => {
            this.set_name(client_name(&call.args[2])?);
            call.out.ok();
        }
        ("setinfo", 4) => set_info(call)?,
        ("kill", 3..) => kill(call)?,
        ("reply", 3) => reply(call)?,
        ("no-evict" | "no-touch", 3) if call.is(2, "on") || call.is(2, "off") => {
            if call.is(1, "no-evict") {
                call.session.client.set_kept(call.is(2, "on"));
            }
            call.out.ok();
        }
        ("no-evict" | "no-touch", 3) => return Err(Wrong::syntax()),
        ("tracking", _) => tracking::track(call).await?,
        ("caching", 3) => tracking::caching(call)?,
        ("unblock", _) => unblock(call)?,
        ("pause", _) => pause(call).await?,
        ("unpause", 2) => {
            call.server.pause().end();
            call.out.ok();
        }
        ("trackinginfo", 2) => tracking::info(call),
        ("getredir", 2) => tracking::get_redirect(call),
        ("help", _) => containers::help(call, Id::Client),
        _ => return Err(Wrong::syntax()),
    }
    Ok(())
}

async fn pause(call: &mut Call<'_>) -> Result<(), Wrong> {
    let of_all = match call.args {
        [_, _, _] => true,
        [_, _, _, _] if call.is(3, "all") => true,
        [_, _, _, _] if call.is(3, "write") => false,
        [_, _, _, _] => return Err(Wrong::err("CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(Wrong::syntax()),
    };
    let span = Duration::from_millis(milliseconds_argument(&call.args[2])?.unsigned_abs());
    let now = call.server.env().now();
    call.server.pause().begin(now.saturating_add(span), of_all, now);
    if !call.session.is_in_exec() {
        // Writes that began before have ended once all keys are free. An EXEC may hold some itself.
        drop(call.server.store().change_all().await);
    }
    call.out.ok();
    Ok(())
}

fn unblock(call: &mut Call<'_>) -> Result<(), Wrong> {
    let by_error = match call.args {
        [_, _, _] => false,
        [_, _, _, _] if call.is(3, "timeout") => false,
        [_, _, _, _] if call.is(3, "error") => true,
        [_, _, _, _] => return Err(Wrong::err("CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(Wrong::syntax()),
    };
    let id = integer(&call.args[2]).ok_or(Wrong::not_an_integer())?;
    let clients = call.server.clients().all();
    let client = clients.iter().find(|client| client.id as i64 == id);
    call.out.integer(client.is_some_and(|client| client.unblock(by_error)).into());
    Ok(())
}

fn set_info(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (attribute, text) = (call.word(2), &call.args[3]);
    let is_version = match &*attribute {
        "lib-name" => false,
        "lib-ver" => true,
        _ => return Err(Wrong::err(format_args!("Unrecognized option '{attribute}'"))),
    };
    if !text.iter().all(u8::is_ascii_graphic) {
        let why = "cannot contain spaces, newlines or special characters.";
        return Err(Wrong::err(format_args!("{attribute} {why}")));
    }
    call.session.client.set_library(is_version, text.clone());
    call.out.ok();
    Ok(())
}

fn reply(call: &mut Call<'_>) -> Result<(), Wrong> {
    let replies = match &*call.word(2) {
        "on" => Replies::On,
        "off" => Replies::Off,
        "skip" if call.session.replies.get() == Replies::Off => Replies::Off,
        "skip" => Replies::SkipNext,
        _ => return Err(Wrong::syntax()),
    };
    call.session.replies.set(replies);
    call.out.ok();
    Ok(())
}

/// Numbers of the clients that are subscribed to something, or of the others.
fn of_kind(call: &Call<'_>, is_subscribed: bool) -> Option<Vec<i64>> {
    let mut clients = call.server.clients().all();
    clients.retain(|client| client.is_subscribed() == is_subscribed);
    Some(clients.iter().map(|client| client.id as i64).collect())
}

fn list(call: &mut Call<'_>) -> Result<(), Wrong> {
    let ids = match (call.args.len(), &*call.word(2)) {
        (2, _) => None,
        (4, "type") => match &*call.word(3) {
            "normal" => of_kind(call, false),
            "pubsub" => of_kind(call, true),
            "master" | "replica" | "slave" => Some(Vec::new()),
            other => return Err(Wrong::err(format_args!("Unknown client type '{other}'"))),
        },
        (4.., "id") => {
            let ids = call.args[3..].iter().map(|id| integer(id).ok_or(Wrong::err("Invalid client ID")));
            Some(ids.collect::<Result<Vec<_>, _>>()?)
        }
        _ => return Err(Wrong::syntax()),
    };
    let now = call.server.env().now();
    let mut text = String::new();
    for client in call.server.clients().all() {
        if ids.as_ref().is_none_or(|ids| ids.contains(&(client.id as i64))) {
            text += &client.line(now);
            text.push('\n');
        }
    }
    call.out.verbatim(&text);
    Ok(())
}

fn kill(call: &mut Call<'_>) -> Result<(), Wrong> {
    let end = |client: &Arc<Client>| match client.id == call.session.client.id {
        // It gets the reply first.
        true => call.session.close(),
        false => client.end.ring(),
    };
    let address = |client: &Client| client.peer.to_string().into_bytes();
    let clients = call.server.clients().all();
    if let [_, _, peer] = call.args {
        let found = clients.iter().find(|client| address(client) == *peer);
        end(found.ok_or(Wrong::err("No such client"))?);
        call.out.ok();
        return Ok(());
    }
    let (mut chosen, mut skips_me) = (clients, true);
    for at in (2..call.args.len()).step_by(2) {
        let value = call.args.get(at + 1).ok_or(Wrong::syntax())?;
        match &*call.word(at) {
            "id" => {
                let id = integer(value).filter(|id| *id > 0);
                let id = id.ok_or(Wrong::err("client-id should be greater than 0"))?;
                chosen.retain(|client| client.id as i64 == id);
            }
            "maxage" => {
                let age = integer(value).filter(|age| *age > 0);
                let age = age.ok_or(Wrong::err("maxage is not an integer or out of range"))?;
                let now = call.server.env().now();
                chosen.retain(|client| client.age(now).as_secs() >= age.unsigned_abs());
            }
            "addr" => chosen.retain(|client| address(client) == *value),
            "laddr" => chosen.retain(|client| client.local.to_string().as_bytes() == value),
            "user" => {
                let user = call.server.users().find(value).ok_or_else(|| {
                    let user = quoted(value, QUOTED_AT_MOST);
                    Wrong::err(format_args!("No such user '{user}'"))
                })?;
                chosen.retain(|client| Arc::ptr_eq(&client.user(), &user));
            }
            "type" => match &*call.word(at + 1) {
                "normal" => chosen.retain(|client| !client.is_subscribed()),
                "pubsub" => chosen.retain(|client| client.is_subscribed()),
                "master" | "replica" | "slave" => chosen.clear(),
                other => return Err(Wrong::err(format_args!("Unknown client type '{other}'"))),
            },
            "skipme" => match &*call.word(at + 1) {
                "yes" => skips_me = true,
                "no" => skips_me = false,
                _ => return Err(Wrong::syntax()),
            },
            _ => return Err(Wrong::syntax()),
        }
    }
    chosen.retain(|client| !skips_me || client.id != call.session.client.id);
    chosen.iter().for_each(end);
    call.out.count(chosen.len());
    Ok(())
}
