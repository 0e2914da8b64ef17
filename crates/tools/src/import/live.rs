//! A running server as a source: SCAN, and DUMP with the expiry of each key, in pipelines.
//!
//! While the replies of some keys are taken, those of the next are under way. How many these are
//! follows from the sizes of those before, so that a slow import does not fill the memory of the
//! server with replies.

use super::client::{Client, Reply, is_stop};
use super::url::Url;
use super::{End, Watch};
use crate::output::Fault;
use karst_server::Importer;
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// Number of keys that SCAN is asked for.
const SCANNED: &[u8] = b"1000";
/// Keys of one pipeline, at first and at most; bytes of its names and of its replies, about.
const KEYS_AT_FIRST: usize = 16;
const KEYS_AT_MOST: usize = 512;
const NAMES_AT_MOST: usize = 32 << 10;
const REPLIES_AT_MOST: usize = 4 << 20;

/// Reason why a source ends early.
enum Failure {
    /// The connection has ended, or a signal came.
    Connection(io::Error),
    /// The server has answered otherwise than it should, or the import has failed.
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// A server.
pub(super) struct Source {
    client: Client<TcpStream>,
    address: String,
    /// Numbers of its databases, and of their keys.
    databases: Vec<(u16, u64)>,
    /// The command for the expiry of a key.
    expiry: Expiry,
    vanished: u64,
    keys_at_once: usize,
}

/// Commands for the expiry of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    /// PEXPIRETIME: milliseconds since 1970.
    Absolute,
    /// PTTL: milliseconds from now on.
    Relative,
}

impl Source {
    /// Connects, authenticates itself, and asks for the databases.
    pub(super) fn connect(url: &Url, databases: u16, stop: Arc<AtomicBool>) -> Result<Self, Fault> {
        let address = url.address.clone();
        let opened = Self::open(url, databases, stop);
        opened.map_err(|failure| match failure {
            Failure::Connection(error) => Fault::Failed(format!("{address}: {error}")),
            Failure::Other(why) => Fault::Failed(format!("{address}: {why}")),
        })
    }

    fn open(url: &Url, at_most: u16, stop: Arc<AtomicBool>) -> Result<Self, Failure> {
        let mut client = Client::connect(&url.address, stop)?;
        let password = url.password.clone().or_else(|| std::env::var("REDISCLI_AUTH").ok());
        if let Some(password) = password {
            let mut words = vec![&b"AUTH"[..]];
            words.extend(url.user.as_ref().map(|user| user.as_bytes()));
            words.push(password.as_bytes());
            text(client.call(&words)?, "AUTH")?;
        }
        let known = text(client.call(&[b"INFO", b"keyspace"])?, "INFO")?;
        let mut databases = databases_of(&String::from_utf8_lossy(&known));
        if let Some(only) = url.database {
            databases.retain(|(number, _)| *number == only);
        }
        if let Some((number, _)) = databases.iter().find(|(number, _)| *number >= at_most) {
            let needed = u32::from(*number) + 1;
            return Err(Failure::Other(format!(
                "it has keys in database {number}, so --databases {needed} is needed, here and for karstdb serve"
            )));
        }
        let expiry = match client.call(&[b"PEXPIRETIME", b""])? {
            Reply::Integer(_) => Expiry::Absolute,
            _ => Expiry::Relative,
        };
        let (address, vanished, keys_at_once) = (url.address.clone(), 0, KEYS_AT_FIRST);
        Ok(Self { client, address, databases, expiry, vanished, keys_at_once })
    }

    /// Imports everything.
    pub(super) async fn import(&mut self, importer: &mut Importer, watch: &mut Watch) -> Result<End, Fault> {
        match self.all(importer, watch).await {
            Ok(()) => Ok(End::Complete { vanished: self.vanished }),
            Err(Failure::Connection(error)) if is_stop(&error) => Ok(End::Stopped),
            Err(Failure::Connection(error)) => {
                let keys = importer.imported().keys();
                let of = &self.address;
                Err(Fault::Failed(format!("{of}: the connection was lost after {keys} keys: {error}")))
            }
            Err(Failure::Other(why)) => Err(Fault::Failed(format!("{}: {why}", self.address))),
        }
    }

    async fn all(&mut self, importer: &mut Importer, watch: &mut Watch) -> Result<(), Failure> {
        match self.client.call(&[b"FUNCTION", b"DUMP"])? {
            Reply::Text(payload) => importer.put_libraries(&payload).await.map_err(other)?,
            // Redis before 7 has no libraries. A later one may have renamed the command.
            Reply::Error(why) if is_unknown(&why) && self.expiry == Expiry::Relative => {}
            reply => drop(text(reply, "FUNCTION DUMP")?),
        }
        let all: u64 = self.databases.iter().map(|(_, keys)| *keys).sum();
        for (db, _) in self.databases.clone() {
            text(self.client.call(&[b"SELECT", db.to_string().as_bytes()])?, "SELECT")?;
            let mut cursor = b"0".to_vec();
            loop {
                let reply = self.client.call(&[b"SCAN", &cursor, b"COUNT", SCANNED])?;
                let (next, names) = scanned(reply)?;
                self.keys(db, &names, importer, watch, all).await?;
                cursor = next;
                if cursor == b"0" {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Imports keys of the database that is selected.
    async fn keys(
        &mut self,
        db: u16,
        names: &[Vec<u8>],
        importer: &mut Importer,
        watch: &mut Watch,
        all: u64,
    ) -> Result<(), Failure> {
        let (mut rest, mut under_way) = (names, VecDeque::new());
        loop {
            let (now, later) = rest.split_at(self.count(rest));
            rest = later;
            // A request that the server does not take before its replies are taken would never end.
            let is_long = now.iter().map(Vec::len).sum::<usize>() > NAMES_AT_MOST;
            while under_way.len() > usize::from(!is_long && !now.is_empty()) {
                let (names, asked) = under_way.pop_front().unwrap_or_default();
                self.take(db, names, asked, importer).await?;
                let (keys, seen) = (importer.imported(), self.vanished);
                let done = keys.keys() + keys.existing + keys.expired + keys.refused + seen;
                watch.show(|| format!("importing: database {db}, {done} of about {all} keys"));
            }
            if now.is_empty() {
                return Ok(());
            }
            // Before the source looks at the times, so that no expiry is late.
            let asked = now_millis();
            self.ask(now)?;
            under_way.push_back((now, asked));
        }
    }

    /// Number of keys, of which one at least, that the next pipeline asks for.
    fn count(&self, names: &[Vec<u8>]) -> usize {
        let mut bytes = 0;
        let fits = |name: &&Vec<u8>| {
            bytes += name.len();
            bytes <= NAMES_AT_MOST
        };
        let fitting = names.iter().take(self.keys_at_once).take_while(fits).count();
        fitting.max(1).min(names.len())
    }

    fn ask(&mut self, names: &[Vec<u8>]) -> io::Result<()> {
        let expiry = match self.expiry {
            Expiry::Absolute => &b"PEXPIRETIME"[..],
            Expiry::Relative => b"PTTL",
        };
        let requests: Vec<[&[u8]; 2]> =
            names.iter().flat_map(|name| [[&b"DUMP"[..], name], [expiry, name]]).collect();
        let requests: Vec<&[&[u8]]> = requests.iter().map(|request| &request[..]).collect();
        self.client.send(&requests)
    }

    /// Takes the replies of [`ask`](Self::ask), which was called at `asked` (milliseconds since
    /// 1970).
    async fn take(
        &mut self,
        db: u16,
        names: &[Vec<u8>],
        asked: i64,
        importer: &mut Importer,
    ) -> Result<(), Failure> {
        let mut bytes = 0;
        for name in names {
            let (value, time) = (self.client.reply()?, self.client.reply()?);
            let payload = match value {
                Reply::Text(payload) => payload,
                Reply::Null => {
                    self.vanished += 1;
                    continue;
                }
                reply => text(reply, "DUMP")?,
            };
            bytes += payload.len();
            let expiry = match time {
                Reply::Integer(-2) => {
                    self.vanished += 1;
                    continue;
                }
                Reply::Integer(time @ 0..) if self.expiry == Expiry::Relative => {
                    Some(time.saturating_add(asked))
                }
                Reply::Integer(time @ 0..) => Some(time),
                Reply::Integer(_) => None,
                reply => return Err(wrong(reply, "PTTL")),
            };
            importer.put(db.into(), name, &payload, expiry).await.map_err(other)?;
        }
        // A pipeline of larger values is shorter; it grows to twice its length at a time.
        let fitting = (REPLIES_AT_MOST * names.len()).checked_div(bytes).unwrap_or(KEYS_AT_MOST);
        self.keys_at_once = fitting.clamp(1, KEYS_AT_MOST).min(2 * self.keys_at_once);
        Ok(())
    }
}

/// Milliseconds since 1970.
fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn other(why: impl ToString) -> Failure {
    Failure::Other(why.to_string())
}

fn is_unknown(error: &str) -> bool {
    error.to_ascii_lowercase().starts_with("err unknown command")
}

fn wrong(reply: Reply, command: &str) -> Failure {
    match reply {
        Reply::Error(why) => Failure::Other(format!("{command}: {why}")),
        _ => Failure::Other(format!("{command}: a reply of another type")),
    }
}

fn text(reply: Reply, command: &str) -> Result<Vec<u8>, Failure> {
    match reply {
        Reply::Text(text) => Ok(text),
        reply => Err(wrong(reply, command)),
    }
}

/// Splits the reply of SCAN into the cursor and the keys.
fn scanned(reply: Reply) -> Result<(Vec<u8>, Vec<Vec<u8>>), Failure> {
    let parts = match reply {
        Reply::Array(parts) => parts,
        reply => return Err(wrong(reply, "SCAN")),
    };
    let Ok([Reply::Text(cursor), Reply::Array(names)]) = <[Reply; 2]>::try_from(parts) else {
        return Err(other("SCAN: a reply of another type"));
    };
    let names = names.into_iter().map(|name| text(name, "SCAN")).collect::<Result<_, _>>()?;
    Ok((cursor, names))
}

/// Numbers of the databases, and of their keys, in the lines of INFO.
fn databases_of(info: &str) -> Vec<(u16, u64)> {
    let of = |line: &str| {
        let (number, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
        let digits = rest.split(',').next()?;
        // A number beyond those that can be is one for which there is no room.
        let number = u16::try_from(number.parse::<u64>().ok()?).unwrap_or(u16::MAX);
        Some((number, digits.trim().parse().ok()?))
    };
    info.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_those_of_info() {
        let info = "# Keyspace\r\ndb0:keys=12,expires=1,avg_ttl=5\r\ndb15:keys=3,expires=0,avg_ttl=0\r\ndbx:keys=1\r\n";
        assert_eq!(databases_of(info), [(0, 12), (15, 3)]);
        assert_eq!(databases_of("db70000:keys=2,expires=0"), [(u16::MAX, 2)]);
        assert!(databases_of("").is_empty());
    }

    #[test]
    fn replies_of_scan_are_split() {
        let text = |text: &str| Reply::Text(text.into());
        let names = || Reply::Array(vec![text("a"), text("b")]);
        let Ok((cursor, found)) = scanned(Reply::Array(vec![text("7"), names()])) else {
            panic!("it is one")
        };
        assert_eq!((cursor, found), (b"7".to_vec(), vec![b"a".to_vec(), b"b".to_vec()]));
        for wrong in [
            Reply::Null,
            Reply::Array(vec![text("7")]),
            Reply::Array(vec![names(), names()]),
            Reply::Array(vec![text("7"), names(), text("x")]),
            Reply::Array(vec![text("7"), Reply::Array(vec![Reply::Null])]),
        ] {
            assert!(scanned(wrong).is_err());
        }
    }
}
