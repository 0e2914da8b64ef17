//! Redis' protocol: requests from bytes ([`Parser`]) and replies to bytes ([`Encoder`]).

mod encoder;
mod parser;

pub(crate) use encoder::{Encoder, Protocol};
pub(crate) use parser::{Limits, Malformed, Parser, Request, split_words};
