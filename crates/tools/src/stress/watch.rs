//! The process that the user starts: it starts lives, kills them, and shows progress.
//!
//! In: flags. Out: a [`Report`]. A life is killed with SIGKILL at a moment drawn around
//! `-interval`, some in the first moments, and some are not killed but end in order. The last life
//! verifies everything again and changes nothing.

use super::counts::{Count, Counts};
use super::flags::Flags;
use super::place::{ProgressLine, Site};
use super::report::{Failure, Report};
use crate::output::{is_watched, note};
use crate::random::Random;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Maximum age in milliseconds at which a life is killed in its first moments.
const FIRST_MOMENTS_MS: u64 = 120;
/// Multiple of `-hang_after` that opening with verification, and ending in order, may each take.
const PATIENCE: u32 = 5;
/// Interval between looks at the life's age.
const LOOK: Duration = Duration::from_millis(20);

/// Ends of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Killed at this age.
    Killed(Duration),
    /// Asked at this age to end in order.
    Closed(Duration),
    /// After its operations, without a request.
    ByItself,
}

/// A run: lives of one database.
pub(crate) struct Run<'a> {
    pub(crate) flags: &'a Flags,
    pub(crate) place: &'a Site,
    /// The user's arguments, which are passed on to the lives.
    pub(crate) args: &'a [String],
    pub(crate) seed: u64,
}

impl Run<'_> {
    /// Runs all lives; returns their results.
    pub(crate) fn run(&self) -> Result<Report, String> {
        let started = Instant::now();
        let mut report = Report::new(self.seed, self.place);
        let mut told = started;
        let mut random = Random::of(&[self.seed, 8, self.place.next_life()]);
        let deadline = started + self.flags.duration.0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let last = left.is_zero()
                || (self.flags.ops_per_thread > 0 && self.flags.interval.0.is_zero() && report.lives > 0);
            let end = if last { End::ByItself } else { self.draw_end(&mut random, left) };
            let life = self.place.next_life();
            self.place
                .note_next_life(life + 1)
                .map_err(|e| format!("{}: {e}", self.place.expected.display()))?;
            let outcome = self.one(life, end, last, started, &mut told, &mut report);
            report.elapsed = started.elapsed();
            if let Err(text) = outcome {
                report.failure = Some(Failure {
                    life,
                    text,
                    options: self.place.options_of(life),
                    again: self.command_line(&[format!("-seed={}", self.seed)]),
                    look: self.command_line(&[
                        format!("-db={}", self.place.db.display()),
                        format!("-expected_values_dir={}", self.place.expected.display()),
                        format!("-seed={}", self.seed),
                        format!("-life={}", life + 1),
                        "-check_only".into(),
                    ]),
                });
                return Ok(report);
            }
            if last {
                super::copies::remove_left(&self.place.db)
                    .map_err(|e| format!("{}: {e}", self.place.db.display()))?;
                report.measure(self.place);
                return Ok(report);
            }
        }
    }

    fn draw_end(&self, random: &mut Random, left: Duration) -> End {
        let interval = self.flags.interval.0;
        if interval.is_zero() {
            return if self.flags.ops_per_thread > 0 { End::ByItself } else { End::Closed(left) };
        }
        // The interval times a factor from 0.5 to 1.5.
        let part = 0.5 + random.below(1000) as f64 / 1000.0;
        let after = interval.mul_f64(part).min(left);
        if random.one_in(self.flags.kill_in_opening_one_in) {
            return End::Killed(Duration::from_millis(random.below(FIRST_MOMENTS_MS)).min(left));
        }
        if random.one_in(self.flags.close_one_in) { End::Closed(after) } else { End::Killed(after) }
    }

    fn command_line(&self, more: &[String]) -> String {
        let given = self.args.iter().filter(|arg| {
            let name = arg.trim_start_matches('-');
            !more.iter().any(|own| {
                let own = own.trim_start_matches('-').split('=').next().unwrap_or_default();
                name.split('=').next() == Some(own)
            })
        });
        let all: Vec<&str> = given.chain(more).map(String::as_str).collect();
        format!("karstdb stress {}", all.join(" "))
    }

    fn command(&self, life: u64, check_only: bool) -> Result<Command, String> {
        // The program is not started by name because the file may be another one by now.
        let program = "/proc/self/exe";
        let mut command = Command::new(program);
        command
            .arg("stress")
            .args(self.args)
            .arg("-nodestroy_db_initially")
            .arg(format!("-db={}", self.place.db.display()))
            .arg(format!("-expected_values_dir={}", self.place.expected.display()))
            .arg(format!("-life={life}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if check_only {
            command.arg("-check_only");
        }
        Ok(command)
    }

    /// Runs one life to its end.
    fn one(
        &self,
        life: u64,
        end: End,
        check_only: bool,
        started: Instant,
        told: &mut Instant,
        report: &mut Report,
    ) -> Result<(), String> {
        let mut child = Guarded(self.command(life, check_only)?.spawn().map_err(|e| format!("a life: {e}"))?);
        let lines = lines_of(&mut child.0);
        let born = Instant::now();
        let mut heard =
            Heard { counts: Counts::default().numbers(), changed: born, opened: false, ended: false };
        report.lives += 1;
        // Time at which the life was killed or asked to end.
        let mut asked = None;
        let status = loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => heard.take(&line, report),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break child.0.wait().map_err(|e| e.to_string())?,
            }
            let age = born.elapsed();
            match end {
                End::Killed(after) if asked.is_none() && age >= after => {
                    asked = Some(Instant::now());
                    child.0.kill().map_err(|e| e.to_string())?;
                }
                End::Closed(after) if asked.is_none() && age >= after => {
                    asked = Some(Instant::now());
                    drop(child.0.stdin.take());
                }
                _ => {}
            }
            self.check_patience(&heard, asked)?;
            self.tell(&heard.counts, started, told, report);
        };
        report.add(&heard.counts);
        self.judge(status, end, &heard, report)
    }

    fn judge(&self, status: ExitStatus, end: End, heard: &Heard, report: &mut Report) -> Result<(), String> {
        use std::os::unix::process::ExitStatusExt;
        let killed = status.signal() == Some(9);
        match end {
            End::Killed(_) if killed => {
                report.killed += 1;
                report.killed_in_opening += u64::from(!heard.opened);
                Ok(())
            }
            _ if status.success() && heard.ended => {
                report.closed += 1;
                Ok(())
            }
            _ => Err(match std::fs::read_to_string(self.place.failure()) {
                Ok(text) => text,
                Err(_) => format!("the process ended by itself: {status}"),
            }),
        }
    }

    fn check_patience(&self, heard: &Heard, asked: Option<Instant>) -> Result<(), String> {
        let most = self.flags.hang_after.0;
        let most = if heard.opened && asked.is_none() { most } else { most * PATIENCE };
        if heard.changed.elapsed() > most {
            return Err(format!("the process hangs: no operation has ended for {most:?}; it is killed"));
        }
        Ok(())
    }

    fn tell(&self, now: &[u64], started: Instant, told: &mut Instant, report: &Report) {
        let every = self.flags.progress_every.0;
        let is_told = self.flags.given.contains("progress_every") || is_watched();
        if !is_told || every.is_zero() || told.elapsed() < every {
            return;
        }
        *told = Instant::now();
        let of = |what: Count| report.counts[what as usize] + now[what as usize];
        let elapsed = started.elapsed().as_secs_f64();
        note!(
            "{elapsed:.0} s of {:.0} s: {} lives, {} killed, {} operations ({:.0}/s), {} keys verified",
            self.flags.duration.0.as_secs_f64(),
            report.lives,
            report.killed,
            of(Count::Operations),
            of(Count::Operations) as f64 / elapsed,
            of(Count::Verified)
        );
    }
}

/// A process that is killed when its handle is dropped.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let out = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// State of a life, from the lines that it printed.
struct Heard {
    counts: Vec<u64>,
    /// Time of the last change of the counts, or of the opening.
    changed: Instant,
    opened: bool,
    ended: bool,
}

impl Heard {
    fn take(&mut self, line: &str, report: &mut Report) {
        match ProgressLine::parse(line) {
            Some(ProgressLine::Opened(milliseconds)) => {
                (self.opened, self.changed) = (true, Instant::now());
                report.openings_ms.push(milliseconds);
            }
            Some(ProgressLine::Counts(counts))
                if counts.len() == self.counts.len() && counts != self.counts =>
            {
                (self.counts, self.changed) = (counts, Instant::now());
            }
            Some(ProgressLine::Ended) => self.ended = true,
            _ => {}
        }
    }
}
