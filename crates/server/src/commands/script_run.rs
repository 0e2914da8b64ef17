//! A script that runs, and the commands that it calls.

use super::dispatch::run as run_command;
use super::machines::Lease;
use super::pace::Pace;
use super::table::{Flags, Id, find};
use super::{Call, WRITES_AT_MOST, acl, containers, tracking, watching};
use crate::lua::{Input, Job, Outcome, Output};
use crate::resp::{Encoder, Protocol};
use crate::server::{Listed, Server, Space};
use crate::session::Session;
use crate::store::{Access, Key};
use crate::wrong::Wrong;
use karstdb::io::{sleep, yield_now};
use std::collections::BTreeSet;
use std::time::Duration;

/// Pauses of a script after which time passes for others.
const PAUSES: usize = 64;
const PAUSE: Duration = Duration::from_micros(100);

/// The access of a script, and the keys that it may use.
pub(super) enum Lent<'a> {
    /// Any key: of a view, or of a transaction that has locked all.
    Any(&'a mut Access),
    /// These keys.
    Declared { access: Access, keys: BTreeSet<Key> },
    /// Any key: all are locked.
    All(Access),
    /// The access is being exchanged.
    None,
}

/// Why a script was ended from outside. Nothing of it is to be committed.
pub(super) enum Stop {
    /// It has used a key that it had not declared, after others.
    NeedsAll,
    /// The store has failed, or a limit is exceeded.
    Store(Wrong),
}

impl Stop {
    /// The error reply.
    pub(super) fn wrong(self) -> Wrong {
        match self {
            Self::NeedsAll => Wrong::storage("a script needs keys that it has not declared"),
            Self::Store(wrong) => Wrong::storage(wrong.text().strip_prefix("ERR ").unwrap_or(wrong.text())),
        }
    }
}

/// A script that runs.
pub(super) struct ScriptRun<'a> {
    server: &'a Server,
    session: Session,
    pub(super) lent: Lent<'a>,
    is_read_only: bool,
    /// A command has read or written.
    has_begun: bool,
    /// Commands that publish, for after the commit.
    pub(super) published: Vec<Vec<Vec<u8>>>,
    published_bytes: usize,
    stop: Option<Stop>,
    pauses: usize,
    pace: Pace,
}

impl<'a> ScriptRun<'a> {
    pub(super) fn new(server: &'a Server, of_client: &Session, lent: Lent<'a>, is_read_only: bool) -> Self {
        Self {
            server,
            session: of_client.of_script(),
            lent,
            is_read_only,
            has_begun: false,
            published: Vec::new(),
            published_bytes: 0,
            stop: None,
            pauses: 0,
            pace: Pace::default(),
        }
    }

    /// The access, if it is the script's own.
    pub(super) fn into_access(self) -> Option<Access> {
        match self.lent {
            Lent::Declared { access, .. } | Lent::All(access) => Some(access),
            Lent::Any(_) | Lent::None => None,
        }
    }

    /// Lets others run. Returns what the script goes on with.
    async fn pause(&mut self, listed: &Listed<'_>) -> Input {
        self.pauses += 1;
        match self.pauses.is_multiple_of(PAUSES) {
            true => sleep(self.server.env(), PAUSE).await,
            false => yield_now().await,
        }
        self.look(listed).map_or(Input::GoOn, Input::Kill)
    }

    /// Looks at the time. Returns why the script is to be ended, if it is.
    fn look(&mut self, listed: &Listed<'_>) -> Option<&'static str> {
        let elapsed = self.server.env().now().saturating_sub(listed.script.since);
        if self.server.settings().script_time().is_some_and(|most| elapsed >= most) {
            listed.set_slow();
        }
        if listed.script.is_killed() {
            return Some("ERR Script killed by user with SCRIPT KILL...");
        }
        if self.server.is_stopping() && listed.script.is_slow() {
            self.stop = Some(Stop::Store(Wrong::err("the server stops")));
            return Some("ERR the server stops");
        }
        None
    }

    /// Carries out a command, and returns the bytes of its reply.
    async fn call(
        &mut self,
        args: &[Vec<u8>],
        protocol: Protocol,
        listed: &Listed<'_>,
    ) -> Result<Vec<u8>, Stop> {
        self.pace.step().await;
        let mut out = Encoder::new(protocol);
        if let Err(wrong) = self.perform(args, &mut out, listed).await? {
            self.server.note_errors(&wrong, 1);
            out.truncate(0);
            out.error(&wrong);
        }
        Ok(out.take())
    }

    async fn perform(
        &mut self,
        args: &[Vec<u8>],
        out: &mut Encoder,
        listed: &Listed<'_>,
    ) -> Result<Result<(), Wrong>, Stop> {
        let refused = |text: &str| Ok(Err(Wrong::err(text)));
        let Some(spec) = find(&args[0]) else { return refused("Unknown Redis command called from script") };
        if !spec.takes(args.len()) {
            return refused("Wrong number of args calling Redis command from script");
        }
        if spec.flags.has(Flags::NO_SCRIPT) {
            return refused("This Redis command is not allowed from script");
        }
        if let Err(wrong) = containers::check(spec, args) {
            return match wrong.text().contains("wrong number") {
                true => refused("Wrong number of args calling Redis command from script"),
                false => refused("Unknown Redis command called from script"),
            };
        }
        if !self.session.is_unrestricted()
            && let Err(refused) =
                acl::check(acl::Moment::Script, self.server, &self.session, spec, args).await
        {
            return Ok(Err(refused));
        }
        let publishes = matches!(spec.id, Id::Publish | Id::SPublish);
        if self.is_read_only && (publishes || spec.flags.has(Flags::WRITE)) {
            return refused("Write commands are not allowed from read-only scripts.");
        }
        watching::show(spec, self.server, &self.session, args);
        self.server.stats().commands.add(1);
        if publishes {
            return Ok(self.publish_later(args, spec.id, out).await);
        }
        let keys = spec.keys(args, self.session.db());
        if spec.reaches_any(args) || !keys.is_empty() {
            self.reach(&keys, spec.reaches_any(args)).await?;
        }
        if spec.flags.has(Flags::WRITE) && !listed.script.note_write() {
            return refused("the script was killed");
        }
        let access = match &mut self.lent {
            Lent::Any(access) => &mut **access,
            Lent::Declared { access, .. } | Lent::All(access) => access,
            Lent::None => return Err(Stop::NeedsAll),
        };
        if tracking::notes(spec, &self.session) {
            tracking::remember(spec, self.server, &self.session, args).await;
        }
        let mut call = Call { args, session: &self.session, access, out, server: self.server };
        // Boxed, because a script is a command too.
        let done = Box::pin(run_command(spec.id, &mut call)).await;
        if access.pending() > WRITES_AT_MOST {
            return Err(Stop::Store(Wrong::err("the script writes more than 1 GiB")));
        }
        match done {
            Err(wrong) if wrong.is_of_store() => Err(Stop::Store(wrong)),
            done => Ok(done),
        }
    }

    /// Returns true if the user may run a command; `None` if no command has this name and number of
    /// arguments.
    async fn may_run(&mut self, args: &[Vec<u8>]) -> Option<bool> {
        self.pace.step().await;
        let spec = find(&args[0]).filter(|spec| spec.takes(args.len()))?;
        containers::check(spec, args).ok()?;
        Some(self.session.is_unrestricted() || acl::allows(&self.session, spec, args).await)
    }

    /// Sees to it that the access has the keys.
    async fn reach(&mut self, keys: &[Key], reaches_any: bool) -> Result<(), Stop> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let Lent::Declared { keys: declared, .. } = &self.lent else { return Ok(()) };
        if !reaches_any && keys.iter().all(|key| declared.contains(key)) {
            return Ok(());
        }
        if has_begun {
            return Err(Stop::NeedsAll);
        }
        // Nothing was read yet, so that the script cannot tell that its locks are others. Those
        // that it has are given back before it waits.
        self.lent = Lent::None;
        self.lent = Lent::All(self.server.store().change_all().await.by(self.session.client.id));
        Ok(())
    }

    /// Notes a message, and replies with the number of those that would get it now.
    async fn publish_later(&mut self, args: &[Vec<u8>], id: Id, out: &mut Encoder) -> Result<(), Wrong> {
        self.published_bytes += args.iter().map(Vec::len).sum::<usize>();
        if self.published_bytes > WRITES_AT_MOST {
            return Err(Wrong::err("the script publishes more than 1 GiB"));
        }
        let space = if id == Id::Publish { Space::Channels } else { Space::Shards };
        let receivers = self.server.clients().pubsub().receivers(space, &args[1]).await;
        self.published.push(args.to_vec());
        out.count(receivers);
        Ok(())
    }
}

/// Runs a job to its end.
///
/// # Errors
/// The script was ended from outside.
pub(super) async fn drive(
    machine: &mut Lease,
    job: Job,
    run: &mut ScriptRun<'_>,
    listed: &Listed<'_>,
) -> Result<Outcome, Stop> {
    let mut input = Input::Start(job);
    loop {
        input = match machine.resume(input) {
            Output::Done(outcome) => return run.stop.take().map_or(Ok(outcome), Err),
            Output::Idle => return Err(Stop::Store(Wrong::err("the virtual machine has failed"))),
            Output::Pause => run.pause(listed).await,
            Output::Check(args) => Input::Checked(run.may_run(&args).await),
            Output::Call(args, protocol) => match run.call(&args, protocol, listed).await {
                Ok(reply) => match run.look(listed) {
                    Some(why) => Input::Kill(why),
                    None => Input::Reply(reply),
                },
                Err(stop) => {
                    run.stop = Some(stop);
                    Input::Kill("ERR the script was abandoned")
                }
            },
        };
    }
}
