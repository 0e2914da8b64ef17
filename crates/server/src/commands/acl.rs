//! ACL, as far as it only tells: there is one user, `default`, who may do all. Users cannot be made
//! or changed; the password is the setting `requirepass`.

use super::connection::USER;
use super::table::{Id, TABLE, find};
use super::{Call, QUOTED_AT_MOST, categories, containers, lower, quoted};
use crate::numbers::integer;
use crate::wrong::Wrong;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;

/// Bits that GENPASS makes by default and at most.
const BITS: i64 = 256;
const BITS_AT_MOST: i64 = 4096;

pub(super) async fn acl(call: &mut Call<'_>) -> Result<(), Wrong> {
    match (&*call.word(1), call.args.len()) {
        ("whoami", 2) => call.out.bulk(USER),
        ("users", 2) => {
            call.out.array(1);
            call.out.bulk(USER);
        }
        ("list", 2) => {
            let password = match password(call) {
                Some(hash) => format!("#{hash}"),
                None => "nopass".to_owned(),
            };
            call.out.array(1);
            call.out.bulk(format!("user default on {password} sanitize-payload ~* &* +@all"));
        }
        ("getuser", 3) => get_user(call),
        ("cat", 2) => {
            call.out.array(categories::ALL.len());
            categories::ALL.iter().for_each(|name| call.out.bulk(name));
        }
        ("cat", 3) => {
            let name = lower(&call.args[2]);
            if !categories::ALL.contains(&&*name) {
                let name = quoted(&call.args[2], QUOTED_AT_MOST);
                return Err(Wrong::err(format_args!("Unknown category '{name}'")));
            }
            let of = TABLE.iter().filter(|spec| categories::of(spec).contains(&&*name));
            let names: Vec<&str> = of.map(|spec| spec.name).collect();
            call.out.array(names.len());
            names.into_iter().for_each(|name| call.out.bulk(name));
        }
        ("genpass", 2..=3) => generate(call)?,
        ("dryrun", 4..) => dry_run(call)?,
        ("help", _) => containers::help(call, Id::Acl),
        _ => return Err(Wrong::arity(&format!("acl|{}", call.word(1)))),
    }
    Ok(())
}

/// SHA-256 of the password in hexadecimal digits, if there is one.
fn password(call: &Call<'_>) -> Option<String> {
    let settings = call.server.settings();
    settings.has_password().then(|| settings.with_password(hexadecimal_hash))
}

fn hexadecimal_hash(of: &[u8]) -> String {
    hexadecimal(&Sha256::digest(of))
}

/// Two digits for each byte.
fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _never_fails = write!(text, "{byte:02x}");
    }
    text
}

fn get_user(call: &mut Call<'_>) {
    if call.args[2] != USER {
        call.out.null();
        return;
    }
    let password = password(call);
    let out = &mut *call.out;
    out.map(6);
    out.bulk("flags");
    let flags = ["on", "nopass", "sanitize-payload"];
    let flags = flags.into_iter().filter(|flag| *flag != "nopass" || password.is_none());
    let flags: Vec<&str> = flags.collect();
    out.set(flags.len());
    flags.into_iter().for_each(|flag| out.bulk(flag));
    out.bulk("passwords");
    out.array(usize::from(password.is_some()));
    password.into_iter().for_each(|hash| out.bulk(hash));
    for (name, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        out.bulk(name);
        out.bulk(value);
    }
    out.bulk("selectors");
    out.array(0);
}

/// GENPASS: random hexadecimal digits, each for four bits.
fn generate(call: &mut Call<'_>) -> Result<(), Wrong> {
    let bits = call.args.get(2).map_or(Some(BITS), |bits| integer(bits));
    let bits = bits.filter(|bits| (1..=BITS_AT_MOST).contains(bits)).ok_or(Wrong::err(
        "ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
         4096",
    ))?;
    let digits = (bits as usize).div_ceil(4);
    // Of the kernel's generator, because passwords are not to be guessed from each other.
    let mut bytes = vec![0; digits.div_ceil(2)];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| Wrong::err(format_args!("no random numbers: /dev/urandom: {error}")))?;
    let mut text = hexadecimal(&bytes);
    text.truncate(digits);
    call.out.bulk(text);
    Ok(())
}

/// DRYRUN: the user may carry out any command that there is.
fn dry_run(call: &mut Call<'_>) -> Result<(), Wrong> {
    if call.args[2] != USER {
        let user = quoted(&call.args[2], QUOTED_AT_MOST);
        return Err(Wrong::err(format_args!("User '{user}' not found")));
    }
    let args = &call.args[3..];
    let Some(spec) = find(&args[0]) else {
        let name = quoted(&args[0], QUOTED_AT_MOST);
        return Err(Wrong::err(format_args!("Command '{name}' not found")));
    };
    if !spec.takes(args.len()) {
        return Err(Wrong::arity(spec.name));
    }
    call.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let cases: [(&[u8], &str); 4] = [
            (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
            (&[b'a'; 1_000_000], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        ];
        for (text, hash) in cases {
            assert_eq!(hexadecimal_hash(text), hash);
        }
    }
}
