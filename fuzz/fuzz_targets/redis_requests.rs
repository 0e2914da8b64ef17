//! Any bytes as requests of a client. The requests, and where the first malformed one is, do not
//! depend on the pieces in which the bytes arrive.
#![no_main]

// By its path, because it needs nothing of the server, and the server needs the whole engine.
#[allow(dead_code)]
#[path = "../../crates/server/src/resp/parser.rs"]
mod parser;

use libfuzzer_sys::fuzz_target;
use parser::{Limits, Malformed, Parser};

/// Parses `bytes` in pieces of `size` bytes.
fn parsed(bytes: &[u8], size: usize, limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>) {
    let (mut parser, mut buffer, mut requests) = (Parser::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        buffer.extend_from_slice(piece);
        loop {
            match parser.parse(&buffer, limits) {
                Ok((consumed, request)) => {
                    buffer.drain(..consumed);
                    match request {
                        Some(request) => requests.push(request),
                        None => break,
                    }
                }
                Err(malformed) => return (requests, Some(malformed)),
            }
        }
    }
    (requests, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    let limits = Limits { argument: 1 << 16, request: 1 << 17, is_stranger: size.is_multiple_of(2) };
    let whole = parsed(bytes, bytes.len().max(1), &limits);
    assert_eq!(parsed(bytes, usize::from(size) + 1, &limits), whole);
    assert_eq!(parsed(bytes, 1, &limits), whole);
    assert!(whole.0.iter().all(|request| !request.is_empty()));
    let held: usize = whole.0.iter().flatten().map(Vec::len).sum();
    assert!(held <= bytes.len());
});
