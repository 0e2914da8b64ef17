//! Commands of features that are off: clusters, replicas, modules and functions. They answer as
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

/// FUNCTION: no function is loaded, and none can be.
pub(super) async fn function(call: &mut Call<'_>) -> Result<(), Wrong> {
    match (&*call.word(1), call.args.len()) {
        ("list", 2) => call.out.array(0),
        ("list", _) => {
            let mut at = 2;
            while at < call.args.len() {
                at += match (&*call.word(at), call.args.len() - at) {
                    ("withcode", _) => 1,
                    ("libraryname", 2..) => 2,
                    ("libraryname", _) => return Err(Wrong::err("library name argument was not given")),
                    _ => {
                        let word = super::quoted(&call.args[at], super::QUOTED_AT_MOST);
                        return Err(Wrong::err(format_args!("Unknown argument {word}")));
                    }
                };
            }
            call.out.array(0);
        }
        ("flush", 2) => call.out.ok(),
        ("flush", 3) if call.is(2, "sync") || call.is(2, "async") => call.out.ok(),
        ("flush", _) => {
            return Err(Wrong::err("FUNCTION FLUSH only supports SYNC|ASYNC option"));
        }
        ("delete", _) => return Err(Wrong::err("Library not found")),
        ("kill", _) => return Err(Wrong::new("NOTBUSY No scripts in execution right now.")),
        _ => containers::help(call, Id::Function),
    }
    Ok(())
}
