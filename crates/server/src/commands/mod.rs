//! The table of commands, and how one is carried out.
//!
//! In: a request of a session. Out: one reply in its [`Encoder`]. [`execute`] finds the command,
//! checks what is the same for all (arity, authentication, a transaction that queues it), takes the
//! [`Access`] that the command's flags ask for, runs the handler, and commits.
//!
//! Invariant of handlers: one that refuses has written nothing, because EXEC goes on and commits
//! what the other commands have written. One that fails because the store does
//! ([`Wrong::is_of_store`]) may have written a part; all that was to be committed with it is
//! abandoned, and has the error as its reply. One that returns `Ok` has added exactly one reply.
//!
//! A new command is a row of the table and a handler in the file of its group.

mod absent;
mod acl;
mod bits;
mod blocking;
mod categories;
mod collections;
mod connection;
mod containers;
mod details;
mod dispatch;
mod docs;
mod dump;
mod dump_streams;
mod encoding;
mod exec;
mod field_expiry;
mod functions;
mod geo;
mod gets;
mod hashes;
mod hyperloglogs;
mod keys;
mod lcs;
mod lists;
mod machines;
mod memory;
mod metrics;
mod numbering;
mod operation;
mod pace;
mod pubsub;
pub(crate) mod restoring;
mod script_run;
mod scripting;
mod server;
mod sets;
mod sort;
mod statistics;
mod stream_groups;
mod stream_info;
mod stream_reads;
mod streams;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod tips;
mod tracking;
mod transactions;
mod watching;
mod zset_algebra;
mod zset_ranges;
mod zsets;

use crate::resp::{Encoder, Protocol, Request};
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::store::{Access, Classes, Key, Kind};
use crate::wrong::Wrong;
pub(crate) use blocking::{Waiting, give_up, resume};
use dispatch::run;
pub(crate) use gets::{execute_gets, gets};
use karstdb::io::report;
use pace::{KEYS_AT_ONCE, Pace};
use std::ops::Range;
use table::{Flags, Id, Spec, find};

/// Maximum number of bytes of a client's text that an error reply quotes, as Redis has it.
const QUOTED_AT_MOST: usize = 128;
/// Bytes of writes of neighbours in a pipeline after which they are committed.
const COMMITTED_AT_ONCE: usize = 1 << 20;

/// Maximum number of bytes that one commit writes.
const WRITES_AT_MOST: usize = 1 << 30;

/// A command that is carried out, for its handler.
pub(crate) struct Call<'a> {
    /// Name and arguments, as many as the table's arity says.
    pub(crate) args: &'a [Vec<u8>],
    /// The client.
    pub(crate) session: &'a Session,
    /// Reads and writes.
    pub(crate) access: &'a mut Access,
    /// Output that gets the reply.
    pub(crate) out: &'a mut Encoder,
    /// The server.
    pub(crate) server: &'a Server,
}

impl Call<'_> {
    /// The key that an argument names.
    pub(crate) fn key(&self, at: usize) -> Key {
        self.session.key(&self.args[at])
    }

    /// The keys that a range of arguments names.
    pub(crate) fn keys(&self, of: Range<usize>) -> Vec<Key> {
        self.args[of].iter().map(|name| self.session.key(name)).collect()
    }

    /// The types of the keys that a range of arguments names, as of one moment.
    pub(crate) async fn kinds(&self, of: Range<usize>) -> Result<Vec<Option<Kind>>, Wrong> {
        self.pin_if_many(of.len());
        let (mut kinds, mut pace) = (Vec::new(), Pace::default());
        for names in self.args[of].chunks(KEYS_AT_ONCE) {
            let keys: Vec<Key> = names.iter().map(|name| self.session.key(name)).collect();
            kinds.extend(self.access.kinds(&keys).await?);
            pace.steps(keys.len()).await;
        }
        Ok(kinds)
    }

    /// Has all reads see one state if `keys` are too many to be read at the same time.
    pub(crate) fn pin_if_many(&self, keys: usize) {
        if keys > KEYS_AT_ONCE {
            self.access.pin();
        }
    }

    /// Adds an event of a key to the commit, if `notify-keyspace-events` has its class.
    pub(crate) fn event(&mut self, class: Classes, name: &'static str, key: &Key) {
        self.access.event(class, name, key);
    }

    /// True if an argument is this word, in any case.
    pub(crate) fn is(&self, at: usize, word: &str) -> bool {
        self.args.get(at).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// An argument in lower case, for a `match`; bytes that are no ASCII match nothing.
    pub(crate) fn word(&self, at: usize) -> String {
        self.args.get(at).map(|argument| lower(argument)).unwrap_or_default()
    }
}

/// Closes the connection of a session that would hold more bytes between its commands than a
/// request may have, and drops what the session holds. Returns the reply.
fn held_too_much(session: &Session) -> Wrong {
    session.transaction.take();
    session.unwatch();
    session.close();
    Wrong::err("queued commands and watched keys exceed client-query-buffer-limit")
}

/// Text of bytes in lower case.
fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

/// The first bytes of a client's text, for an error reply.
fn quoted(bytes: &[u8], at_most: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(at_most)]).into_owned()
}

/// Relation of a request to its neighbours in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// It only reads, and may run at the same time as others that do.
    Readers,
    /// It writes keys that it names, and may be committed together with others that do.
    Writers,
    /// It runs alone: it changes its session, is queued or refused, or is for any key.
    Alone,
}

/// Returns what a request needs.
pub(crate) fn company(request: &[Vec<u8>], session: &Session) -> Company {
    // CLIENT CACHING is for the next request, and not for its neighbours.
    if session.replies.get() != Replies::On || session.is_in_transaction() || session.caching.get() {
        return Company::Alone;
    }
    match resolve(request, session) {
        Ok(spec) if spec.flags.has(Flags::BLOCKING) => Company::Alone,
        Ok(spec) if spec.flags.has(Flags::READONLY) => Company::Readers,
        Ok(spec) if spec.flags.has(Flags::WRITE) && !spec.reaches_any(request) => Company::Writers,
        Ok(_) | Err(_) => Company::Alone,
    }
}

/// True if a request waits while CLIENT PAUSE keeps clients from writing.
pub(crate) fn may_write(request: &[Vec<u8>], session: &Session) -> bool {
    let writes = |spec: &Spec| {
        spec.flags.has(Flags::WRITE) || spec.runs_writer() || matches!(spec.id, Id::Publish | Id::SPublish)
    };
    let of = |args: &[Vec<u8>]| args.first().and_then(|name| find(name));
    match of(request) {
        Some(spec) if spec.id == Id::Exec => {
            let transaction = session.transaction.borrow();
            let mut queued = transaction.iter().flat_map(|transaction| &transaction.queued);
            queued.any(|args| of(args).is_some_and(writes))
        }
        found => found.is_some_and(writes),
    }
}

/// Carries out requests whose company is [`Company::Writers`], one after the other, and commits
/// what they have written together, in parts of about [`COMMITTED_AT_ONCE`]. Adds the reply of
/// each. If the store fails, the error is the reply of all whose writes are lost by it.
pub(crate) async fn execute_writers(
    server: &Server,
    session: &Session,
    requests: &[Request],
    out: &mut Encoder,
) {
    let mut resolved: Vec<(&Spec, &Request, Result<(), Wrong>)> = Vec::with_capacity(requests.len());
    for args in requests {
        let Ok(spec) = resolve(args, session) else { continue };
        let allowed = match session.is_unrestricted() {
            true => Ok(()),
            false => Box::pin(acl::check(acl::Moment::Sent, server, session, spec, args)).await,
        };
        resolved.push((spec, args, allowed));
    }
    let writing = resolved.iter().filter(|(.., allowed)| allowed.is_ok());
    let keys: Vec<Key> = writing.flat_map(|(spec, args, _)| spec.keys(args, session.db())).collect();
    let mut access = server.store().change(&keys).await.by(session.client.id);
    if access.are_awaited(&keys) {
        // Those who wait for one of the keys are served before the next command.
        drop(access);
        for (spec, args, allowed) in resolved {
            server.stats().commands.add(1);
            let before = out.len();
            let done = match allowed {
                Ok(()) => perform_now(spec, server, session, args, out).await.map(drop),
                Err(refused) => {
                    reject(server, spec, args);
                    Err(refused)
                }
            };
            if let Err(wrong) = done {
                fail(server, out, before, 1, Some(wrong));
            }
        }
        return;
    }
    if keys.len() > 1 {
        // One round trip, instead of one for each command.
        access.prefetch(&keys[..keys.len().min(KEYS_AT_ONCE)]).await;
    }
    // Beginning and number of the replies of what is not committed.
    let (mut begin, mut replies) = (out.len(), 0);
    for (spec, args, allowed) in resolved {
        server.stats().commands.add(1);
        let (begun, before) = (server.env().now(), out.len());
        session.client.note_command(numbering::name_of(spec, args), begun);
        replies += 1;
        if let Err(refused) = allowed {
            reject(server, spec, args);
            server.note_errors(&refused, 1);
            out.error(&refused);
            continue;
        }
        let mut call = Call { args, session, access: &mut access, out: &mut *out, server };
        let done = run(spec.id, &mut call).await;
        watching::note(spec, server, session, args, begun, &done);
        let lost = match done {
            Ok(()) if access.pending() < COMMITTED_AT_ONCE => continue,
            Ok(()) => access.commit(server.settings().durability()).await.err(),
            Err(wrong) if wrong.is_of_store() => {
                access.abandon();
                Some(wrong)
            }
            Err(wrong) => {
                server.note_errors(&wrong, 1);
                out.truncate(before);
                out.error(&wrong);
                continue;
            }
        };
        fail(server, out, begin, replies, lost);
        (begin, replies) = (out.len(), 0);
    }
    let lost = commit(server, access).await.err();
    fail(server, out, begin, replies, lost);
}

/// Commits, unlocks the keys, and waits until those who waited for them have taken what they could.
///
/// # Errors
/// Those of [`Access::commit`].
async fn commit(server: &Server, mut access: Access) -> Result<(), Wrong> {
    let committed = access.commit(server.settings().durability()).await;
    access.unlock().wait().await;
    committed
}

/// Puts an error, if there is one, in place of the last `replies`, which begin at `begin`.
fn fail(server: &Server, out: &mut Encoder, begin: usize, replies: u64, lost: Option<Wrong>) {
    if let Some(wrong) = lost {
        server.note_errors(&wrong, replies);
        out.truncate(begin);
        (0..replies).for_each(|_| out.error(&wrong));
    }
}

/// Carries out a request, and adds its reply, except to one of HTTP. A transaction that queues the
/// request takes its arguments. A command that has to wait is returned, and has no reply yet.
pub(crate) async fn execute(
    server: &Server,
    session: &Session,
    args: &mut Request,
    out: &mut Encoder,
) -> Option<Waiting> {
    if is_of_http(&args[0]) {
        report!(warn, peer = %session.client.peer, "a client speaks HTTP; its connection is closed");
        session.close();
        return None;
    }
    let before = out.len();
    server.stats().commands.add(1);
    let done = perform(server, session, args, out).await;
    if session.caching.get() {
        tracking::end_caching(session, args);
    }
    match done {
        Ok(waiting) => waiting,
        Err(wrong) => {
            fail(server, out, before, 1, Some(wrong));
            None
        }
    }
}

async fn perform(
    server: &Server,
    session: &Session,
    args: &mut Request,
    out: &mut Encoder,
) -> Result<Option<Waiting>, Wrong> {
    let spec = allowed(server, session, args).await.inspect_err(|_| session.refuse_transaction())?;
    if server.scripts().is_busy() && !is_allowed_while_busy(spec, args) {
        server.scripts().check_busy().map_err(|busy| refuse_while_busy(spec, session, &busy))?;
    }
    if session.is_in_transaction() && spec.id != Id::Exec && !spec.flags.has(Flags::AT_ONCE) {
        session.client.note_command(numbering::name_of(spec, args), server.env().now());
        return exec::queue(spec, server, session, args, out).map(|()| None);
    }
    perform_now(spec, server, session, args, out).await
}

/// Finds a request's command, and checks that it may be sent.
async fn allowed(server: &Server, session: &Session, args: &Request) -> Result<&'static Spec, Wrong> {
    let checked = match resolve(args, session) {
        Ok(spec) if session.is_unrestricted() => Ok(spec),
        Ok(spec) => Box::pin(acl::check(acl::Moment::Sent, server, session, spec, args)).await.map(|()| spec),
        Err(wrong) => Err(wrong),
    };
    checked.inspect_err(|_| {
        if let Some(spec) = find(&args[0]) {
            reject(server, spec, args);
        }
    })
}

/// Counts a command that is refused before it runs.
fn reject(server: &Server, spec: &Spec, args: &[Vec<u8>]) {
    server.command_stats().of(numbering::of_request(spec, args)).rejected.add(1);
}

/// True for commands that are carried out while a script runs for too long.
fn is_allowed_while_busy(spec: &Spec, args: &[Vec<u8>]) -> bool {
    let is_sub = |name: &str| args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    match spec.id {
        Id::Auth | Id::Discard | Id::Hello | Id::Multi | Id::Quit => true,
        Id::Reset | Id::Shutdown | Id::Unwatch | Id::Watch => true,
        Id::Script => is_sub("kill"),
        Id::Function => is_sub("kill") || is_sub("stats"),
        _ => false,
    }
}

/// The error of a command that is refused while a script runs for too long.
fn refuse_while_busy(spec: &Spec, session: &Session, busy: &Wrong) -> Wrong {
    if spec.id != Id::Exec || !session.is_in_transaction() {
        session.refuse_transaction();
        return busy.clone();
    }
    session.transaction.take();
    session.unwatch();
    Wrong::new(format!("EXECABORT Transaction discarded because of: {busy}"))
}

/// Carries out a command that no transaction queues.
async fn perform_now(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    out: &mut Encoder,
) -> Result<Option<Waiting>, Wrong> {
    let begun = server.env().now();
    session.client.note_command(numbering::name_of(spec, args), begun);
    let done = if spec.id == Id::Exec && session.is_in_transaction() {
        exec::exec(server, session, out).await.map(|()| None)
    } else if spec.runs_writer() || spec.runs_script() && session.tracks() {
        scripting::begin(spec, server, session, args, out).await.map(|()| None)
    } else if spec.flags.has(Flags::BLOCKING) {
        blocking::begin(spec, server, session, args, out).await
    } else {
        run_and_commit(spec, server, session, args, out).await.map(|()| None)
    };
    watching::note(spec, server, session, args, begun, &done);
    done
}

async fn run_and_commit(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    out: &mut Encoder,
) -> Result<(), Wrong> {
    if tracking::notes(spec, session) {
        tracking::remember(spec, server, session, args).await;
    }
    let access = match spec.flags.has(Flags::WRITE) {
        false => server.store().view(server.store().now()),
        true if spec.reaches_any(args) => server.store().change_all().await,
        true => server.store().change(&spec.keys(args, session.db())).await,
    };
    let mut access = access.by(session.client.id);
    let mut call = Call { args, session, access: &mut access, out, server };
    match spec.runs_script() {
        true => scripting::eval(&mut call).await?,
        false => run(spec.id, &mut call).await?,
    }
    if spec.flags.has(Flags::WRITE) {
        return commit(server, access).await;
    }
    // A view has nothing to commit.
    if access.are_asked(Classes::MISS) {
        access.tell_misses().await;
    }
    Ok(())
}

/// True for the words with which HTTP begins a request and a field of each request. A web page can
/// have a browser send such a request here, with commands in what follows: none of them is carried
/// out.
fn is_of_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Finds a request's command, and checks what the command is not needed for.
fn resolve(args: &[Vec<u8>], session: &Session) -> Result<&'static Spec, Wrong> {
    let spec = find(&args[0]).ok_or_else(|| unknown(args))?;
    if !spec.takes(args.len()) {
        return Err(Wrong::arity(spec.name));
    }
    if !session.is_authenticated() && !spec.flags.has(Flags::NO_AUTH) {
        return Err(Wrong::no_auth());
    }
    containers::check(spec, args)?;
    if session.client.is_subscribed()
        && session.protocol() == Protocol::Two
        && !pubsub::is_allowed_while_subscribed(spec.id)
    {
        return Err(Wrong::err(format_args!(
            "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            containers::full_name(spec, args)
        )));
    }
    Ok(spec)
}

fn unknown(args: &[Vec<u8>]) -> Wrong {
    let mut beginning = String::new();
    for argument in &args[1..] {
        if beginning.len() >= QUOTED_AT_MOST {
            break;
        }
        beginning += &format!("'{}' ", quoted(argument, QUOTED_AT_MOST - beginning.len()));
    }
    let name = quoted(&args[0], QUOTED_AT_MOST);
    Wrong::err(format_args!("unknown command '{name}', with args beginning with: {beginning}"))
}
