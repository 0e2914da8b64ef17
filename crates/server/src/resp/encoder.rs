//! Replies to bytes, in RESP2 or RESP3.
//!
//! A handler adds exactly one reply, which may be an aggregate whose elements it then adds.
//! Invariant: an aggregate's announced number of elements is what follows; handlers know it before
//! they begin one. Types that RESP2 does not have are sent as Redis sends them.

use crate::numbers::{float_text, long_text};
use crate::wrong::Wrong;
use std::fmt::Write as _;

/// Largest buffer that a client without replies keeps, in bytes.
const KEPT_AT_MOST: usize = 4 << 10;

/// Version of the protocol in which a client gets its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// RESP2, with which every client begins.
    #[default]
    Two,
    /// RESP3, after `HELLO 3`.
    Three,
}

/// Replies of one client that were not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    protocol: Protocol,
}

impl Encoder {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { bytes: Vec::new(), protocol }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets the protocol of all replies from now on.
    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    fn is_three(&self) -> bool {
        self.protocol == Protocol::Three
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes everything behind the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Takes all bytes.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Gives a buffer back whose bytes were sent. A large one is freed, because an idle client
    /// would hold it.
    pub(crate) fn reuse(&mut self, mut buffer: Vec<u8>) {
        if self.bytes.is_empty() && buffer.capacity() <= KEPT_AT_MOST {
            buffer.clear();
            self.bytes = buffer;
        }
    }

    /// Adds replies that another encoder of the same protocol made.
    pub(crate) fn append(&mut self, other: Self) {
        match self.bytes.is_empty() && other.len() > KEPT_AT_MOST {
            true => self.bytes = other.bytes,
            false => self.bytes.extend_from_slice(&other.bytes),
        }
    }

    fn head(&mut self, mark: u8, number: i64) {
        self.bytes.push(mark);
        self.decimal(number);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn decimal(&mut self, number: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }

    fn line(&mut self, mark: u8, text: &str) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A status. `text` has no line break.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// The status `OK`.
    pub(crate) fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// An error.
    pub(crate) fn error(&mut self, wrong: &Wrong) {
        self.line(b'-', wrong.text());
    }

    /// An integer.
    pub(crate) fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A number of things, as an integer.
    pub(crate) fn count(&mut self, number: usize) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// A string of any bytes.
    pub(crate) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A string, or null.
    pub(crate) fn optional_bulk(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Null in place of a string.
    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_three() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Null in place of an array.
    pub(crate) fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.is_three() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// An array; its elements follow.
    pub(crate) fn array(&mut self, length: usize) {
        self.head(b'*', length as i64);
    }

    /// A push, which is no reply to a request; its elements follow. RESP2: an array.
    pub(crate) fn push(&mut self, length: usize) {
        match self.is_three() {
            true => self.head(b'>', length as i64),
            false => self.array(length),
        }
    }

    /// Adds bytes that are encoded already.
    pub(crate) fn encoded(&mut self, bytes: Vec<u8>) {
        self.append(Self { bytes, protocol: self.protocol });
    }

    /// A map; `length` keys follow, each with its value. RESP2: an array of both.
    pub(crate) fn map(&mut self, length: usize) {
        match self.is_three() {
            true => self.head(b'%', length as i64),
            false => self.array(2 * length),
        }
    }

    /// A set; its elements follow. RESP2: an array.
    pub(crate) fn set(&mut self, length: usize) {
        match self.is_three() {
            true => self.head(b'~', length as i64),
            false => self.array(length),
        }
    }

    /// A text for people. RESP2: a string.
    pub(crate) fn verbatim(&mut self, text: &str) {
        match self.is_three() {
            true => {
                self.head(b'=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
            false => self.bulk(text),
        }
    }

    /// A text in a format of three letters. RESP2: a string.
    pub(crate) fn verbatim_bytes(&mut self, format: &[u8], text: &[u8]) {
        match self.is_three() {
            true => {
                self.head(b'=', text.len() as i64 + 4);
                let letters = format.iter().chain(b"   ").take(3);
                self.bytes.extend(letters);
                self.bytes.push(b':');
                self.bytes.extend_from_slice(text);
                self.bytes.extend_from_slice(b"\r\n");
            }
            false => self.bulk(text),
        }
    }

    /// A status of any bytes without a line break.
    pub(crate) fn simple_bytes(&mut self, text: &[u8]) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// True or false. RESP2: 1 or 0.
    pub(crate) fn boolean(&mut self, is_true: bool) {
        match self.is_three() {
            true => self.bytes.extend_from_slice(if is_true { b"#t\r\n" } else { b"#f\r\n" }),
            false => self.integer(is_true.into()),
        }
    }

    /// The digits of a number of any size, without a line break. RESP2: a string.
    pub(crate) fn big_number(&mut self, digits: &[u8]) {
        match self.is_three() {
            true => {
                self.bytes.push(b'(');
                self.bytes.extend_from_slice(digits);
                self.bytes.extend_from_slice(b"\r\n");
            }
            false => self.bulk(digits),
        }
    }

    /// A floating-point number. RESP2: its text as a string.
    pub(crate) fn double(&mut self, number: f64) {
        match self.is_three() {
            true => self.line(b',', &float_text(number)),
            false => self.bulk(float_text(number)),
        }
    }

    /// A floating-point number without exponent. RESP2: its text as a string.
    pub(crate) fn long_double(&mut self, number: f64) {
        match self.is_three() {
            true => self.line(b',', &long_text(number)),
            false => self.bulk(long_text(number)),
        }
    }

    /// A string made by formatting.
    pub(crate) fn bulk_text(&mut self, text: impl std::fmt::Display) {
        let mut formatted = String::new();
        let _never_fails = write!(formatted, "{text}");
        self.bulk(formatted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(protocol: Protocol, add: impl Fn(&mut Encoder)) -> String {
        let mut encoder = Encoder::new(protocol);
        add(&mut encoder);
        String::from_utf8(encoder.take()).unwrap()
    }

    #[test]
    fn a_large_buffer_is_not_kept() {
        let mut encoder = Encoder::default();
        encoder.reuse(Vec::with_capacity(KEPT_AT_MOST));
        assert_eq!(encoder.bytes.capacity(), KEPT_AT_MOST);
        encoder.reuse(Vec::with_capacity(1 << 20));
        assert_eq!(encoder.take().capacity(), KEPT_AT_MOST);
    }

    #[test]
    fn each_type_in_both_protocols() {
        type Add = fn(&mut Encoder);
        let cases: [(Add, &str, &str); 14] = [
            (|e| e.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|e| e.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (|e| e.simple("PONG"), "+PONG\r\n", "+PONG\r\n"),
            (|e| e.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|e| e.integer(0), ":0\r\n", ":0\r\n"),
            (|e| e.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (|e| e.null(), "$-1\r\n", "_\r\n"),
            (|e| e.null_array(), "*-1\r\n", "_\r\n"),
            (|e| e.array(10), "*10\r\n", "*10\r\n"),
            (|e| e.push(2), "*2\r\n", ">2\r\n"),
            (|e| e.map(2), "*4\r\n", "%2\r\n"),
            (|e| e.set(1), "*1\r\n", "~1\r\n"),
            (|e| e.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|e| e.error(&Wrong::syntax()), "-ERR syntax error\r\n", "-ERR syntax error\r\n"),
        ];
        for (add, two, three) in cases {
            assert_eq!(encoded(Protocol::Two, add), two);
            assert_eq!(encoded(Protocol::Three, add), three);
        }
    }
}
