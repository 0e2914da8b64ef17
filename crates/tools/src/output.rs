//! Output of the tools, and their exit codes.
//!
//! Results go to standard output, by [`say!`] or through [`Out`]. All other output goes to standard
//! error, by [`note!`]. Both may be pipes. The reader of the first may stop early, like `head`:
//! then the tool stops silently. Clippy refuses `println!` and `eprintln!` in this crate, because
//! they panic in that case.

use std::fmt::{Arguments, Display};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;

/// Reason why a tool ends early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The command line is invalid. Exit code 2.
    Usage(String),
    /// The operation failed. Exit code 1.
    Failed(String),
    /// The reader of standard output has closed it, which is no error.
    NobodyReads,
}

impl Fault {
    /// Returns the fault for a failed write to standard output.
    pub(crate) fn of_output(error: &io::Error) -> Fault {
        match error.kind() {
            ErrorKind::BrokenPipe => Fault::NobodyReads,
            _ => Fault::Failed(cannot_write(error)),
        }
    }

    /// Prints the fault and returns the exit code.
    pub(crate) fn end(self) -> ExitCode {
        match self {
            Fault::Usage(message) => {
                note!("karstdb: {message}");
                ExitCode::from(2)
            }
            Fault::Failed(message) => {
                note!("karstdb: {message}");
                ExitCode::FAILURE
            }
            Fault::NobodyReads => ExitCode::SUCCESS,
        }
    }

    /// Returns the fault with `whose` in front of its message.
    pub(crate) fn of(self, whose: impl Display) -> Fault {
        match self {
            Fault::Usage(message) => Fault::Usage(format!("{whose}: {message}")),
            Fault::Failed(message) => Fault::Failed(format!("{whose}: {message}")),
            Fault::NobodyReads => Fault::NobodyReads,
        }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault::Failed(message)
    }
}

impl From<karst_engine::Error> for Fault {
    fn from(error: karst_engine::Error) -> Fault {
        Fault::Failed(error.to_string())
    }
}

/// Returns the message for a failed write.
pub(crate) fn cannot_write(error: impl Display) -> String {
    format!("cannot write: {error}")
}

/// Prints a line to standard output and returns the error of the write.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!("{}\n", format_args!($($text)*))) };
}
/// Prints a line to standard error, ignoring errors.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use {note, say};

/// Writes to standard output and flushes it.
pub(crate) fn to_stdout(text: Arguments<'_>) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    out.write_fmt(text).and_then(|()| out.flush()).map_err(|e| Fault::of_output(&e))
}

/// Writes to standard error.
pub(crate) fn to_stderr(text: Arguments<'_>) {
    // Errors are ignored, because there is no other place to report them.
    let _ = io::stderr().lock().write_fmt(text);
}

/// Returns true if standard error is a terminal, so that progress should be reported.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Buffered standard output for long texts, which remembers that its reader has closed it.
pub(crate) struct Out(BufWriter<Pipe>);

struct Pipe {
    out: StdoutLock<'static>,
    reader_gone: bool,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.reader_gone |= written.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.reader_gone |= flushed.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe);
        flushed
    }
}

impl Out {
    pub(crate) fn new() -> Out {
        Out(BufWriter::new(Pipe { out: io::stdout().lock(), reader_gone: false }))
    }

    /// Flushes and returns the tool's outcome, where `result` is that of its work.
    pub(crate) fn end(mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        let flushed = self.0.flush();
        if self.0.get_ref().reader_gone {
            return Err(Fault::NobodyReads);
        }
        result.and(flushed.map_err(|e| Fault::of_output(&e)))
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
