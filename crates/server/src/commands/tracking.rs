//! Client-side caching: CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO, and the keys that
//! commands are about to read.

use super::pace::Pace;
use super::table::{Flags, Id, Spec, find};
use super::{Call, QUOTED_AT_MOST, quoted};
use crate::numbers::integer;
use crate::server::{Client, Mode, Overlap, PREFIXES_AT_MOST, Post, Server};
use crate::session::Session;
use crate::wrong::Wrong;
use std::sync::Arc;

/// Ends CLIENT CACHING behind a request, unless it is of CLIENT itself, or begins or is in a
/// transaction, which ends it. The request has run alone (`company`).
pub(super) fn end_caching(session: &Session, args: &[Vec<u8>]) {
    let id = args.first().and_then(|name| find(name)).map(|spec| spec.id);
    if id != Some(Id::Client) && !session.is_in_transaction() {
        session.caching.set(false);
    }
}

/// Returns true if the keys of a command that begins are to be noted. Of a script the keys of its
/// commands are noted.
pub(super) fn notes(spec: &Spec, session: &Session) -> bool {
    spec.flags.has(Flags::READONLY) && !spec.runs_script() && session.is_tracking()
}

/// Notes the keys of a command, before it reads them, so that its client is told of their changes.
pub(super) async fn remember(spec: &Spec, server: &Server, session: &Session, args: &[Vec<u8>]) {
    let mut pace = Pace::default();
    for at in spec.key_positions(args) {
        let (tracking, at_most) = (server.clients().tracking(), server.settings().tracked_keys());
        tracking.remember(&session.client, &args[at], at_most, post(server));
        pace.step().await;
    }
}

fn post(server: &Server) -> Post {
    Post { limit: server.settings().pubsub_limit(), now: server.env().now() }
}

/// Forgets keys until they are no more than the setting says.
pub(super) async fn shrink(server: &Server) {
    let mut pace = Pace::default();
    while server.clients().tracking().shrink(server.settings().tracked_keys(), post(server)) {
        pace.step().await;
    }
}

/// Options of CLIENT TRACKING.
#[derive(Default)]
struct Options {
    mode: Mode,
    redirect: Option<Arc<Client>>,
    prefixes: Vec<Vec<u8>>,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, Wrong> {
        let (mut options, mut at) = (Self::default(), 3);
        while at < call.args.len() {
            let (mode, value) = (options.mode, call.args.get(at + 1));
            match (&*call.word(at), value) {
                ("redirect", Some(_)) if options.redirect.is_some() => {
                    return Err(Wrong::err("A client can only redirect to a single other client"));
                }
                ("redirect", Some(id)) => {
                    let id = integer(id).ok_or(Wrong::err("Invalid client ID"))?;
                    let target = u64::try_from(id).ok().and_then(|id| call.server.clients().find(id));
                    let target =
                        target.ok_or(Wrong::err("The client ID you want redirect to does not exist"))?;
                    (options.redirect, at) = (Some(target), at + 1);
                }
                ("prefix", Some(prefix)) => {
                    options.prefixes.push(prefix.clone());
                    at += 1;
                }
                ("bcast", _) => options.mode = mode.and(Mode::BROADCAST),
                ("optin", _) => options.mode = mode.and(Mode::OPT_IN),
                ("optout", _) => options.mode = mode.and(Mode::OPT_OUT),
                ("noloop", _) => options.mode = mode.and(Mode::NO_LOOP),
                _ => return Err(Wrong::syntax()),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Checks that the options go together, and with those of before.
    fn check(&self, before: Mode) -> Result<(), Wrong> {
        let (new, is_on) = (self.mode, before.has(Mode::ON));
        let differ = |part: Mode| new.has(part) != before.has(part);
        if !self.prefixes.is_empty() && !new.has(Mode::BROADCAST) {
            return Err(Wrong::err("PREFIX option requires BCAST mode to be enabled"));
        }
        if is_on && differ(Mode::BROADCAST) {
            return Err(Wrong::err(
                "You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        if new.has(Mode::BROADCAST) && new.has(Mode::OPT_IN.and(Mode::OPT_OUT)) {
            return Err(Wrong::err("OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if new.has(Mode::OPT_IN) && new.has(Mode::OPT_OUT) {
            return Err(Wrong::err("You can't specify both OPTIN mode and OPTOUT mode"));
        }
        if new.has(Mode::OPT_IN) && before.has(Mode::OPT_OUT)
            || new.has(Mode::OPT_OUT) && before.has(Mode::OPT_IN)
        {
            return Err(Wrong::err(
                "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        Ok(())
    }
}

fn overlaps(Overlap { given, other, is_old }: Overlap) -> Wrong {
    let (given, other) = (quoted(&given, QUOTED_AT_MOST), quoted(&other, QUOTED_AT_MOST));
    let which = if is_old { "an existing" } else { "another provided" };
    Wrong::err(format_args!(
        "Prefix '{given}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not overlap."
    ))
}

pub(super) async fn track(call: &mut Call<'_>) -> Result<(), Wrong> {
    let options = Options::parse(call)?;
    let (client, tracking) = (call.session.client.clone(), call.server.clients().tracking());
    let interests = call.server.store().interests();
    match &*call.word(2) {
        "on" => {
            options.check(client.tracking())?;
            let known = tracking.prefixes(&client);
            if known.len() + options.prefixes.len() > PREFIXES_AT_MOST {
                return Err(Wrong::err(format_args!("a client has {PREFIXES_AT_MOST} prefixes at most")));
            }
            let lengths = known.iter().map(|it| it.len()).chain(options.prefixes.iter().map(Vec::len));
            let bytes: usize = lengths.map(|length| length + size_of::<Vec<u8>>()).sum();
            if bytes > call.server.settings().limits().request {
                return Err(Wrong::err("prefixes exceed client-query-buffer-limit"));
            }
            let Options { mode, redirect, prefixes } = options;
            tracking.enable(&client, mode, redirect, &prefixes, interests).map_err(overlaps)?;
        }
        "off" => tracking.disable(&client, interests),
        _ => return Err(Wrong::syntax()),
    }
    call.session.caching.set(false);
    call.out.ok();
    Ok(())
}

pub(super) fn caching(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mode = call.session.client.tracking();
    let (needed, name) = match &*call.word(2) {
        _ if !mode.has(Mode::OPT_IN.and(Mode::OPT_OUT)) => {
            return Err(Wrong::err(
                "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                 mode enabled",
            ));
        }
        "yes" => (Mode::OPT_IN, "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        "no" => (Mode::OPT_OUT, "CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
        _ => return Err(Wrong::syntax()),
    };
    if !mode.has(needed) {
        return Err(Wrong::err(name));
    }
    call.session.caching.set(true);
    call.out.ok();
    Ok(())
}

/// Number of the client that gets this one's invalidations: 0 for itself, -1 without tracking.
fn redirect(call: &Call<'_>) -> i64 {
    let client = &call.session.client;
    match client.tracking().has(Mode::ON) {
        true => client.tracking_redirect().cast_signed(),
        false => -1,
    }
}

pub(super) fn get_redirect(call: &mut Call<'_>) {
    let redirect = redirect(call);
    call.out.integer(redirect);
}

pub(super) fn info(call: &mut Call<'_>) {
    let (client, redirect) = (call.session.client.clone(), redirect(call));
    let mode = client.tracking();
    let flags = [
        (!mode.has(Mode::ON), "off"),
        (mode.has(Mode::ON), "on"),
        (mode.has(Mode::BROADCAST), "bcast"),
        (mode.has(Mode::OPT_IN), "optin"),
        (mode.has(Mode::OPT_IN) && call.session.caching.get(), "caching-yes"),
        (mode.has(Mode::OPT_OUT), "optout"),
        (mode.has(Mode::OPT_OUT) && call.session.caching.get(), "caching-no"),
        (mode.has(Mode::NO_LOOP), "noloop"),
        (mode.has(Mode::BROKEN), "broken_redirect"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    let prefixes = call.server.clients().tracking().prefixes(&client);
    let out = &mut *call.out;
    out.map(3);
    out.bulk("flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag));
    out.bulk("redirect");
    out.integer(redirect);
    out.bulk("prefixes");
    out.array(prefixes.len());
    prefixes.iter().for_each(|prefix| out.bulk(prefix));
}
