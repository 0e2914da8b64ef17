//! Commands that wait for an element of a list or a sorted set: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH
//! and BLMPOP; BZPOPMIN, BZPOPMAX and BZMPOP; of a stream: XREAD and XREADGROUP; and WAIT and
//! WAITAOF.
//!
//! A command that finds nothing takes its place in the queues of its keys ([`Waiter`]) before their
//! stripes are unlocked, and is [`Waiting`]. Its connection waits, and [`resume`]s it when a key
//! was written: it tries again under the stripes, and what it takes is one commit. Within EXEC it
//! does not wait.
//!
//! Invariant: nothing is committed for a client that CLIENT UNBLOCK has answered for, or whose
//! connection is known to have ended ([`Client::claim`]).
//!
//! [`Client::claim`]: crate::server::Client::claim

use super::collections::{ManyPop, many_pop};
use super::pace::Pace;
use super::stream_reads::{self, StreamRead};
use super::table::{Id, Spec};
use super::{Call, acl, commit, lists, numbering, tracking, zsets};
use crate::numbers::{integer_argument, milliseconds_argument};
use crate::resp::Encoder;
use crate::server::{AppendSync, Server};
use crate::session::Session;
use crate::store::{Key, Kind, Side, Waiter};
use crate::wrong::Wrong;
use std::time::Duration;

/// Element that a command takes, and the time that it waits for it.
struct Wanted {
    /// Keys of which one gives the element, in the order of the arguments.
    keys: Vec<Key>,
    action: Action,
    /// `None`: forever.
    timeout: Option<Duration>,
    /// It waits if no key has an element.
    waits: bool,
}

enum Action {
    /// Replies with the key and an element.
    Pop(Side),
    /// Moves an element to the end of a list.
    Move { to: Key, taken: Side, given: Side },
    /// Replies with the key and several elements.
    PopMany(Side, u64),
    /// Replies with the key, the member at an end of a sorted set, and its score.
    PopScored(Side),
    /// Replies with the key and several members with their scores.
    PopManyScored(Side, u64),
    /// Replies with entries of several streams.
    Read(StreamRead),
}

impl Action {
    /// Type of the keys that give the element.
    fn kind(&self) -> Kind {
        match self {
            Self::Pop(_) | Self::Move { .. } | Self::PopMany(..) => Kind::List,
            Self::PopScored(_) | Self::PopManyScored(..) => Kind::SortedSet,
            Self::Read(_) => Kind::Stream,
        }
    }

    /// True if what it gets is for no other client.
    fn takes(&self) -> bool {
        if let Self::Read(read) = self { read.takes() } else { true }
    }
}

/// A command that waits. Dropping it leaves the queues of its keys.
pub(crate) struct Waiting {
    wanted: Wanted,
    /// Keys that it writes.
    written: Vec<Key>,
    /// Its keys are noted for client-side caching each time before they are read.
    notes: bool,
    waiter: Waiter,
    /// Environment's monotonic time at which it gives up.
    until: Option<Duration>,
}

impl Waiting {
    /// The place in the queues.
    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// Environment's monotonic time at which it gives up; `None`: never.
    pub(crate) fn until(&self) -> Option<Duration> {
        self.until
    }
}

impl Wanted {
    fn parse(id: Id, args: &[Vec<u8>], session: &Session) -> Result<Self, Wrong> {
        let keys = |of: &[Vec<u8>]| of.iter().map(|name| session.key(name)).collect();
        let last = args.len() - 1;
        let waits = true;
        Ok(match id {
            Id::XRead | Id::XReadGroup => {
                let (read, waits) = StreamRead::parse(args, session, id == Id::XReadGroup)?;
                let keys = read.keys().cloned().collect();
                let timeout = waits.flatten();
                Self { keys, action: Action::Read(read), timeout, waits: waits.is_some() }
            }
            Id::BlMPop => {
                let timeout = timeout(&args[1])?;
                let ManyPop { keys: of, end, most } = many_pop(args, 2, lists::side)?;
                Self { keys: keys(&args[of]), action: Action::PopMany(end, most), timeout, waits }
            }
            Id::BzMPop => {
                let timeout = timeout(&args[1])?;
                let ManyPop { keys: of, end, most } = many_pop(args, 2, zsets::end)?;
                Self { keys: keys(&args[of]), action: Action::PopManyScored(end, most), timeout, waits }
            }
            Id::BlMove | Id::BRPopLPush => {
                let (taken, given) = match id {
                    Id::BlMove => (lists::side(&args[3])?, lists::side(&args[4])?),
                    _ => (Side::Right, Side::Left),
                };
                let action = Action::Move { to: session.key(&args[2]), taken, given };
                Self { keys: keys(&args[1..2]), action, timeout: timeout(&args[last])?, waits }
            }
            _ => {
                let action = match id {
                    Id::BzPopMin => Action::PopScored(Side::Left),
                    Id::BzPopMax => Action::PopScored(Side::Right),
                    Id::BlPop => Action::Pop(Side::Left),
                    _ => Action::Pop(Side::Right),
                };
                Self { keys: keys(&args[1..last]), action, timeout: timeout(&args[last])?, waits }
            }
        })
    }
}

/// Parses a number of seconds; `None` for 0.
fn timeout(argument: &[u8]) -> Result<Option<Duration>, Wrong> {
    let text = std::str::from_utf8(argument).ok();
    let seconds = text.and_then(|text| text.parse::<f64>().ok()).filter(|seconds| !seconds.is_nan());
    let seconds = seconds.ok_or(Wrong::err("timeout is not a float or out of range"))?;
    let millis = (seconds * 1000.0).ceil();
    if millis >= i64::MAX as f64 {
        return Err(Wrong::err("timeout is out of range"));
    }
    if millis < 0.0 {
        return Err(Wrong::err("timeout is negative"));
    }
    Ok((millis > 0.0).then(|| Duration::from_millis(millis as u64)))
}

/// Takes the element, if there is one in `keys`. A key of another type refuses the command unless
/// it has waited.
async fn attempt(
    call: &mut Call<'_>,
    wanted: &mut Wanted,
    keys: &[Key],
    has_waited: bool,
) -> Result<bool, Wrong> {
    if let Action::Read(read) = &mut wanted.action {
        return stream_reads::attempt(call, read, keys, has_waited).await;
    }
    let (wanted_kind, mut pace) = (wanted.action.kind(), Pace::default());
    for key in keys {
        match call.access.kind(key).await? {
            Some(kind) if kind == wanted_kind => {
                take(call, &wanted.action, key).await?;
                return Ok(true);
            }
            Some(_) if !has_waited => return Err(Wrong::wrong_type()),
            Some(_) | None => pace.step().await,
        }
    }
    Ok(false)
}

async fn take(call: &mut Call<'_>, action: &Action, key: &Key) -> Result<(), Wrong> {
    match action {
        Action::Pop(side) => {
            let values = lists::pop_and_tell(call, key, *side, 1).await?;
            call.out.array(2);
            call.out.bulk(&key.name);
            call.out.optional_bulk(values.first());
        }
        Action::Move { to, taken, given } => lists::move_between(call, key, to, *taken, *given).await?,
        Action::PopMany(side, most) => lists::pop_from(call, key, *side, *most).await?,
        Action::PopScored(end) => {
            let popped = zsets::pop_and_tell(call, key, *end, 1).await?;
            let (member, score) = popped.first().ok_or(Wrong::storage("a sorted set without members"))?;
            call.out.array(3);
            call.out.bulk(&key.name);
            call.out.bulk(member);
            call.out.double(*score);
        }
        Action::PopManyScored(end, most) => {
            let popped = zsets::pop_and_tell(call, key, *end, *most).await?;
            zsets::reply_popped(call.out, &key.name, &popped);
        }
        Action::Read(_) => {}
    }
    Ok(())
}

/// The command within EXEC, where it does not wait.
pub(super) async fn at_once(call: &mut Call<'_>) -> Result<(), Wrong> {
    let Some(spec) = super::find(&call.args[0]) else { return Ok(()) };
    let mut wanted = Wanted::parse(spec.id, call.args, call.session)?;
    let keys = wanted.keys.clone();
    if !attempt(call, &mut wanted, &keys, false).await? {
        match spec.id {
            Id::BlMove | Id::BRPopLPush => call.out.null(),
            _ => call.out.null_array(),
        }
    }
    Ok(())
}

/// Carries out a command that may wait. Adds no reply if it waits.
pub(super) async fn begin(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    out: &mut Encoder,
) -> Result<Option<Waiting>, Wrong> {
    let mut wanted = Wanted::parse(spec.id, args, session)?;
    let written = spec.keys(args, session.db());
    let notes = tracking::notes(spec, session);
    if notes {
        tracking::remember(spec, server, session, args).await;
    }
    let store = server.store();
    let mut access = match wanted.waits || wanted.action.takes() {
        true => store.change(&written).await.by(session.client.id),
        false => store.view(store.now()),
    };
    // Those who have waited longer come first.
    let keys = if wanted.waits { access.unclaimed(&wanted.keys) } else { wanted.keys.clone() };
    let mut call = Call { args, session, access: &mut access, out, server };
    let is_done = attempt(&mut call, &mut wanted, &keys, false).await?;
    if is_done || !wanted.waits {
        if !is_done {
            out.null_array();
        }
        commit(server, access).await?;
        return Ok(None);
    }
    let reads = wanted.action.kind() == Kind::Stream;
    let waiter = access.wait_for(&wanted.keys, reads);
    // The consumer of a group that waits is known.
    commit(server, access).await?;
    session.client.block();
    let until = wanted.timeout.map(|timeout| server.env().now().saturating_add(timeout));
    Ok(Some(Waiting { wanted, written, notes, waiter, until }))
}

/// Tries again a command that was signalled. Adds its reply, or returns it to wait on.
pub(crate) async fn resume(
    server: &Server,
    session: &Session,
    mut waiting: Waiting,
    args: &[Vec<u8>],
    out: &mut Encoder,
) -> Option<Waiting> {
    let spec = super::find(&args[0]);
    if let Some(spec) = spec.filter(|_| waiting.notes) {
        tracking::remember(spec, server, session, args).await;
    }
    let mut access = server.store().change(&waiting.written).await.by(session.client.id);
    let signals = waiting.waiter.take();
    // The key that was written first gives the element.
    let wanted = &mut waiting.wanted;
    let is_signalled = |key: &&Key| signals.iter().any(|signal| signal.key == **key);
    let mut keys: Vec<Key> = signals.iter().map(|signal| signal.key.clone()).collect();
    keys.extend(wanted.keys.iter().filter(|key| !is_signalled(key)).cloned());
    let before = out.len();
    let mut call = Call { args, session, access: &mut access, out: &mut *out, server };
    let allowed = match (session.is_unrestricted(), spec) {
        // Its user may have lost the right to it since it began to wait.
        (false, Some(spec)) => acl::check(acl::Moment::Sent, server, session, spec, args).await,
        _ => Ok(()),
    };
    let mut done = match allowed {
        Ok(()) => attempt(&mut call, wanted, &keys, true).await,
        Err(refused) => Err(refused),
    };
    if done.is_err() {
        access.abandon();
    }
    if !matches!(done, Ok(false)) && !session.client.claim() {
        access.abandon();
        out.truncate(before);
        done = Ok(false);
    }
    for signal in &signals {
        // A key that cannot be read is an error for the next waiter.
        let is_there = access.kind(&signal.key).await.map_or(true, |kind| kind.is_some());
        waiting.waiter.pass(signal, is_there);
    }
    let done = match done {
        Ok(false) => return Some(waiting),
        Ok(true) => {
            drop(waiting);
            commit(server, access).await
        }
        Err(wrong) => Err(wrong),
    };
    if let Err(wrong) = done {
        note_failure(server, args, &wrong);
        out.truncate(before);
        out.error(&wrong);
    }
    // Dropped last, so that the writer of the key waits for those that this one has signalled.
    drop(signals);
    None
}

/// Counts a command that has waited and ends with an error.
fn note_failure(server: &Server, args: &[Vec<u8>], wrong: &Wrong) {
    server.note_errors(wrong, 1);
    if let Some(spec) = super::find(&args[0]) {
        server.command_stats().of(numbering::of_request(spec, args)).failed.add(1);
    }
}

/// Ends the wait of a command whose time is over or that CLIENT UNBLOCK has ended. Adds its reply.
pub(crate) fn give_up(
    server: &Server,
    session: &Session,
    waiting: Waiting,
    args: &[Vec<u8>],
    out: &mut Encoder,
) {
    drop(waiting);
    match session.client.unblocked_by_error() {
        true => {
            let wrong = Wrong::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
            note_failure(server, args, &wrong);
            out.error(&wrong);
        }
        false => out.null_array(),
    }
}

/// WAIT: there are no replicas, and none will come, so it answers at once.
pub(super) async fn wait(call: &mut Call<'_>) -> Result<(), Wrong> {
    integer_argument(&call.args[1])?;
    milliseconds_argument(&call.args[2])?;
    call.out.integer(0);
    Ok(())
}

/// WAITAOF: puts all writes on the device if a local copy is asked for.
pub(super) async fn wait_aof(call: &mut Call<'_>) -> Result<(), Wrong> {
    let local = integer_argument(&call.args[1])?;
    if !(0..=1).contains(&local) {
        return Err(Wrong::err("value is out of range, value must between 0 and 1"));
    }
    if integer_argument(&call.args[2])? < 0 {
        return Err(Wrong::not_positive());
    }
    milliseconds_argument(&call.args[3])?;
    let is_synced = call.server.settings().append_sync() == AppendSync::Always;
    if local > 0 && !is_synced {
        call.server.store().sync().await?;
    }
    call.out.array(2);
    call.out.integer((local > 0 || is_synced).into());
    call.out.integer(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_seconds_with_a_fraction() {
        let millis = |text: &str| timeout(text.as_bytes()).map(|it| it.map(|it| it.as_millis()));
        assert_eq!((millis("0"), millis("1.5"), millis("0.0001")), (Ok(None), Ok(Some(1500)), Ok(Some(1))));
        for (text, why) in
            [("x", "not a float"), ("nan", "not a float"), ("-1", "negative"), ("1e30", "out of")]
        {
            assert!(millis(text).is_err_and(|wrong| wrong.text().contains(why)), "{text}");
        }
    }
}
