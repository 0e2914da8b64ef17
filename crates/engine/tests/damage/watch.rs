//! Limits of a case: a deadline and the amount of allocated memory.
//!
//! A hung case cannot fail by itself, so the watchdog prints its name and ends the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Allocator that counts the bytes of all threads and delegates to the system's allocator.
pub(crate) struct Counting;

// Ordering: counters only; they publish no other data.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Starts a new measurement of the peak.
///
/// Several threads sweep samples concurrently, so the peak includes the allocations of all of them;
/// the limit is far above that.
pub(crate) fn reset_peak() {
    let live = LIVE.load(Ordering::Relaxed);
    START.store(live, Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
}

/// Returns the peak of allocated bytes since then, beyond those allocated before.
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed).saturating_sub(START.load(Ordering::Relaxed))
}

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches no memory
// that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Ends the process when a case takes too long.
pub(crate) struct Watchdog {
    running: Arc<Mutex<Option<(Instant, String)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts a watchdog that allows `deadline` for each case.
    pub(crate) fn start(deadline: Duration) -> Watchdog {
        let running: Arc<Mutex<Option<(Instant, String)>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (running, stop) = (running.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                    if let Some((began, case)) = &*running.lock().unwrap()
                        && began.elapsed() > deadline
                    {
                        eprintln!("hangs: {case}");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog { running, stop, thread: Some(thread) }
    }

    pub(crate) fn begin(&self, case: &str) {
        *self.running.lock().unwrap() = Some((Instant::now(), case.to_owned()));
    }

    pub(crate) fn end(&self) {
        *self.running.lock().unwrap() = None;
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
