//! GETs that are neighbours in a pipeline, carried out as one read of many keys.
//!
//! Their view, its options and the statistics are made once for all of them, and their reads of the
//! device are in flight together. Each has the reply that [`execute`](super::execute) would add.

use super::table::find;
use super::{numbering, tracking, watching};
use crate::resp::{Encoder, Request};
use crate::server::Server;
use crate::session::Session;
use crate::store::Classes;

/// Returns the number of GETs at the front of requests that only read; none for a client whose
/// requests are checked one by one.
pub(crate) fn gets(session: &Session, requests: &[Request]) -> usize {
    if !session.is_unrestricted() {
        return 0;
    }
    let is_get = |args: &&Request| args.len() == 2 && args[0].eq_ignore_ascii_case(b"get");
    requests.iter().take_while(is_get).count()
}

/// Carries out the first of [`gets`], and adds their replies: as many as until the output has
/// `at_most` bytes, one at least. Returns their number, and the length of the longest in bytes.
pub(crate) async fn execute_gets(
    server: &Server,
    session: &Session,
    requests: &[Request],
    at_most: usize,
    out: &mut Encoder,
) -> (usize, usize) {
    let begun = server.env().now();
    session.client.note_command("get", begun);
    let spec = find(b"get");
    if let Some(spec) = spec.filter(|spec| tracking::notes(spec, session)) {
        for args in requests {
            tracking::remember(spec, server, session, args).await;
        }
    }
    let view = server.store().view(server.store().now());
    let names = requests.iter().map(|args| &args[1][..]);
    let found = view.each_string(session.db(), names, at_most).await;
    let (mut longest, mut done, mut failed) = (0, 0, 0);
    for (args, found) in requests.iter().zip(found) {
        let before = out.len();
        match found {
            Ok(value) => out.optional_bulk(value),
            Err(wrong) => {
                server.note_errors(&wrong, 1);
                failed += 1;
                out.error(&wrong);
            }
        }
        if let Some(spec) = spec {
            watching::show(spec, server, session, args);
        }
        (longest, done) = (longest.max(out.len() - before), done + 1);
        if out.len() >= at_most {
            break;
        }
    }
    if view.are_asked(Classes::MISS) {
        view.tell_misses().await;
    }
    server.stats().commands.add(done as u64);
    if let (Some(first), Some(spec)) = (requests.first(), spec) {
        // One entry for all, because each took the time of all.
        watching::time(spec, server, session, first, begun, done as u64);
        if failed > 0 {
            server.command_stats().of(numbering::of_request(spec, first)).failed.add(failed);
        }
    }
    (done, longest)
}
