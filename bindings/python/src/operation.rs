//! Operations: calls that may wait, driven by coroutines.

use crate::error::{raised, unless_it_panics};
use crate::shared::{Owned, lock};
use karstdb::{Result, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Result of an operation.
pub enum Outcome {
    Nothing,
    /// Number of a backup.
    Number(u32),
    Value(Option<Value>),
    Values(Vec<Result<Option<Value>>>),
    /// Entries of an iterator; fewer than requested at its end.
    Entries(Vec<(Vec<u8>, Value)>),
}

impl Outcome {
    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let bytes = |value: Option<Value>| match value {
            Some(value) => PyBytes::new(py, &value).into_any(),
            None => py.None().into_bound(py),
        };
        match self {
            Outcome::Nothing => Ok(py.None().into_bound(py)),
            Outcome::Number(number) => Ok(number.into_pyobject(py)?.into_any()),
            Outcome::Value(value) => Ok(bytes(value)),
            Outcome::Values(values) => {
                let list = PyList::empty(py);
                for value in values {
                    list.append(bytes(value.map_err(raised)?))?;
                }
                Ok(list.into_any())
            }
            Outcome::Entries(entries) => {
                let list = PyList::empty(py);
                for (key, value) in entries {
                    list.append((PyBytes::new(py, &key), PyBytes::new(py, &value)))?;
                }
                Ok(list.into_any())
            }
        }
    }
}

type Pending = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

/// A future of KarstDB. It starts at the first `poll`.
#[pyclass(frozen, module = "karstdb")]
pub struct Operation(Owned<Mutex<Option<Pending>>>);

impl Operation {
    pub fn new(future: impl Future<Output = Result<Outcome>> + Send + 'static) -> Self {
        Operation(Owned::new(Mutex::new(Some(Box::pin(future)))))
    }
}

#[pymethods]
impl Operation {
    /// Returns `None` while it waits, after which `ready.take()` will return `id`; else a tuple of
    /// the result.
    fn poll<'py>(&self, py: Python<'py>, ready: &Ready, id: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.here("the database")?;
        let waker = Waker::from(Arc::new(Woken { queue: ready.0.clone(), id }));
        let polled = py.detach(|| {
            let mut slot = lock(&self.0);
            let future = slot.as_mut()?;
            let mut context = Context::from_waker(&waker);
            let polled = unless_it_panics(|| Ok(future.as_mut().poll(&mut context)));
            let polled = polled.unwrap_or_else(|panicked| Poll::Ready(Err(panicked)));
            if polled.is_ready() {
                *slot = None;
            }
            Some(polled)
        });
        match polled {
            None => Err(crate::error::Closed::new_err("the operation has ended")),
            Some(Poll::Pending) => Ok(None),
            Some(Poll::Ready(outcome)) => {
                Ok(Some(PyTuple::new(py, [outcome.map_err(raised)?.into_python(py)?])?))
            }
        }
    }

    /// Drops the future, which cancels its work.
    fn cancel(&self, py: Python<'_>) {
        if !self.0.is_here() {
            return;
        }
        py.detach(|| {
            let future = lock(&self.0).take();
            drop(future);
        });
    }
}

/// Waits for a future on this thread and handles signals meanwhile. If a signal handler raises, as
/// that of Ctrl-C does, the future is dropped, which cancels its work.
pub fn waited_for<T: Send>(py: Python<'_>, future: impl Future<Output = Result<T>> + Send) -> PyResult<T> {
    /// Interval between checks for signals.
    const LOOK: Duration = Duration::from_millis(50);
    let mut future = Some(Box::pin(future));
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    loop {
        let polled = py.detach(|| {
            let polled = unless_it_panics(|| {
                let future = future.as_mut().expect("it is dropped at the end only");
                match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(outcome) => outcome.map(Some),
                    Poll::Pending => Ok(None),
                }
            });
            if !matches!(polled, Ok(None)) {
                future = None;
            }
            polled
        });
        if let Some(outcome) = polled.map_err(raised)? {
            return Ok(outcome);
        }
        let mut rang = false;
        while !rang {
            rang = py.detach(|| bell.rang_within(LOOK));
            if let Err(interrupt) = py.check_signals() {
                py.detach(|| future = None);
                return Err(interrupt);
            }
        }
    }
}

/// Wakes a thread.
#[derive(Default)]
struct Bell {
    rang: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn rang_within(&self, limit: Duration) -> bool {
        let rang = lock(&self.rang);
        let waited = self.changed.wait_timeout_while(rang, limit, |rang| !*rang);
        let (mut rang, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *rang)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.rang) = true;
        self.changed.notify_all();
    }
}

struct Queue {
    woken: Mutex<Vec<u64>>,
    bell: UnixStream,
}

struct Woken {
    queue: Arc<Queue>,
    id: u64,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = lock(&self.queue.woken);
        woken.push(self.id);
        // One byte is enough, because `take` takes all ids. An error means that the loop has ended
        // and does not wait.
        if woken.len() == 1 {
            let _ = (&self.queue.bell).write(&[1]);
        }
    }
}

/// Queue of the woken operations of one event loop.
#[pyclass(frozen, module = "karstdb")]
pub struct Ready(Arc<Queue>, UnixStream);

#[pymethods]
impl Ready {
    #[new]
    fn new() -> PyResult<Self> {
        let (bell, listener) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        Ok(Ready(Arc::new(Queue { woken: Mutex::default(), bell }), listener))
    }

    /// File descriptor that the event loop listens to.
    fn fileno(&self) -> i32 {
        self.1.as_raw_fd()
    }

    /// Returns the ids of operations that were woken since the last call.
    fn take(&self) -> Vec<u64> {
        let mut woken = lock(&self.0.woken);
        let _ = (&self.1).read(&mut [0; 16]);
        std::mem::take(&mut *woken)
    }
}
