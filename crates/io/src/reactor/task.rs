//! A reactor's tasks: their table, the ready queue, and wakers.
//!
//! A waker identifies its task by index and generation; one that outlives its task wakes no other.
//! A wake from the reactor's own thread appends to the ready queue; from another thread it goes
//! through the inbox and the alarm.
//!
//! Invariant: a task is in the ready queue or the inbox at most once (`scheduled`), and its future
//! is taken out of the table while it runs, because it may spawn.

use super::{Message, Shared};
use crate::sync::{AtomicBool, Ordering};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

pub(super) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskKey {
    /// The table of the task.
    pub(super) table: Table,
    index: u32,
    generation: u32,
}

/// A table of tasks of one reactor thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Table {
    #[default]
    Ordinary,
    /// Tasks that run to their end even if the thread blocks or the reactor ends.
    Attached,
}

struct Entry {
    generation: u32,
    state: EntryState,
}

enum EntryState {
    Free,
    Idle(BoxedTask, Arc<TaskWaker>),
    Running,
    /// Aborted while it ran (by itself, or by code it woke): dropped when it returns.
    Doomed,
}

#[derive(Default)]
pub(super) struct Tasks {
    table: Table,
    entries: RefCell<Vec<Entry>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<TaskKey>>,
}

struct TaskWaker {
    shared: Arc<Shared>,
    key: TaskKey,
    scheduled: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if self.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let local = super::with_local(|local| match local {
            Some(local) if Arc::ptr_eq(&local.shared, &self.shared) => {
                local.table(self.key.table).make_ready(self.key);
                true
            }
            _ => false,
        });
        if !local {
            self.shared.send(Message::Ready(self.key));
        }
    }
}

impl Tasks {
    pub(super) fn of(table: Table) -> Self {
        Self { table, ..Self::default() }
    }

    /// Returns true if it has no task.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.borrow().len() == self.free.borrow().len()
    }

    /// Adds a task, ready to run.
    pub(super) fn add(&self, shared: &Arc<Shared>, task: BoxedTask) -> TaskKey {
        let mut entries = self.entries.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            entries.push(Entry { generation: 0, state: EntryState::Free });
            entries.len() as u32 - 1
        });
        let entry = &mut entries[index as usize];
        let key = TaskKey { table: self.table, index, generation: entry.generation };
        let waker = Arc::new(TaskWaker { shared: shared.clone(), key, scheduled: AtomicBool::new(true) });
        entry.state = EntryState::Idle(task, waker);
        self.ready.borrow_mut().push_back(key);
        key
    }

    pub(super) fn make_ready(&self, key: TaskKey) {
        self.ready.borrow_mut().push_back(key);
    }

    pub(super) fn ready_count(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Runs the task that has been ready for longest to its next await. Returns false if none is
    /// ready.
    pub(super) fn run_next(&self) -> bool {
        let Some(key) = self.ready.borrow_mut().pop_front() else { return false };
        let Some((mut task, header)) = self.take(key) else { return true };
        // Ordering: cleared before the poll; a wake during the poll is therefore not lost.
        header.scheduled.store(false, Ordering::Release);
        let waker = Waker::from(header.clone());
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        drop(waker);
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[key.index as usize];
        if polled == Poll::Pending && matches!(entry.state, EntryState::Running) {
            entry.state = EntryState::Idle(task, header);
            return true;
        }
        entry.state = EntryState::Free;
        entry.generation = entry.generation.wrapping_add(1);
        drop(entries);
        drop(task); // may wake, spawn and abandon
        self.free.borrow_mut().push(key.index);
        true
    }

    fn take(&self, key: TaskKey) -> Option<(BoxedTask, Arc<TaskWaker>)> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(key.index as usize).filter(|e| e.generation == key.generation)?;
        match std::mem::replace(&mut entry.state, EntryState::Running) {
            EntryState::Idle(task, header) => Some((task, header)),
            other => {
                entry.state = other;
                None
            }
        }
    }

    /// Drops a task, now or when it returns from its current run.
    pub(super) fn abort(&self, key: TaskKey) {
        if let Some((task, _header)) = self.take(key) {
            {
                let mut entries = self.entries.borrow_mut();
                let entry = &mut entries[key.index as usize];
                entry.state = EntryState::Free;
                entry.generation = entry.generation.wrapping_add(1);
            }
            drop(task);
            self.free.borrow_mut().push(key.index);
            return;
        }
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(key.index as usize)
            && entry.generation == key.generation
            && matches!(entry.state, EntryState::Running)
        {
            entry.state = EntryState::Doomed;
        }
    }

    /// Returns the tasks that have not ended.
    fn live(&self) -> Vec<TaskKey> {
        let entries = self.entries.borrow();
        let live = entries.iter().enumerate().filter(|(_, e)| !matches!(e.state, EntryState::Free));
        let key = |(i, e): (usize, &Entry)| TaskKey {
            table: self.table,
            index: i as u32,
            generation: e.generation,
        };
        live.map(key).collect()
    }

    /// Makes all tasks ready, those that are already included.
    pub(super) fn make_all_ready(&self) {
        self.ready.borrow_mut().extend(self.live());
    }

    /// Drops all tasks, and those that their drops spawn.
    pub(super) fn clear(&self) {
        loop {
            let keys = self.live();
            if keys.is_empty() {
                return;
            }
            keys.into_iter().for_each(|key| self.abort(key));
        }
    }
}

/// Lets every other ready task, and completed I/O, have a turn, on any executor.
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// See [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
