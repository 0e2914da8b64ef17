//! Handlers by the numbers of their commands.

use super::field_expiry;
use super::table::{Id, for_each_command};
use super::watching;
use super::{
    Call, absent, acl, bits, blocking, connection, dump, functions, hashes, hyperloglogs, keys, lcs, lists,
    memory, operation, pubsub, server, sets, sort, statistics, strings, transactions,
};
use super::{geo, stream_groups, stream_info, stream_reads, streams, zset_algebra, zset_ranges, zsets};
use crate::wrong::Wrong;

/// Makes the `match` that runs a handler, from the rows of the table.
macro_rules! dispatch {
    ($($id:ident $name:literal $arity:literal ($($flag:ident)*) $keys:expr => $group:ident::$handler:ident;)*) => {
        /// Runs a command's handler.
        ///
        /// # Errors
        /// The error reply, in place of what the handler has added to the output. Nothing was
        /// written, unless the store failed ([`Wrong::is_of_store`]).
        pub(super) async fn run(id: Id, call: &mut Call<'_>) -> Result<(), Wrong> {
            match id {
                $(Id::$id => $group::$handler(call).await,)*
            }
        }
    };
}
for_each_command!(dispatch);
