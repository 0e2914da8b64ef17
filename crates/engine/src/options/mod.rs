//! Options as the engine uses them: of the database, of a column family, of one read.
//!
//! In: what the user sets, over what the database's OPTIONS file says. Out: typed values and the instances that names stand for.
//! Names, types and defaults come from the one table in `karst_format::options`.

mod read;

pub use read::{ReadOptions, ReadTier};
