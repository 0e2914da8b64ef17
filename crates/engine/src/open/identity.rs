//! The ids of a database: one for its whole life, and one for each session in which it is open.
//!
//! In: the environment's randomness. Out: ids in RocksDB's form, which tables carry in their
//! properties.

use karst_io::Env;

/// Returns the id of a new database: a random UUID.
pub(crate) fn new_db_id(env: &Env) -> String {
    let random = [env.random_seed(), env.random_seed()];
    let hex = format!("{:016x}{:016x}", random[0], random[1]);
    let (a, b, c, d) = (&hex[..8], &hex[8..12], &hex[13..16], &hex[17..20]);
    format!("{a}-{b}-4{c}-8{d}-{}", &hex[20..])
}

/// Returns the id of a session: twenty digits in base 36.
pub(crate) fn new_session_id(env: &Env) -> String {
    let mut number = u128::from(env.random_seed()) << 40 | u128::from(env.random_seed() >> 24);
    let mut digits = [b'0'; 20];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[(number % 36) as usize];
        number /= 36;
    }
    String::from_utf8_lossy(&digits).into_owned()
}
