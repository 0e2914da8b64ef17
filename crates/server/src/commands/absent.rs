//! Commands of features that are off: clusters, replicas and modules. They answer as
//! Redis does where the feature is off or has nothing in it.

use super::table::Id;
use super::{Call, containers};
use crate::wrong::Wrong;

/// CLUSTER, ASKING, READONLY and READWRITE: this server is no part of a cluster.
pub(super) async fn cluster(_: &mut Call<'_>) -> Result<(), Wrong> {
    Err(Wrong::err("This instance has cluster support disabled"))
}

/// REPLICAOF and SLAVEOF: this server is a primary, and can be nothing else.
pub(super) async fn replica_of(call: &mut Call<'_>) -> Result<(), Wrong> {
    if !(call.is(1, "no") && call.is(2, "one")) {
        return Err(Wrong::err("replication is not served: only NO ONE is taken"));
    }
    call.out.ok();
    Ok(())
}

/// MODULE: none is loaded, and none can be.
pub(super) async fn module(call: &mut Call<'_>) -> Result<(), Wrong> {
    match &*call.word(1) {
        "list" => call.out.array(0),
        "load" | "loadex" => {
            return Err(Wrong::err("Error loading the extension. Please check the server logs."));
        }
        "unload" => return Err(Wrong::err("Error unloading module: no such module with that name")),
        _ => containers::help(call, Id::Module),
    }
    Ok(())
}
