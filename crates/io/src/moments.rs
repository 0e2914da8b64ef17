//! Short waits: how a thread passes the moments until another thread has finished what it waits
//! for.
//!
//! In: how far the work has come that is waited for, as a number. Out: whether to look again, or to
//! sleep. A wait spins at first, then gives the processor away, and is told to sleep after that.
//!
//! Why spin at all: a sleep and a wake cost more processor time than most such waits last, and a
//! sleeper comes back late. Why give the processor away: where threads outnumber processors, the
//! one that is waited for may need just that.
//!
//! Why not while background jobs run: Linux takes it for the end of the thread's slice, so a job on
//! the same processor has a whole slice of milliseconds before the thread's next turn, though
//! nobody waits for the job. Who sleeps instead comes back as soon as it is woken
//! (docs/decisions/background-work.md).
//!
//! Why a [`Standstill`]: with 32 threads on two processors, the one that everybody waits for loses
//! its processor hundreds of times a second, and each of the others would spin in vain before it
//! made way. So the first who has spun in vain says so, and who finds the work where it was then
//! makes way at once.
//!
//! Who calls: whoever waits for other threads and not for the device.

use crate::background::jobs_are_running;
use crate::sync::counting::{AtomicU64, Ordering};
use crate::sync::{spin_loop, thread};

/// How often a wait looks before it gives the processor away. With shuttle every look may be a turn
/// of others.
const SPINS: u32 = if cfg!(shuttle) { 1 } else { 24 };
/// Turns of the processor in one look.
const TURNS: u32 = if cfg!(shuttle) { 1 } else { 8 };
/// How often it gives the processor away before it is told to sleep. With shuttle it was given away
/// before.
const YIELDS: u32 = if cfg!(shuttle) { 0 } else { 4 };

/// Where some work stood when somebody had waited for it in vain. Kept beside what is waited for.
#[derive(Debug)]
#[repr(align(64))]
pub struct Standstill(AtomicU64);

impl Default for Standstill {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

/// One wait. See the module's head.
#[derive(Debug, Default)]
pub struct Moments {
    /// Where the work stood at first.
    begin: Option<u64>,
    spins: u32,
    yields: u32,
}

impl Moments {
    /// Passes one moment in which work that stands at `progress` may go on. `false` when so many
    /// have passed that it is time to sleep.
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
        // Ordering: only steers.
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

/// Gives the processor to another thread that may run, for whoever waits for a moment.
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
