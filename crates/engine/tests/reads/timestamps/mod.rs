//! Column families whose keys have user-defined timestamps.

mod all_writes;
mod history;
mod interop;
mod model;
mod spread;
mod trim;
mod writes;
