//! EVAL, FCALL and their relatives.
//!
//! A script that may write has the keys that it declares for itself, as a command that writes them,
//! and its writes are committed at its end, also if it has failed: all of it or nothing is there
//! after a crash. One that only reads runs on a snapshot, unless its client tracks keys. A script
//! that uses a key that it has not declared needs all keys: before its first command they are
//! locked in place of the others; later it is abandoned, which undoes it, because nothing of it was
//! committed, and runs again from the beginning with all keys locked. The next runs of such a
//! script begin so.
//!
//! In EXEC a script runs on the access of the transaction, which has all keys locked then.

use super::dispatch::run as run_command;
use super::machines::{Lease, compile, lease};
use super::script_run::{Lent, ScriptRun, Stop, drive};
use super::table::{Flags, Id, Spec};
use super::{Call, commit, watching};
use crate::lua::{Arguments, Job, Library, Outcome, Script, ScriptFlags, sha1_hex};
use crate::numbers::integer_argument;
use crate::resp::Encoder;
use crate::server::Server;
use crate::session::Session;
use crate::store::Key;
use crate::wrong::Wrong;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of a hash in hexadecimal digits.
const SHA: usize = 40;

/// Code that a command runs.
enum Code {
    Script(Arc<Script>),
    Function(Arc<Library>, String),
}

impl Code {
    fn reaches_all(&self) -> &AtomicBool {
        match self {
            Self::Script(script) => &script.reaches_all,
            Self::Function(library, _) => &library.reaches_all,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Script(script) => &script.sha,
            Self::Function(_, name) => name,
        }
    }

    fn job(&self, arguments: Arguments) -> Job {
        match self {
            Self::Script(script) => Job::Script(script.clone(), arguments),
            Self::Function(library, name) => Job::Function(library.clone(), name.clone(), arguments),
        }
    }
}

/// A script with its arguments.
struct Plan {
    code: Code,
    arguments: Arguments,
    /// It may not write, by its flags or by its command.
    is_read_only: bool,
}

impl Plan {
    async fn new(
        spec: &Spec,
        server: &Server,
        waits: bool,
        args: &[Vec<u8>],
        out: &Encoder,
    ) -> Result<Self, Wrong> {
        let is_function = matches!(spec.id, Id::FCall | Id::FCallRo);
        let library = match is_function {
            true => {
                let name = String::from_utf8_lossy(&args[1]).into_owned();
                let library = server.libraries().now().with_function(&name).cloned();
                Some((library.ok_or(Wrong::err("Function not found"))?, name))
            }
            false => None,
        };
        let count = integer_argument(&args[2]);
        let count = match is_function {
            true => count.map_err(|_| Wrong::err("Bad number of keys provided"))?,
            false => count?,
        };
        if count > (args.len() - 3) as i64 {
            return Err(Wrong::err("Number of keys can't be greater than number of args"));
        }
        let count = usize::try_from(count).map_err(|_| Wrong::err("Number of keys can't be negative"))?;
        let code = match library {
            Some((library, name)) => Code::Function(library, name),
            None => Code::Script(script_of(spec, server, waits, args).await?),
        };
        let flags = match &code {
            Code::Script(script) => script.flags,
            Code::Function(library, name) => {
                library.function(name).map_or_else(ScriptFlags::default, |function| function.flags)
            }
        };
        let is_read_command = spec.flags.has(Flags::READONLY);
        if is_read_command && flags.is_declared && !flags.no_writes {
            return Err(Wrong::err("Can not execute a script with write flag using *_ro command."));
        }
        let (keys, others) = args[3..].split_at(count);
        let (keys, others) = (keys.to_vec(), others.to_vec());
        Ok(Self {
            code,
            arguments: Arguments { keys, others, seed: server.store().random(), protocol: out.protocol() },
            is_read_only: is_read_command || flags.no_writes,
        })
    }

    /// Adds the reply of a script that has ended.
    fn reply(outcome: Outcome, out: &mut Encoder) -> Result<(), Wrong> {
        match outcome {
            Outcome::Reply(bytes) => {
                out.encoded(bytes);
                Ok(())
            }
            Outcome::Failed(wrong) => Err(wrong),
            Outcome::Compiled | Outcome::Loaded(_) => Err(Wrong::err("the virtual machine has failed")),
        }
    }
}

/// The script of EVAL or EVALSHA. One that is new is compiled, and kept.
async fn script_of(
    spec: &Spec,
    server: &Server,
    waits: bool,
    args: &[Vec<u8>],
) -> Result<Arc<Script>, Wrong> {
    if matches!(spec.id, Id::EvalSha | Id::EvalShaRo) {
        let sha = String::from_utf8_lossy(&args[1]).to_ascii_lowercase();
        let known = (sha.len() == SHA).then(|| server.scripts().find(&sha)).flatten();
        return known.ok_or(Wrong::new("NOSCRIPT No matching script. Please use EVAL."));
    }
    let sha = sha1_hex(&args[1]);
    match server.scripts().find(&sha) {
        Some(script) => Ok(script),
        None => compile(server, waits, sha, &args[1], false).await,
    }
}

/// Carries out EVAL or a relative outside of a transaction.
pub(super) async fn begin(
    spec: &Spec,
    server: &Server,
    session: &Session,
    args: &[Vec<u8>],
    out: &mut Encoder,
) -> Result<(), Wrong> {
    watching::show(spec, server, session, args);
    let plan = Plan::new(spec, server, true, args, out).await?;
    // Before the locks: those who wait for a machine have none.
    let mut machine = lease(server, true).await?;
    let store = server.store();
    // A snapshot may be older than the moment at which a key is noted for client-side caching.
    if plan.is_read_only && !session.tracks() {
        let mut view = store.view(store.now());
        view.pin();
        let mut run = ScriptRun::new(server, session, Lent::Any(&mut view), true);
        let outcome = start(&plan, server, args, &mut run, &mut machine).await;
        return Plan::reply(outcome.map_err(Stop::wrong)?, out);
    }
    let keys: Vec<Key> = plan.arguments.keys.iter().map(|name| session.key(name)).collect();
    let mut all = plan.code.reaches_all().load(Ordering::Relaxed);
    loop {
        let lent = match all {
            true => Lent::All(store.change_all().await.by(session.client.id)),
            false => Lent::Declared {
                access: store.change(&keys).await.by(session.client.id),
                keys: keys.iter().cloned().collect(),
            },
        };
        let mut run = ScriptRun::new(server, session, lent, plan.is_read_only);
        let outcome = start(&plan, server, args, &mut run, &mut machine).await;
        if matches!(run.lent, Lent::All(_)) {
            plan.code.reaches_all().store(true, Ordering::Relaxed);
        }
        match outcome {
            Ok(outcome) => {
                let published = std::mem::take(&mut run.published);
                if let Some(access) = run.into_access() {
                    commit(server, access).await?;
                }
                publish(server, session, &published).await?;
                return Plan::reply(outcome, out);
            }
            Err(Stop::NeedsAll) => all = true,
            Err(stop) => return Err(stop.wrong()),
        }
    }
}

/// Runs a script once.
async fn start(
    plan: &Plan,
    server: &Server,
    args: &[Vec<u8>],
    run: &mut ScriptRun<'_>,
    machine: &mut Lease,
) -> Result<Outcome, Stop> {
    machine.renew().map_err(Stop::Store)?;
    let is_function = matches!(plan.code, Code::Function(..));
    let name = plan.code.name().to_owned();
    let listed = server.scripts().begin(is_function, name, args.to_vec(), server.env().now());
    drive(machine, plan.code.job(plan.arguments.clone()), run, &listed).await
}

/// Carries out what a script has published, once its writes are there.
async fn publish(server: &Server, session: &Session, published: &[Vec<Vec<u8>>]) -> Result<(), Wrong> {
    for args in published {
        let Some(spec) = super::find(&args[0]) else { continue };
        let mut access = server.store().view(server.store().now());
        let mut unseen = Encoder::default();
        let mut call = Call { args, session, access: &mut access, out: &mut unseen, server };
        run_command(spec.id, &mut call).await?;
    }
    Ok(())
}

/// EVAL or a relative within EXEC, and one that only reads.
///
/// # Errors
/// The script is refused, and has written nothing; or the store has failed.
pub(super) async fn eval(call: &mut Call<'_>) -> Result<(), Wrong> {
    let Some(spec) = super::find(call.args.first().map_or(&[], |name| name)) else { return Ok(()) };
    if !call.session.is_in_exec() {
        watching::show(spec, call.server, call.session, call.args);
    }
    // A transaction has its permit already.
    let waits = !call.session.is_in_exec();
    let plan = Plan::new(spec, call.server, waits, call.args, call.out).await?;
    let mut machine = lease(call.server, waits).await?;
    // All reads of a view see one state.
    call.access.pin();
    let mut run = ScriptRun::new(call.server, call.session, Lent::Any(&mut *call.access), plan.is_read_only);
    let outcome = start(&plan, call.server, call.args, &mut run, &mut machine).await.map_err(Stop::wrong)?;
    let published = std::mem::take(&mut run.published);
    drop(run);
    publish(call.server, call.session, &published).await?;
    if let Err(wrong) = Plan::reply(outcome, call.out) {
        // What it has written before it failed stays.
        call.server.note_errors(&wrong, 1);
        call.out.error(&wrong);
    }
    Ok(())
}
