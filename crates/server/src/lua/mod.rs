//! Scripts in Lua 5.1: a virtual machine on a stack of its own, in a sandbox.
//!
//! In: a [`Job`], and the replies of the commands that it calls. Out: the commands, pauses, and at
//! the end an [`Outcome`] with the reply in the client's protocol. Nothing here knows the store or
//! waits: a machine is a coroutine ([`Machine::resume`]), and a script that calls a command is
//! suspended in it, however deep it is in Lua's own functions. The caller carries the command out
//! as any other, and resumes the script with the bytes of the reply.
//!
//! Bounds: memory of a machine ([`MEMORY_AT_MOST`]), instructions between two pauses
//! ([`INSTRUCTIONS`]), bytes of a reply ([`REPLY_AT_MOST`]), and the recursion on its stack
//! (`prelude.lua`). A function of Lua's own libraries, such as a search by a pattern, is one
//! instruction, however long it takes.
//!
//! Invariant: a machine that is dropped in the middle of a script ends the script first, by an
//! error that the script cannot catch.

mod api;
mod bits;
mod convert;
mod errors;
mod json;
mod machine;
mod msgpack;
mod packing;
mod source;
mod state;

pub(crate) use machine::Machine;
pub(crate) use source::{FunctionMeta, Library, Script, ScriptFlags, sha1_hex};

use crate::resp::Protocol;
use crate::wrong::Wrong;
use std::sync::Arc;

/// Version of Redis that scripts and clients see.
pub(crate) const REDIS_VERSION: &str = "7.4.2";
/// Maximum memory of one machine, in bytes.
pub(crate) const MEMORY_AT_MOST: usize = 64 << 20;
/// Instructions of Lua between two pauses.
const INSTRUCTIONS: u32 = 4096;
/// Elements of a reply that are converted between two pauses.
const ELEMENTS: usize = 4096;
/// Maximum number of bytes of the reply of a script.
const REPLY_AT_MOST: usize = 128 << 20;
/// Maximum number of values that a function returns: those that Lua's stack has room for.
const RESULTS_AT_MOST: usize = 7000;
/// Maximum depth of tables in the reply of a script.
const DEPTH_AT_MOST: usize = 2000;

/// Work of a machine.
pub(crate) enum Job {
    /// Compiles a script.
    Compile(Arc<Script>),
    /// Runs a script.
    Script(Arc<Script>, Arguments),
    /// Runs the code of a library, to know its functions.
    Load(Arc<[u8]>),
    /// Runs a function of a library.
    Function(Arc<Library>, String, Arguments),
}

/// Arguments of a script or a function.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    /// Those that it declares as keys.
    pub(crate) keys: Vec<Vec<u8>>,
    /// The others.
    pub(crate) others: Vec<Vec<u8>>,
    /// State of the generator of `math.random`.
    pub(crate) seed: u64,
    /// Protocol of the client.
    pub(crate) protocol: Protocol,
}

/// Message with which a machine is resumed.
pub(crate) enum Input {
    /// Begins a job. The machine is idle.
    Start(Job),
    /// The reply of the command that was called, in the protocol of the call.
    Reply(Vec<u8>),
    /// True if the user may run the command that was checked; `None` if it is none.
    Checked(Option<bool>),
    /// The pause is over.
    GoOn,
    /// The script is ended by an error of this text that it cannot catch.
    Kill(&'static str),
    /// The machine is dropped.
    End,
}

/// Message with which a machine suspends itself.
pub(crate) enum Output {
    /// It is idle.
    Idle,
    /// The script calls a command, and wants the reply in a protocol.
    Call(Vec<Vec<u8>>, Protocol),
    /// The script asks whether the user may run a command.
    Check(Vec<Vec<u8>>),
    /// Others are to run.
    Pause,
    /// The job has ended; the machine is idle.
    Done(Outcome),
}

/// Result of a job.
pub(crate) enum Outcome {
    /// The reply, encoded.
    Reply(Vec<u8>),
    /// The script was compiled.
    Compiled,
    /// The functions of a library.
    Loaded(Vec<FunctionMeta>),
    /// It has failed.
    Failed(Wrong),
}
