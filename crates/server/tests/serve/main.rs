//! Servers over real sockets: blocking clients of the standard library on one side, the server's
//! own threads on the other. Each test has a directory and a free port of its own. Replies are
//! compared as text, in the form of [`client::Reply`].

mod acl;
mod bits;
mod blocking;
mod client;
mod connections;
mod dump;
mod eviction;
mod field_expiry;
mod geo;
mod hashes;
mod hostile;
mod hyperloglogs;
mod introspection;
mod keys;
mod lifecycle;
mod lists;
mod notifications;
mod operation;
mod pipelines;
mod pubsub;
mod scripts;
mod sets;
mod sort;
mod statistics;
mod streams;
mod strings;
mod tls;
mod tracking;
mod transactions;
mod watching;
mod zsets;
