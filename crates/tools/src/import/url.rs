//! URLs of servers: `redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]`.

/// A server and what it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Host and port.
    pub(super) address: String,
    /// The only database that is imported.
    pub(super) database: Option<u16>,
}

const NO_TLS: &str = "rediss:// is not supported: import a file that `redis-cli --tls --rdb FILE` writes, or \
                      connect through a tunnel";

impl Url {
    /// Parses the source of a command line; `None`: it is the name of a file.
    ///
    /// # Errors
    /// The URL is wrong, or of another kind; the text has no password.
    pub(super) fn parse(source: &str) -> Result<Option<Self>, String> {
        let Some((scheme, rest)) = source.split_once("://") else { return Ok(None) };
        match &*scheme.to_ascii_lowercase() {
            "redis" | "valkey" => {}
            "rediss" | "valkeys" => return Err(NO_TLS.to_owned()),
            _ => return Err(format!("{scheme}:// is not supported; it is a file, or redis://HOST:PORT")),
        }
        let (rest, database) = match rest.rsplit_once('/') {
            // A password may have the character too.
            Some((rest, database)) if !database.contains('@') => (rest, database),
            _ => (rest, ""),
        };
        let (who, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = who.split_once(':').unwrap_or(("", who));
        let text = |text: &str| match text {
            "" => Ok(None),
            text => decode(text).map(Some),
        };
        // An IPv6 address is in brackets, and has colons.
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { place.to_owned() } else { format!("{place}:6379") };
        if address.starts_with(':') {
            return Err("the URL has no host".to_owned());
        }
        let database = match database {
            "" => None,
            number => match number.parse() {
                Ok(number) => Some(number),
                Err(_) => return Err(format!("the URL's database `{number}` is no number up to 65535")),
            },
        };
        Ok(Some(Self { user: text(user)?, password: text(password)?, address, database }))
    }
}

/// Replaces `%` and two hexadecimal digits by the byte that they are.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || "a `%` in the user or password of the URL is not followed by two digits".to_owned();
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>().ok_or_else(wrong)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(wrong);
        bytes.push((digit(digits[0])? << 4 | digit(digits[1])?) as u8);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| "the user or password of the URL is no UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_all_parts_or_some() {
        let url = |user: &str, password: &str, address: &str, database| {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            Some(Url { user: some(user), password: some(password), address: address.to_owned(), database })
        };
        for (text, expected) in [
            ("dump.rdb", None),
            ("/tmp/a:b", None),
            ("redis://localhost", url("", "", "localhost:6379", None)),
            ("redis://localhost:7000/", url("", "", "localhost:7000", None)),
            ("REDIS://u:p@h:1/15", url("u", "p", "h:1", Some(15))),
            ("redis://:p%40%2f@h", url("", "p@/", "h:6379", None)),
            ("redis://p@h", url("", "p", "h:6379", None)),
            ("redis://u:a/b@h:1", url("u", "a/b", "h:1", None)),
            ("redis://u:a/b@c@h:1/2", url("u", "a/b@c", "h:1", Some(2))),
            ("valkey://[::1]:7000/0", url("", "", "[::1]:7000", Some(0))),
            ("redis://[::1]", url("", "", "[::1]:6379", None)),
        ] {
            assert_eq!(Url::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn wrong_urls_are_refused() {
        for (text, why) in [
            ("rediss://h", "--tls --rdb"),
            ("http://h", "http:// is not supported"),
            ("redis://", "no host"),
            ("redis://:1", "no host"),
            ("redis://h/x", "`x`"),
            ("redis://h/65536", "`65536`"),
            ("redis://:secret%4@h", "two digits"),
            ("redis://:secret%zz@h", "two digits"),
            ("redis://:%ff@h", "UTF-8"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
