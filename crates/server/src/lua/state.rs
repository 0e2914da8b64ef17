//! State of the job of a machine, which functions of the host share.

use super::errors::raised_reply;
use super::json::JsonSettings;
use super::source::FunctionMeta;
use crate::resp::Protocol;
use mlua::{Function, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// State of the job that runs, which functions of the host share.
#[derive(Default)]
pub(super) struct State {
    /// Protocol of the replies that the script gets.
    pub(super) protocol: Cell<Protocol>,
    /// State of the generator of random numbers.
    pub(super) random: Cell<u64>,
    /// A script or a function runs, which may call commands.
    pub(super) is_running: Cell<bool>,
    /// Functions that the library that is loaded has registered.
    pub(super) registered: RefCell<Option<Vec<(FunctionMeta, Function)>>>,
    /// Error text with which the script is ended, or `None`.
    pub(super) killed: Cell<Option<&'static str>>,
    pub(super) json: Rc<RefCell<JsonSettings>>,
}

impl State {
    /// Forgets what a job has left.
    pub(super) fn reset(&self) {
        self.protocol.set(Protocol::Two);
        self.registered.take();
        *self.json.borrow_mut() = JsonSettings::default();
    }

    /// # Errors
    /// The script is to end.
    pub(super) fn check(&self) -> Result<()> {
        self.killed.get().map_or(Ok(()), |why| Err(raised_reply(why)))
    }
}
