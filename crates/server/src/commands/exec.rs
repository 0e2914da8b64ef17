//! The queue of a transaction, and EXEC.
//!
//! EXEC has the keys of all its commands and of WATCH for itself, sees that no watched key was
//! touched, runs the commands on one access, and commits what all of them have written: others see
//! all of it or nothing, and so does a restart after a crash. Without a command that writes, the
//! commands run on a snapshot from the moment of that look at the watched keys.

use super::dispatch::run;
use super::pace::Pace;
use super::table::{Flags, Id, Spec, database, find};
use super::{Call, WRITES_AT_MOST, acl, held_too_much, scripting, tracking, watching};
use crate::resp::{Encoder, Request};
use crate::server::{Mode, Server};
use crate::session::{Session, Transaction};
use crate::store::Access;
use crate::wrong::Wrong;

/// Maximum number of bytes that one transaction writes. Tests have a smaller one.
const PENDING_AT_MOST: usize = if cfg!(test) { 4 << 20 } else { WRITES_AT_MOST };

/// Queues a request between MULTI and EXEC.
///
/// # Errors
/// It is not allowed there; EXEC will refuse the transaction. Or the transaction has more bytes
/// than a request may have; the connection is closed, as Redis does.
pub(super) fn queue(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &mut Request,
    out: &mut Encoder,
) -> Result<(), Wrong> {
    if spec.id == Id::Shutdown {
        session.refuse_transaction();
        return Err(Wrong::err("Command not allowed inside a transaction"));
    }
    if !session.hold(args, server.settings().limits().request) {
        return Err(held_too_much(session));
    }
    if let Some(transaction) = session.transaction.borrow_mut().as_mut() {
        transaction.queued.push(std::mem::take(args));
    }
    out.simple("QUEUED");
    Ok(())
}

/// EXEC of a session that has a transaction.
pub(super) async fn exec(server: &Server, session: &Session, out: &mut Encoder) -> Result<(), Wrong> {
    let Transaction { queued, is_refused } = session.transaction.take().unwrap_or_default();
    let watched = session.watched.take();
    if is_refused {
        return Err(Wrong::exec_abort());
    }
    let commands = || queued.iter().filter_map(|args| Some((find(&args[0])?, args)));
    let (mut keys, mut reaches_any, mut writes) = (Vec::new(), false, false);
    let mut db = session.db();
    for (spec, args) in commands() {
        writes |= spec.flags.has(Flags::WRITE) || spec.runs_writer();
        reaches_any |= spec.reaches_any(args) || spec.runs_script();
        keys.extend(spec.keys(args, db));
        // The keys of later commands are of the database that this one chooses, if it will.
        if spec.id == Id::Select {
            db = database(&args[1], server.store().databases()).unwrap_or(db);
        }
    }
    // A transaction may begin to track.
    let may_track =
        session.client.tracking().has(Mode::ON) || commands().any(|(spec, _)| spec.id == Id::Client);
    let store = server.store();
    // Before the locks: those who wait for a machine have none. It is for all scripts of the
    // transaction, which run one after the other.
    let _permit = match commands().any(|(spec, _)| spec.needs_machine()) {
        true => Some(server.scripts().permit().await),
        false => None,
    };
    let mut access = match writes {
        true if reaches_any => store.change_all().await,
        true => {
            keys.extend(watched.keys().cloned());
            store.change(&keys).await
        }
        // The keys of a script may be any.
        false if may_track && reaches_any => store.change_all().await,
        false => {
            keys.retain(|_| may_track);
            keys.extend(watched.keys().cloned());
            store.change(&keys).await
        }
    };
    if watched.values().any(|watch| watch.is_touched(access.now())) {
        out.null_array();
        return Ok(());
    }
    access = access.by(session.client.id);
    // Kept while keys are noted, because others would not know yet that this state was read.
    let mut locked = None;
    if !writes {
        let view = store.view(access.now());
        // Before the watched keys are unlocked, so that their state is the one looked at.
        view.pin();
        let locks = std::mem::replace(&mut access, view);
        locked = may_track.then_some(locks);
    }
    let (begin, chosen) = (out.len(), session.db());
    session.set_in_exec(true);
    let done = run_all(server, session, &queued, &mut access, out).await;
    session.set_in_exec(false);
    drop(locked);
    access.unlock().wait().await;
    if done.is_err() {
        // Nothing of it has happened.
        out.truncate(begin);
        session.select(chosen);
    }
    done
}

/// Runs the commands, and commits. Adds the reply.
///
/// # Errors
/// The store has failed, or the limit is exceeded; nothing was committed.
async fn run_all(
    server: &Server,
    session: &Session,
    queued: &[Request],
    access: &mut Access,
    out: &mut Encoder,
) -> Result<(), Wrong> {
    out.array(queued.len());
    let mut pace = Pace::default();
    for args in queued {
        let Some(spec) = find(&args[0]) else { continue };
        let before = out.len();
        let begun = server.env().now();
        let allowed = match session.is_unrestricted() {
            true => Ok(()),
            false => acl::check(acl::Moment::Exec, server, session, spec, args).await,
        };
        if allowed.is_ok() && tracking::notes(spec, session) {
            tracking::remember(spec, server, session, args).await;
        }
        let mut call = Call { args, session, access: &mut *access, out: &mut *out, server };
        let done = match allowed {
            Ok(()) if spec.runs_script() => scripting::eval(&mut call).await,
            Ok(()) => run(spec.id, &mut call).await,
            refused => refused,
        };
        watching::note_queued(spec, server, session, args, begun, &done);
        match done {
            Ok(()) => {}
            Err(wrong) if wrong.is_of_store() => return Err(wrong),
            Err(wrong) => {
                server.note_errors(&wrong, 1);
                out.truncate(before);
                out.error(&wrong);
            }
        }
        if access.pending() > PENDING_AT_MOST {
            return Err(Wrong::err("the transaction writes more than 1 GiB"));
        }
        pace.step().await;
    }
    access.commit(server.settings().durability()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_runs_no_command_of_its_own_kind() {
        for name in ["multi", "exec", "discard", "watch"] {
            assert!(find(name.as_bytes()).is_some_and(|spec| spec.flags.has(Flags::AT_ONCE)), "{name}");
        }
    }
}
