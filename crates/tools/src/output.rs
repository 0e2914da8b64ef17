//! What the tools say, and how they end.
//!
//! Results go to standard output, by [`say!`] or through [`Out`]. Everything else goes to standard
//! error, by [`note!`]. Both may be pipes. Whoever reads the first may stop, as `head` does: then
//! the tool stops too, and says nothing. Clippy refuses `println!` and `eprintln!` in this crate,
//! as they panic at that moment.

use std::fmt::{Arguments, Display};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;

/// Why a tool ends before it is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The command line asks for what there is not. Exit code 2.
    Usage(String),
    /// What was asked for failed. Exit code 1.
    Failed(String),
    /// Nobody reads standard output any more. That is no error.
    NobodyReads,
}

impl Fault {
    /// A write to standard output has failed.
    pub(crate) fn of_output(error: &io::Error) -> Fault {
        match error.kind() {
            ErrorKind::BrokenPipe => Fault::NobodyReads,
            _ => Fault::Failed(cannot_write(error)),
        }
    }

    /// Says what is wrong, and returns the exit code.
    pub(crate) fn end(self) -> ExitCode {
        match self {
            Fault::Usage(message) => {
                note!("karst: {message}");
                ExitCode::from(2)
            }
            Fault::Failed(message) => {
                note!("karst: {message}");
                ExitCode::FAILURE
            }
            Fault::NobodyReads => ExitCode::SUCCESS,
        }
    }

    /// The same fault with more in front of its message.
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

/// What to say of a write that failed.
pub(crate) fn cannot_write(error: impl Display) -> String {
    format!("cannot write: {error}")
}

/// A line on standard output; the error is for the tool's end.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!("{}\n", format_args!($($text)*))) };
}
/// A line on standard error, if anybody reads it.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use {note, say};

/// Writes to standard output at once.
pub(crate) fn to_stdout(text: Arguments<'_>) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    out.write_fmt(text).and_then(|()| out.flush()).map_err(|e| Fault::of_output(&e))
}

/// Writes to standard error.
pub(crate) fn to_stderr(text: Arguments<'_>) {
    // Why ignored: there is nobody left to tell.
    let _ = io::stderr().lock().write_fmt(text);
}

/// Whether somebody looks on, so that it makes sense to say how far the work is.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Standard output for much text: buffered, and it remembers that its reader has gone.
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

    /// What a tool ends with that has written here and come to `result`.
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
