//! Traces: recording each workload, and replaying a trace.

use super::flags::Flags;
use super::open::Bench;
use super::workload::Work;
use crate::output::{Fault, say};
use karst_engine::{Db, FileTraceReader, FileTraceWriter, ReplayOptions, Replayer, Result, TraceOptions};

/// Begins the trace of a workload if --trace_file is given. Returns true if it does.
pub(crate) fn start(work: Work, flags: &Flags, db: &Db) -> std::result::Result<bool, Fault> {
    if flags.trace_file.is_empty() || matches!(work, Work::Replay | Work::Property(_)) {
        return Ok(false);
    }
    let writer = FileTraceWriter::create(db.env(), &flags.trace_file)?;
    db.start_trace(TraceOptions::default(), Box::new(writer))?;
    if !flags.json {
        say!("Tracing the workload to: [{}]", flags.trace_file)?;
    }
    Ok(true)
}

/// Replays the trace in --trace_file.
pub(crate) fn replay(bench: &Bench, flags: &Flags) -> std::result::Result<(), Fault> {
    let db = bench.db();
    let again = || -> Result<()> {
        let reader = FileTraceReader::open(db.env(), &flags.trace_file)?;
        let replayer = Replayer::new(db, &db.column_families(), Box::new(reader))?;
        replayer.prepare()?;
        let options = ReplayOptions {
            num_threads: flags.trace_replay_threads as u32,
            fast_forward: flags.trace_replay_fast_forward,
        };
        replayer.replay(&options, |_, _| ())
    };
    again()?;
    if flags.json { Ok(()) } else { say!("Replay completed from trace_file: {}", flags.trace_file) }
}
