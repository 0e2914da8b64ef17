//! Check of a request against the rights of its user.

use super::super::table::{Flags, Id, Spec};
use super::super::{QUOTED_AT_MOST, containers, details, numbering, quoted};
use crate::pattern::Pattern;
use crate::server::{Denial, Reason, Rights, Scene, Selector, Server, Uses};
use crate::session::Session;
use crate::wrong::Wrong;

/// Refused part of a request, ordered by the progress of the check: the command, its keys, its
/// channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refused {
    Command,
    /// The argument that is the key.
    Key(usize),
    /// The argument that is the channel.
    Channel(usize),
}

impl Refused {
    /// The sentence for a user, with the key or channel if it may be told.
    pub(super) fn text(self, user: &[u8], spec: &Spec, args: &[Vec<u8>], tells: bool) -> String {
        let user = quoted(user, QUOTED_AT_MOST);
        let argument = |at: usize| quoted(&args[at], QUOTED_AT_MOST);
        match self {
            Self::Command => {
                let name = containers::full_name(spec, args);
                format!("User {user} has no permissions to run the '{name}' command")
            }
            Self::Key(at) if tells => {
                format!("User {user} has no permissions to access the '{}' key", argument(at))
            }
            Self::Channel(at) if tells => {
                format!("User {user} has no permissions to access the '{}' channel", argument(at))
            }
            Self::Key(_) => "No permissions to access a key".to_owned(),
            Self::Channel(_) => "No permissions to access a channel".to_owned(),
        }
    }
}

/// Moment at which a request is checked, which decides the text of its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Moment {
    /// A client has sent it, or it goes on after a wait.
    Sent,
    /// EXEC runs it.
    Exec,
    /// A script calls it.
    Script,
}

/// Checks a request of a client whose user is restricted, and notes a refusal for ACL LOG.
///
/// # Errors
/// The user may not send it, or not any more.
pub(in super::super) async fn check(
    moment: Moment,
    server: &Server,
    session: &Session,
    spec: &Spec,
    args: &[Vec<u8>],
) -> Result<(), Wrong> {
    let Some(text) = refusal_text(server, session, spec, args).await else { return Ok(()) };
    Err(match moment {
        Moment::Sent => Wrong::new(format!("NOPERM {text}")),
        Moment::Exec => Wrong::new(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {text}"
        )),
        Moment::Script => Wrong::err(format_args!("ACL failure in script: {text}")),
    })
}

/// Returns true if the user of a client may send a request. A refusal is not noted.
pub(in super::super) async fn allows(session: &Session, spec: &Spec, args: &[Vec<u8>]) -> bool {
    refused(&session.user().rights(), spec, args).await.is_none()
}

async fn refusal_text(server: &Server, session: &Session, spec: &Spec, args: &[Vec<u8>]) -> Option<String> {
    let user = session.user();
    let refused = refused(&user.rights(), spec, args).await?;
    let name;
    let (reason, object) = match refused {
        Refused::Command => {
            name = containers::full_name(spec, args);
            (Reason::Command, name.as_bytes())
        }
        Refused::Key(at) => (Reason::Key, &args[at][..]),
        Refused::Channel(at) => (Reason::Channel, &args[at][..]),
    };
    note(server, session, reason, object, &user.name);
    Some(refused.text(&user.name, spec, args, false))
}

/// Adds a refusal to ACL LOG.
pub(in super::super) fn note(server: &Server, session: &Session, reason: Reason, object: &[u8], user: &[u8]) {
    let in_transaction = session.is_in_transaction() || session.is_in_exec();
    let place = match in_transaction {
        _ if session.is_script() => Scene::Script,
        true => Scene::Transaction,
        false => Scene::TopLevel,
    };
    let client = session.client.line(server.env().now());
    let denial = Denial::new(reason, place, object, user, &client);
    server.acl_log().add(denial, server.env().unix_time(), server.settings().acl_log_length());
}

/// Returns the part of a request that rights refuse, or `None` if they allow it. If several
/// selectors refuse it, the one that has come furthest says why.
pub(super) async fn refused(rights: &Rights, spec: &Spec, args: &[Vec<u8>]) -> Option<Refused> {
    let mut most = Refused::Command;
    for selector in rights.each_selector() {
        most = most.max(refused_by(selector, spec, args).await?);
    }
    Some(most)
}

async fn refused_by(selector: &Selector, spec: &Spec, args: &[Vec<u8>]) -> Option<Refused> {
    if !spec.flags.has(Flags::NO_AUTH) && !runs(selector, spec, args) {
        return Some(Refused::Command);
    }
    // A shard channel is named where a key would be, and is none.
    if !selector.all_keys && !spec.flags.has(Flags::PUBSUB) {
        for (number, at) in spec.key_positions(args).into_iter().enumerate() {
            if !has_key(selector, &args[at], details::uses(spec, args, number)).await {
                return Some(Refused::Key(at));
            }
        }
    }
    if !selector.all_channels {
        let (channels, is_pattern) = match spec.id {
            Id::Publish | Id::SPublish => (1..2, false),
            Id::Subscribe | Id::SSubscribe => (1..args.len(), false),
            Id::PSubscribe => (1..args.len(), true),
            _ => (0..0, false),
        };
        for at in channels {
            if !has_channel(&selector.channels, &args[at], is_pattern).await {
                return Some(Refused::Channel(at));
            }
        }
    }
    None
}

fn runs(selector: &Selector, spec: &Spec, args: &[Vec<u8>]) -> bool {
    let number = numbering::of_request(spec, args);
    selector.commands.has(number)
        || selector.first_arguments.get(&number).is_some_and(|allowed| {
            args.get(1).is_some_and(|given| allowed.iter().any(|it| given.eq_ignore_ascii_case(it)))
        })
}

async fn has_key(selector: &Selector, key: &[u8], needed: Uses) -> bool {
    for (uses, pattern) in &selector.keys {
        if uses.covers(needed) && matches(pattern, key).await {
            return true;
        }
    }
    false
}

/// True if one of the patterns matches a channel, or is the pattern that is subscribed to.
pub(super) async fn has_channel(patterns: &[Vec<u8>], channel: &[u8], is_pattern: bool) -> bool {
    for pattern in patterns {
        if is_pattern && pattern == channel || !is_pattern && matches(pattern, channel).await {
            return true;
        }
    }
    false
}

async fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match Pattern::new(pattern) {
        Ok(mut pattern) => pattern.matches(text).await,
        Err(_) => false, // no rule has it, because it is too long
    }
}

/// True if a client may send a request, and may read every key besides.
pub(in super::super) async fn may_read_all(session: &Session, spec: &Spec, args: &[Vec<u8>]) -> bool {
    if session.is_unrestricted() {
        return true;
    }
    for selector in session.user().rights().each_selector() {
        let is_every = |(uses, pattern): &(Uses, Vec<u8>)| uses.reads && pattern == b"*";
        let reads_all = selector.all_keys || selector.keys.iter().any(is_every);
        if reads_all && refused_by(selector, spec, args).await.is_none() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::super::find;
    use super::super::super::tests::words;
    use super::super::rules::{apply, joined};
    use super::*;
    use karstdb::io::{Env, block_on};

    fn check(rules: &str, line: &str) -> Option<Refused> {
        let (mut rights, rules, args) = (Rights::new(false), words(rules), words(line));
        for rule in joined(&rules).unwrap() {
            apply(&mut rights, &rule, false).unwrap();
        }
        block_on(&Env::posix(), refused(&rights, find(&args[0]).unwrap(), &args))
    }

    #[test]
    fn a_request_needs_its_command_its_keys_and_its_channels() {
        let cases = [
            ("", "ping", Some(Refused::Command)),
            ("", "auth me pw", None),
            ("+ping", "ping", None),
            ("+get", "get a", Some(Refused::Key(1))),
            ("+get ~a*", "get abc", None),
            ("+mget ~a*", "mget a b", Some(Refused::Key(2))),
            ("+mget ~a (+mget ~a ~b)", "mget b c", Some(Refused::Key(2))),
            ("+set %R~a", "set a 1", Some(Refused::Key(1))),
            ("+set %W~a", "set a 1", None),
            ("+set %W~a", "set a get", None),
            ("+set %W~a", "set a 1 GET", Some(Refused::Key(1))),
            ("+bitfield %R~a", "bitfield a get u4 0", None),
            ("+bitfield %R~a", "bitfield a get u4 0 set u4 0 1", Some(Refused::Key(1))),
            ("+bitfield %W~a", "bitfield a set u4 0 1", Some(Refused::Key(1))),
            ("+copy %R~a %W~b", "copy a b", None),
            ("+copy %R~a %W~b", "copy b a", Some(Refused::Key(1))),
            ("(+copy %R~a) (+copy %W~b)", "copy a b", Some(Refused::Key(2))),
            ("+touch %W~a", "touch a", None),
            ("+sort %R~a %W~b", "sort a store b", None),
            ("+sort %R~a %W~b", "sort a store a", Some(Refused::Key(3))),
            ("+config|get", "config set a b", Some(Refused::Command)),
            ("+config|get", "config get a", None),
            ("+select|0", "select 0", None),
            ("+select|0", "select 1", Some(Refused::Command)),
            ("+@pubsub &a*", "publish abc x", None),
            ("+@pubsub &a*", "publish b x", Some(Refused::Channel(1))),
            ("+@pubsub &a*", "subscribe a b", Some(Refused::Channel(2))),
            ("+@pubsub &a*", "psubscribe a*", None),
            ("+@pubsub &a*", "psubscribe ab*", Some(Refused::Channel(1))),
            ("+@pubsub", "unsubscribe b", None),
            ("+@pubsub &a*", "ssubscribe b", Some(Refused::Channel(1))),
            ("+@pubsub &a*", "spublish a x", None),
        ];
        for (rules, line, refused) in cases {
            assert_eq!(check(rules, line), refused, "{rules}: {line}");
        }
    }
}
