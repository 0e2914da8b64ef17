//! Column families whose keys have user-defined timestamps.

mod history;
mod interop;
mod model;
mod trim;
mod writes;
