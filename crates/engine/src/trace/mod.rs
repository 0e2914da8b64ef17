//! Traces as files, and their replay.
//!
//! In: records of a traced database ([`Db::start_trace`](crate::Db::start_trace)); files of such
//! records. Out: these files; and their queries, run against a database.
//!
//! | file | holds |
//! |---|---|
//! | `file` | records in a file, written and read |
//! | `replay` | the queries of a trace, one by one or all of them at the traced pace |

mod file;
mod replay;

pub use file::{FileTraceReader, FileTraceWriter, TraceReader};
pub use replay::{ReplayOptions, Replayer, TraceAnswer, TraceRecord};
