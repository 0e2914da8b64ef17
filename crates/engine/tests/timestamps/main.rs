//! Column families whose keys have user-defined timestamps.

mod history;
mod model;
mod writes;
