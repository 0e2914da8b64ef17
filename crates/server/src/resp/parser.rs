//! Requests from bytes, however they arrive.
//!
//! In: bytes of a client, in pieces of any size. Out: requests, each a list of arguments of which
//! the first is the command's name; or [`Malformed`], after which the connection is closed.
//!
//! A request is an array of bulk strings, or a line of words ("inline", for people with telnet).
//! Invariants: no allocation exceeds twice the bytes that have arrived, plus a constant, whatever
//! lengths were announced; the time of a request is linear in its bytes; no input panics.

use std::fmt;

/// Maximum length of a line in bytes: of an inline request, or of a count or length.
const LINE_AT_MOST: usize = 64 << 10;
/// Maximum number of arguments that an array may announce: Redis' (`INT_MAX`).
const ARGUMENTS_AT_MOST: i64 = i32::MAX as i64;
/// Maximum number of arguments of a client that has not authenticated itself, as Redis has it.
const STRANGE_ARGUMENTS_AT_MOST: usize = 10;
/// Maximum length of an argument of such a client in bytes.
const STRANGE_ARGUMENT_AT_MOST: usize = 16 << 10;
/// Number of arguments for which room is made at once.
const ARGUMENTS_AT_FIRST: usize = 16;

/// A request: the name of the command, and its arguments.
pub(crate) type Request = Vec<Vec<u8>>;

/// Limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum length of an argument in bytes (`proto-max-bulk-len`). Default: 512 MiB.
    pub(crate) argument: usize,
    /// Maximum memory of a request in bytes, with an overhead for each argument
    /// (`client-query-buffer-limit`). Default: 1 GiB.
    pub(crate) request: usize,
    /// The client has not authenticated itself: its requests are 10 arguments of 16 KiB at most.
    pub(crate) is_stranger: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { argument: 512 << 20, request: 1 << 30, is_stranger: false }
    }
}

/// The reason that bytes are no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// A line has more than 64 KiB; of which kind says Redis' word for it.
    LongLine(&'static str),
    /// The number of arguments is no integer, or is too large.
    Count,
    /// The length of an argument is no integer, negative, or too large.
    Length,
    /// There are more arguments than of a client that has not authenticated itself.
    StrangeCount,
    /// An argument is longer than of a client that has not authenticated itself.
    StrangeLength,
    /// This byte is where `$` belongs.
    NoLength(u8),
    /// A quote of an inline request is not closed.
    Quotes,
    /// The request has more bytes than are allowed.
    TooLarge,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongLine(kind) => write!(f, "too big {kind}"),
            Self::Count => f.write_str("invalid multibulk length"),
            Self::Length => f.write_str("invalid bulk length"),
            Self::StrangeCount => f.write_str("unauthenticated multibulk length"),
            Self::StrangeLength => f.write_str("unauthenticated bulk length"),
            Self::NoLength(got) => {
                write!(
                    f,
                    "expected '$', got '{}'",
                    if got.is_ascii_graphic() { char::from(*got) } else { '?' }
                )
            }
            Self::Quotes => f.write_str("unbalanced quotes in request"),
            Self::TooLarge => f.write_str("request exceeds client-query-buffer-limit"),
        }
    }
}

impl std::error::Error for Malformed {}

/// State between two pieces of a client's bytes.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    state: State,
    /// Finished arguments of the request under way.
    arguments: Request,
    /// Memory of `arguments`, in bytes.
    held: usize,
    /// Bytes at the front of the unconsumed input in which no end of a line was found.
    searched: usize,
}

#[derive(Debug, Default)]
enum State {
    /// Between two requests.
    #[default]
    Start,
    /// In an array, before an argument's length; so many arguments are missing.
    Length { missing: usize },
    /// In an argument of so many bytes, of which `bytes` have come.
    Argument { missing: usize, length: usize, bytes: Vec<u8> },
}

/// Result of looking at the input for the next part of a request.
enum Part {
    /// The request is complete.
    Complete,
    /// Go on with the input behind these bytes.
    Consumed(usize),
    /// More input is needed; so many bytes were consumed.
    Incomplete(usize),
}

impl Parser {
    /// Takes bytes from the front of `input`. Returns the number of bytes that it has consumed, and
    /// a request if one is complete. Without one the caller calls again with the bytes that were
    /// not consumed and more behind them. Requests without arguments are skipped.
    ///
    /// # Errors
    /// The bytes are no request. The connection cannot go on, because it is not known where the
    /// next request begins.
    pub(crate) fn parse(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<(usize, Option<Request>), Malformed> {
        let mut at = 0;
        loop {
            match self.part(&input[at..], limits)? {
                Part::Consumed(count) => at += count,
                Part::Incomplete(count) => return Ok((at + count, None)),
                Part::Complete => {
                    self.held = 0;
                    return Ok((at, Some(std::mem::take(&mut self.arguments))));
                }
            }
        }
    }

    /// Memory of the request under way, in bytes.
    pub(crate) fn memory(&self) -> usize {
        match &self.state {
            State::Argument { length, bytes, .. } => self.held - (*length - bytes.len()),
            State::Start | State::Length { .. } => self.held,
        }
    }

    fn part(&mut self, input: &[u8], limits: &Limits) -> Result<Part, Malformed> {
        match &mut self.state {
            State::Start => {
                if !self.arguments.is_empty() {
                    return Ok(Part::Complete);
                }
                let Some(&first) = input.first() else { return Ok(Part::Incomplete(0)) };
                let kind = if first == b'*' { "mbulk count string" } else { "inline request" };
                let Some((line, consumed)) = self.line(input, kind)? else { return Ok(Part::Incomplete(0)) };
                if first != b'*' {
                    self.arguments = split_words(line).ok_or(Malformed::Quotes)?;
                    return Ok(Part::Consumed(consumed));
                }
                let count = integer(&line[1..]).filter(|count| *count <= ARGUMENTS_AT_MOST);
                let count = usize::try_from(count.ok_or(Malformed::Count)?).unwrap_or(0);
                if limits.is_stranger && count > STRANGE_ARGUMENTS_AT_MOST {
                    return Err(Malformed::StrangeCount);
                }
                if count > 0 {
                    self.arguments.reserve(count.min(ARGUMENTS_AT_FIRST));
                    self.state = State::Length { missing: count };
                }
                Ok(Part::Consumed(consumed))
            }
            State::Length { missing } => {
                let missing = *missing;
                let Some(&first) = input.first() else { return Ok(Part::Incomplete(0)) };
                if first != b'$' {
                    return Err(Malformed::NoLength(first));
                }
                let Some((line, consumed)) = self.line(input, "bulk count string")? else {
                    return Ok(Part::Incomplete(0));
                };
                let length = integer(&line[1..]).and_then(|length| usize::try_from(length).ok());
                let length = length.filter(|length| *length <= limits.argument).ok_or(Malformed::Length)?;
                if limits.is_stranger && length > STRANGE_ARGUMENT_AT_MOST {
                    return Err(Malformed::StrangeLength);
                }
                self.held = self.held.saturating_add(length + size_of::<Vec<u8>>());
                if self.held > limits.request {
                    return Err(Malformed::TooLarge);
                }
                self.state = State::Argument { missing, length, bytes: Vec::new() };
                Ok(Part::Consumed(consumed))
            }
            State::Argument { missing, length, bytes } => {
                let wanted = *length - bytes.len();
                let come = wanted.min(input.len());
                if come > bytes.capacity() - bytes.len() {
                    // Twice what has come, at most, and no more than was announced.
                    bytes.reserve_exact(wanted.min(come.max(bytes.len())));
                }
                bytes.extend_from_slice(&input[..come]);
                // Two bytes end an argument; Redis does not look at them, and neither does this.
                if come < wanted || input.len() < come + 2 {
                    return Ok(Part::Incomplete(come));
                }
                self.arguments.push(std::mem::take(bytes));
                self.state = match *missing - 1 {
                    0 => State::Start,
                    missing => State::Length { missing },
                };
                Ok(Part::Consumed(come + 2))
            }
        }
    }

    /// Returns the line at the front of `input`, without its end, and its length with it.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        kind: &'static str,
    ) -> Result<Option<(&'a [u8], usize)>, Malformed> {
        let from = self.searched.min(input.len());
        let found = input[from..].iter().position(|byte| *byte == b'\n').map(|at| from + at);
        match found {
            Some(end) if end <= LINE_AT_MOST => {
                self.searched = 0;
                let line = &input[..end];
                Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
            }
            None if input.len() <= LINE_AT_MOST => {
                self.searched = input.len();
                Ok(None)
            }
            _ => Err(Malformed::LongLine(kind)),
        }
    }
}

/// Parses a decimal integer in the one form that Redis takes: no sign `+`, no leading zeros, no
/// spaces.
fn integer(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-").unwrap_or(text) {
        b"0" if text.len() == 1 => {}
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Splits a line into words as Redis does (`sdssplitargs`): words in double quotes may have
/// escapes, in single quotes only that of the quote. `None`: a quote is not closed, or is followed
/// by something other than a space.
pub(crate) fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let begin = rest.iter().position(|byte| !is_space(*byte));
        let Some(begin) = begin else { return Some(words) };
        rest = &rest[begin..];
        let mut word = Vec::new();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'"' | b'\'' => {
                    rest = quoted(byte, rest, &mut word)?;
                    if rest.first().is_some_and(|next| !is_space(*next)) {
                        return None;
                    }
                    break;
                }
                byte if is_space(byte) => break,
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
}

/// Appends the text up to the closing quote to `word`, and returns what follows it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [byte, rest @ ..] if *byte == quote => return Some(rest),
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
                word.push(digit(*high) << 4 | digit(*low));
                rest = behind;
            }
            [b'\\', escaped, behind @ ..] if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = behind;
            }
            [b'\\', b'\'', behind @ ..] if quote == b'\'' => {
                word.push(b'\'');
                rest = behind;
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `bytes` in pieces of `size` bytes: all requests, and the error if there is one.
    fn in_pieces(bytes: &[u8], size: usize) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>) {
        let (mut parser, mut buffer, mut requests) = (Parser::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            buffer.extend_from_slice(piece);
            loop {
                match parser.parse(&buffer, &Limits::default()) {
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

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn pieces_of_any_size_give_the_requests() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\r\n*0\r\n*-1\r\nPING  now\r\n*1\r\n$0\r\n\r\n*3\r\n$3\r\nSET\r\n$2\r\na\n\r\n$4\r\n\r\n\r\n\r\n";
        let all =
            [words(&["GET", "k"]), words(&["PING", "now"]), words(&[""]), words(&["SET", "a\n", "\r\n\r\n"])];
        for size in 1..=bytes.len() {
            assert_eq!(in_pieces(bytes, size), (all.to_vec(), None), "pieces of {size}");
        }
    }

    #[test]
    fn malformed_requests_are_told() {
        let long = vec![b'x'; LINE_AT_MOST + 1];
        let cases: [(&[u8], &str); 15] = [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*2147483648\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*-0\r\n", "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
            (b"*1\r\nxPING\r\n", "expected '$', got 'x'"),
            (b"*1\r\n\r\n", "expected '$', got '?'"),
            (b"SET \"k\r\n", "unbalanced quotes in request"),
            (b"SET \"k\"v\r\n", "unbalanced quotes in request"),
            (&long, "too big inline request"),
        ];
        for (bytes, why) in cases {
            let (requests, malformed) = in_pieces(bytes, bytes.len());
            assert_eq!(malformed.map(|m| m.to_string()).as_deref(), Some(why), "{}", bytes.escape_ascii());
            assert!(requests.is_empty());
        }
    }

    #[test]
    fn announced_lengths_take_no_memory() {
        let mut parser = Parser::default();
        let bytes = b"*2147483647\r\n$536870912\r\nabc";
        let (consumed, request) = parser.parse(bytes, &Limits::default()).unwrap();
        assert!(consumed == bytes.len() && request.is_none());
        assert!(parser.arguments.capacity() <= ARGUMENTS_AT_FIRST);
        assert!(matches!(&parser.state, State::Argument { bytes, .. } if bytes.capacity() < 64));
    }

    #[test]
    fn a_request_is_limited_as_a_whole() {
        let limits = Limits { argument: 10, request: 100, ..Limits::default() };
        let mut parser = Parser::default();
        let mut input = b"*100\r\n".to_vec();
        input.extend(b"$0\r\n\r\n".repeat(10));
        assert_eq!(parser.parse(&input, &limits), Err(Malformed::TooLarge));
    }

    #[test]
    fn strangers_have_limits_of_their_own() {
        let limits = Limits { is_stranger: true, ..Limits::default() };
        let parse = |bytes: &[u8]| Parser::default().parse(bytes, &limits).map(|(consumed, _)| consumed);
        assert_eq!((parse(b"*10\r\n"), parse(b"*11\r\n")), (Ok(5), Err(Malformed::StrangeCount)));
        assert_eq!(parse(b"*1\r\n$16384\r\n"), Ok(12));
        assert_eq!(parse(b"*1\r\n$16385\r\n"), Err(Malformed::StrangeLength));
    }

    #[test]
    fn quotes_and_escapes_of_inline_requests() {
        let line = br#"set "a\x41\n\"" 'it\'s \n' "" x"#;
        let found = split_words(line).unwrap();
        assert_eq!(found, words(&["set", "aA\n\"", "it's \\n", "", "x"]));
    }
}
