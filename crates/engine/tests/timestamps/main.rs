//! Column families whose keys have user-defined timestamps.

mod writes;
