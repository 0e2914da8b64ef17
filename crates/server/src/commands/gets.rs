//! GETs that are neighbours in a pipeline, carried out as one read of many keys.
//!
//! Their view, its options and the statistics are made once for all of them, and their reads of the
//! device are in flight together. Each has the reply that [`execute`](super::execute) would add.

use crate::resp::{Encoder, Request};
use crate::server::Server;
use crate::session::Session;

/// Returns the number of GETs at the front of requests that only read.
pub(crate) fn gets(requests: &[Request]) -> usize {
    let is_get = |args: &&Request| args.len() == 2 && args[0].eq_ignore_ascii_case(b"get");
    requests.iter().take_while(is_get).count()
}

/// Carries out [`gets`], and adds the reply of each. Returns the length of the longest one in
/// bytes.
pub(crate) async fn execute_gets(
    server: &Server,
    session: &Session,
    requests: &[Request],
    out: &mut Encoder,
) -> usize {
    server.stats().commands.add(requests.len() as u64);
    session.client.note_command("get", server.env().now());
    let view = server.store().view(server.store().now());
    let names = requests.iter().map(|args| &args[1][..]);
    let mut longest = 0;
    for found in view.each_string(session.db(), names).await {
        let before = out.len();
        match found {
            Ok(value) => out.optional_bulk(value),
            Err(wrong) => {
                server.stats().errors.add(1);
                out.error(&wrong);
            }
        }
        longest = longest.max(out.len() - before);
    }
    longest
}
