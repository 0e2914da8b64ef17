//! Listeners, callbacks, statistics, properties and traces.

mod callbacks;
mod cancel_all;
mod listeners;
mod listeners_of_files;
mod listeners_of_parts;
mod properties;
mod properties_of_writing;
mod statistics;
mod trace;
