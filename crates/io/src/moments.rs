//! Short waits: spin, then yield, then tell the caller to sleep until another thread has finished.
//!
//! The caller passes the progress of the awaited work, as a number. The answer is to look again or
//! to sleep.
//!
//! It spins first, because a sleep and a wake-up cost more CPU time than most such waits last, and
//! a sleeper returns late. It yields next, because with more threads than processors the awaited
//! thread may need this very processor.
//!
//! It does not yield while background jobs run: on Linux a yield ends the thread's time slice, and
//! a job on the same processor then runs for a whole slice of milliseconds before the thread's next
//! turn, although no thread waits for the job. A thread that sleeps instead runs again as soon as
//! it is woken (docs/decisions/background-work.md).
//!
//! [`Standstill`] exists because, with 32 threads on two processors, the thread that all others
//! wait for loses its processor hundreds of times a second, and each of the others would spin in
//! vain before it yields. The first thread that has spun in vain records the progress, and a thread
//! that finds the same progress yields at once.
//!
//! Used for waits on other threads, never on the device.

use crate::background::jobs_are_running;
use crate::sync::counting::{AtomicU64, Ordering};
use crate::sync::{spin_loop, thread};

/// Number of looks before a wait yields. With shuttle every look may be a turn of other threads.
const SPINS: u32 = if cfg!(shuttle) { 1 } else { 24 };
/// Number of spin-loop hints in one look.
const TURNS: u32 = if cfg!(shuttle) { 1 } else { 8 };
/// Number of yields before a wait returns `false`. None with shuttle, which has already switched
/// threads during the look.
const YIELDS: u32 = if cfg!(shuttle) { 0 } else { 4 };

/// Progress of some work at the time a thread had waited for it in vain. Kept beside the awaited
/// work.
#[derive(Debug)]
#[repr(align(64))]
pub struct Standstill(AtomicU64);

impl Default for Standstill {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

/// State of one wait. See the module documentation.
#[derive(Debug, Default)]
pub struct Moments {
    /// Progress of the work at the first look.
    begin: Option<u64>,
    spins: u32,
    yields: u32,
}

impl Moments {
    /// Passes one moment while the awaited work, now at `progress`, may advance. Returns `false`
    /// when it is time to sleep.
    pub fn pass(&mut self, progress: u64, standstill: &Standstill) -> bool {
        self.pass_beside(progress, standstill, jobs_are_running)
    }

    fn pass_beside(
        &mut self,
        progress: u64,
        standstill: &Standstill,
        jobs_are_running: impl FnOnce() -> bool,
    ) -> bool {
        let begin = *self.begin.get_or_insert(progress);
        // Ordering: Relaxed, because it is only a hint.
        if self.spins < SPINS && standstill.0.load(Ordering::Relaxed) != progress {
            (0..TURNS).for_each(|_| spin_loop());
            self.spins += 1;
            if self.spins == SPINS && begin == progress {
                standstill.0.store(progress, Ordering::Relaxed);
            }
        } else if self.yields < YIELDS && !jobs_are_running() {
            self.yields += 1;
            thread::yield_now();
        } else {
            return false;
        }
        true
    }
}

/// Yields the processor to another runnable thread.
pub fn let_others_run() {
    thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments_beside(standstill: &Standstill, mut progress: impl FnMut() -> u64, jobs: bool) -> u32 {
        let mut wait = Moments::default();
        (0..).take_while(|_| wait.pass_beside(progress(), standstill, || jobs)).count() as u32
    }

    fn moments(standstill: &Standstill, progress: impl FnMut() -> u64) -> u32 {
        moments_beside(standstill, progress, false)
    }

    #[test]
    fn jobs_are_not_made_way_for() {
        let standstill = Standstill::default();
        assert_eq!(moments_beside(&standstill, || 7, true), SPINS);
        assert_eq!(moments_beside(&standstill, || 7, true), 0, "somebody has waited in vain");
        assert_eq!(moments(&standstill, || 7), YIELDS);
    }

    #[test]
    fn who_comes_after_a_wait_in_vain_makes_way_at_once() {
        let standstill = Standstill::default();
        assert_eq!(moments(&standstill, || 7), SPINS + YIELDS);
        assert_eq!(moments(&standstill, || 7), YIELDS, "it still stands where somebody has waited in vain");
        assert_eq!(moments(&standstill, || 8), SPINS + YIELDS, "it has gone on");
    }

    #[test]
    fn work_that_goes_on_is_not_said_to_stand() {
        let standstill = Standstill::default();
        let mut at = 0;
        let going = || {
            at += 1;
            at
        };
        assert_eq!(moments(&standstill, going), SPINS + YIELDS);
        assert_eq!(moments(&standstill, || 0), SPINS + YIELDS);
    }
}
