//! Virtual machines of the threads, of which a limited number runs at the same time.
//!
//! Invariant: a command that has keys locked does not wait for a machine. So those who have a
//! machine may wait for locks, and their holders go on. Scripts of transactions that write are not
//! counted: such a transaction has all keys locked, so that one of them runs.

use crate::lua::{Input, Job, Machine, Outcome, Output, Script};
use crate::server::Server;
use crate::wrong::Wrong;
use async_lock::SemaphoreGuardArc;
use std::cell::RefCell;
use std::sync::Arc;

/// Maximum number of idle machines of a thread.
const IDLE_AT_MOST: usize = 8;

thread_local! {
    /// Machines that have no job.
    static IDLE: RefCell<Vec<Machine>> = const { RefCell::new(Vec::new()) };
}

/// A virtual machine for one command.
pub(super) struct Lease {
    machine: Option<Machine>,
    _permit: Option<SemaphoreGuardArc>,
}

/// A machine of the thread, or a new one.
fn machine() -> Result<Machine, Wrong> {
    match IDLE.with_borrow_mut(Vec::pop) {
        Some(machine) => Ok(machine),
        None => Machine::new().map_err(|error| Wrong::err(format_args!("no virtual machine: {error}"))),
    }
}

/// Takes a machine of the thread. If it `waits` until one may run, the caller has no keys locked.
///
/// # Errors
/// There is no memory for one.
pub(super) async fn lease(server: &Server, waits: bool) -> Result<Lease, Wrong> {
    let permit = match waits {
        true => Some(server.scripts().permit().await),
        false => None,
    };
    Ok(Lease { machine: Some(machine()?), _permit: permit })
}

impl Lease {
    /// Exchanges a machine in which a script was ended.
    ///
    /// # Errors
    /// There is no memory for another.
    pub(super) fn renew(&mut self) -> Result<(), Wrong> {
        if !self.machine.as_ref().is_some_and(Machine::is_reusable) {
            self.machine = None;
            self.machine = Some(machine()?);
        }
        Ok(())
    }

    /// Goes on as [`Machine::resume`] does.
    pub(super) fn resume(&mut self, input: Input) -> Output {
        match &mut self.machine {
            Some(machine) => machine.resume(input),
            None => Output::Idle,
        }
    }

    fn compile(&mut self, script: &Arc<Script>) -> Result<(), Wrong> {
        match self.resume(Input::Start(Job::Compile(script.clone()))) {
            Output::Done(Outcome::Compiled) => Ok(()),
            Output::Done(Outcome::Failed(wrong)) => Err(wrong),
            _ => Err(Wrong::err("the virtual machine has failed")),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(machine) = self.machine.take().filter(Machine::is_reusable) {
            // Without the list, at the end of the thread, the machine is dropped.
            let _is_ended = IDLE.try_with(|idle| {
                let mut idle = idle.borrow_mut();
                if idle.len() < IDLE_AT_MOST {
                    idle.push(machine);
                }
            });
        }
    }
}

/// Compiles a script, and keeps it.
///
/// # Errors
/// It is no script, or there is no room for it.
pub(super) async fn compile(
    server: &Server,
    waits: bool,
    sha: String,
    text: &[u8],
    is_loaded: bool,
) -> Result<Arc<Script>, Wrong> {
    let script = Arc::new(Script::new(sha, text)?);
    let mut machine = lease(server, waits).await?;
    machine.compile(&script)?;
    server.scripts().add(&script, is_loaded)?;
    Ok(script)
}
