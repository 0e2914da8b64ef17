//! Options and arguments: wrong, impossible, damaged, changed while open.

mod bad_input;
mod best_efforts;
mod damaged_options;
mod impossible_options;
mod misuse;
mod set_options;
mod unique_ids;
