//! Error replies: [`Wrong`], a code and a text, as Redis 7.2 has them.
//!
//! Clients compare the texts, so each is Redis' to the letter. A text never has a line break,
//! because the protocol ends an error by one: bytes of the client are escaped or dropped where a
//! text quotes them.

use std::borrow::Cow;
use std::fmt;

/// An error reply: a code in capitals, a space and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    text: Cow<'static, str>,
    is_of_store: bool,
}

/// Makes a function for each reply without parameters.
macro_rules! replies {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal;)*) => {
        impl Wrong {
            $($(#[doc = $doc])* pub(crate) const fn $name() -> Self {
                Self { text: Cow::Borrowed($text), is_of_store: false }
            })*
        }
    };
}

replies! {
    /// The key holds a value of another type.
    wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    /// An argument is no integer of 64 bits.
    not_an_integer = "ERR value is not an integer or out of range";
    /// An argument is no floating-point number.
    not_a_float = "ERR value is not a valid float";
    /// The sum of a float increment is infinite or no number.
    float_overflow = "ERR increment would produce NaN or Infinity";
    /// The sum of an increment has more than 64 bits.
    overflow = "ERR increment or decrement would overflow";
    /// DECRBY with the smallest integer.
    decrement_overflow = "ERR decrement would overflow";
    /// A field of a hash is no integer.
    hash_not_an_integer = "ERR hash value is not an integer";
    /// A field of a hash is no floating-point number.
    hash_not_a_float = "ERR hash value is not a float";
    /// Arguments that the command's grammar does not have.
    syntax = "ERR syntax error";
    /// The key that a command needs is not there.
    no_such_key = "ERR no such key";
    /// An index beyond the end of a list.
    index_out_of_range = "ERR index out of range";
    /// A string would be longer than 512 MiB.
    string_too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    /// A string that PFADD and its relatives did not make.
    no_hyperloglog = "WRONGTYPE Key is not a valid HyperLogLog string value.";
    /// A string with the header of a HyperLogLog, and without registers.
    corrupt_hyperloglog = "INVALIDOBJ Corrupted HLL object detected";
    /// The offset of a bit is no integer, negative or beyond 512 MiB.
    bit_offset = "ERR bit offset is not an integer or out of range";
    /// A negative offset into a string.
    offset_out_of_range = "ERR offset is out of range";
    /// A negative count.
    not_positive = "ERR value is out of range, must be positive";
    /// An id of an entry of a stream that is none.
    invalid_entry_id = "ERR Invalid stream ID specified as stream command argument";
    /// A cursor that is no unsigned integer.
    invalid_cursor = "ERR invalid cursor";
    /// A database number that is no integer, or too large.
    db_out_of_range = "ERR DB index is out of range";
    /// Source and target are one object.
    same_object = "ERR source and destination objects are the same";
    /// EXEC of a transaction in which a command was refused.
    exec_abort = "EXECABORT Transaction discarded because of previous errors.";
    /// The client has not authenticated itself.
    no_auth = "NOAUTH Authentication required.";
    /// Name or password are not right.
    wrong_pass = "WRONGPASS invalid username-password pair or user is disabled.";
    /// HELLO with a version other than 2 and 3.
    no_proto = "NOPROTO unsupported protocol version";
}

impl Wrong {
    /// An error with the code `ERR`. `text` has no line break.
    pub(crate) fn err(text: impl fmt::Display) -> Self {
        Self::new(format!("ERR {text}"))
    }

    /// An error whose code is the first word of `text`. Line breaks become spaces.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let mut text: String = text.into();
        if text.contains(['\r', '\n']) {
            text = text.replace(['\r', '\n'], " ");
        }
        Self { text: Cow::Owned(text), is_of_store: false }
    }

    /// The number of arguments is not one that `command` takes.
    pub(crate) fn arity(command: &str) -> Self {
        Self::err(format_args!("wrong number of arguments for '{command}' command"))
    }

    /// The expiry of `command` is not positive or beyond what a clock can say.
    pub(crate) fn invalid_expire(command: &str) -> Self {
        Self::err(format_args!("invalid expire time in '{command}' command"))
    }

    /// The store has failed; `why` says how.
    pub(crate) fn storage(why: impl fmt::Display) -> Self {
        Self { is_of_store: true, ..Self::err(why) }
    }

    /// True if the store has failed, so that a part of a command's writes may be missing. False if
    /// the request is refused, which writes nothing.
    pub(crate) fn is_of_store(&self) -> bool {
        self.is_of_store
    }

    /// Code and text, without the line break.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line() {
        assert_eq!(Wrong::err("a\r\nb").text(), "ERR a  b");
    }
}
