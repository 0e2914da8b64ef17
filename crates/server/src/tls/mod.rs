//! TLS of clients' connections, by the crate `rustls`: which certificates there are, and the
//! records of one connection.
//!
//! Handshakes and records are computed on the thread that owns the connection, between its receives
//! and sends; no other thread takes part. Versions are TLS 1.2 and 1.3.

mod settings;
mod stream;

pub(crate) use settings::TlsSettings;
pub(crate) use stream::TlsStream;
