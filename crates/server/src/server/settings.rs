//! Settings of a running server: what CONFIG GET and CONFIG SET know.
//!
//! Lock: the mutexes of the password, of the limits of pushes and of TLS, for a comparison or a
//! copy.

use super::forms::Forms;
use super::mailbox::OutputLimit;
use super::operation::{OperationSetting, OperationSettings, SwitchSetting};
use super::users::PASSWORD_AT_MOST;
use crate::numbers::integer_within;
use crate::resp::Limits;
use crate::store::{Classes, Durability, Interests};
use crate::tls::TlsSettings;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// When a write is on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendSync {
    /// Before it is answered.
    Always,
    /// About a second after it was answered.
    #[default]
    EverySecond,
    /// When the operating system writes it.
    No,
}

impl AppendSync {
    /// Its name in Redis' configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::No => "no",
        }
    }

    /// The setting of this name, or `None`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Always, Self::EverySecond, Self::No].into_iter().find(|of| of.name() == name)
    }
}

/// Settings, changed by CONFIG SET while the server runs.
#[derive(Debug)]
pub(crate) struct Settings {
    append_sync: AtomicU8,
    max_clients: AtomicU64,
    argument_at_most: AtomicU64,
    request_at_most: AtomicU64,
    password: Mutex<Vec<u8>>,
    pubsub_limit: Mutex<OutputLimit>,
    slower_than: AtomicI64,
    slow_log_length: AtomicU64,
    tracked_keys: AtomicU64,
    script_time: AtomicU64,
    client_memory: AtomicU64,
    forms: Forms,
    operation: OperationSettings,
    tls: Mutex<TlsSettings>,
    /// Holder of `notify-keyspace-events`.
    interests: Arc<Interests>,
}

/// Settings that CONFIG SET changes, by Redis' names; others that CONFIG GET knows are fixed.
const CHANGEABLE: [&str; 13] = [
    "busy-reply-threshold",
    "lua-time-limit",
    "appendfsync",
    "maxclients",
    "requirepass",
    "proto-max-bulk-len",
    "client-query-buffer-limit",
    "client-output-buffer-limit",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "notify-keyspace-events",
    "tracking-table-max-keys",
    "maxmemory-clients",
];

/// Maximum of `maxclients`, which is in its error text.
const CLIENTS_AT_MOST: i64 = u32::MAX as i64;
/// Default of `slowlog-log-slower-than`, in microseconds.
const SLOWER_THAN: i64 = 10_000;
/// Default of `slowlog-max-len`.
const SLOW_LOG_LENGTH: u64 = 128;
/// Default of `tracking-table-max-keys`.
const TRACKED_KEYS: u64 = 1_000_000;
/// Default of `busy-reply-threshold`, in milliseconds.
const SCRIPT_TIME: u64 = 5000;
/// Minimum of a size in bytes, which is in its error text.
const MEBIBYTE: u64 = 1 << 20;
/// Maximum of a size in bytes, which is in its error text.
const SIZE_AT_MOST: u64 = i64::MAX as u64;

impl Settings {
    pub(crate) fn new(
        append_sync: AppendSync,
        max_clients: usize,
        password: &str,
        interests: Arc<Interests>,
    ) -> Self {
        let limits = Limits::default();
        Self {
            append_sync: AtomicU8::new(append_sync as u8),
            max_clients: AtomicU64::new(max_clients as u64),
            argument_at_most: AtomicU64::new(limits.argument as u64),
            request_at_most: AtomicU64::new(limits.request as u64),
            password: Mutex::new(password.as_bytes().to_vec()),
            pubsub_limit: Mutex::default(),
            slower_than: AtomicI64::new(SLOWER_THAN),
            slow_log_length: AtomicU64::new(SLOW_LOG_LENGTH),
            tracked_keys: AtomicU64::new(TRACKED_KEYS),
            script_time: AtomicU64::new(SCRIPT_TIME),
            client_memory: AtomicU64::new(0),
            forms: Forms::default(),
            operation: OperationSettings::default(),
            tls: Mutex::default(),
            interests,
        }
    }

    pub(crate) fn append_sync(&self) -> AppendSync {
        match self.append_sync.load(Ordering::Relaxed) {
            0 => AppendSync::Always,
            1 => AppendSync::EverySecond,
            _ => AppendSync::No,
        }
    }

    /// When a commit returns.
    pub(crate) fn durability(&self) -> Durability {
        match self.append_sync() {
            AppendSync::Always => Durability::Synced,
            AppendSync::EverySecond | AppendSync::No => Durability::Logged,
        }
    }

    pub(crate) fn max_clients(&self) -> usize {
        self.max_clients.load(Ordering::Relaxed) as usize
    }

    /// Limits of requests of clients that have authenticated themselves.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            argument: self.argument_at_most.load(Ordering::Relaxed) as usize,
            request: self.request_at_most.load(Ordering::Relaxed) as usize,
            is_stranger: false,
        }
    }

    /// Limits of the pushes that wait for a client.
    pub(crate) fn pubsub_limit(&self) -> OutputLimit {
        *self.pubsub_limit.lock()
    }

    /// Time from which on a command is slow; `None`: none is.
    pub(crate) fn slower_than(&self) -> Option<Duration> {
        u64::try_from(self.slower_than.load(Ordering::Relaxed)).ok().map(Duration::from_micros)
    }

    /// Maximum number of entries of the list of slow commands.
    pub(crate) fn slow_log_length(&self) -> usize {
        usize::try_from(self.slow_log_length.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Maximum number of keys whose readers are noted for client-side caching; 0: no limit.
    pub(crate) fn tracked_keys(&self) -> usize {
        usize::try_from(self.tracked_keys.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Time from which on a script keeps others from being served; `None`: never.
    pub(crate) fn script_time(&self) -> Option<Duration> {
        let millis = self.script_time.load(Ordering::Relaxed);
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Maximum memory of all clients together, in bytes; 0: no limit.
    pub(crate) fn client_memory(&self) -> u64 {
        self.client_memory.load(Ordering::Relaxed)
    }

    pub(crate) fn set_client_memory(&self, bytes: u64) {
        self.client_memory.store(bytes, Ordering::Relaxed);
    }

    /// Settings of the forms that OBJECT ENCODING names.
    pub(crate) fn forms(&self) -> &Forms {
        &self.forms
    }

    /// Maximum number of entries of ACL LOG.
    pub(crate) fn acl_log_length(&self) -> usize {
        usize::try_from(self.operation.get(OperationSetting::AclLogLength)).unwrap_or(usize::MAX)
    }

    /// True if new users may use all channels.
    pub(crate) fn allows_channels(&self) -> bool {
        self.operation.is_on(SwitchSetting::AllChannels)
    }

    /// Settings of operation.
    pub(crate) fn operation(&self) -> &OperationSettings {
        &self.operation
    }

    /// Settings of TLS.
    pub(crate) fn tls(&self) -> TlsSettings {
        self.tls.lock().clone()
    }

    /// Changeable settings and their values, for CONFIG GET.
    pub(crate) fn values(&self) -> Vec<(&'static str, String)> {
        let limits = self.limits();
        let value = |name| match name {
            "appendfsync" => self.append_sync().name().to_owned(),
            "slowlog-log-slower-than" => self.slower_than.load(Ordering::Relaxed).to_string(),
            "slowlog-max-len" => self.slow_log_length().to_string(),
            "busy-reply-threshold" | "lua-time-limit" => self.script_time.load(Ordering::Relaxed).to_string(),
            "maxclients" => self.max_clients().to_string(),
            "maxmemory-clients" => self.client_memory().to_string(),
            "tracking-table-max-keys" => self.tracked_keys().to_string(),
            "notify-keyspace-events" => self.interests.classes().to_string(),
            "requirepass" => String::from_utf8_lossy(&self.password.lock()).into_owned(),
            "proto-max-bulk-len" => limits.argument.to_string(),
            "client-output-buffer-limit" => {
                let OutputLimit { hard, soft, soft_seconds } = self.pubsub_limit();
                format!("normal 0 0 0 slave 0 0 0 pubsub {hard} {soft} {soft_seconds}")
            }
            _ => limits.request.to_string(),
        };
        let mut values = CHANGEABLE.map(|name| (name, value(name))).to_vec();
        values.extend(self.forms.values());
        values.extend(self.operation.values());
        values.extend(self.tls.lock().values());
        values
    }

    /// Sets one by its name.
    ///
    /// # Errors
    /// Why the value cannot be; `None`: there is no changeable setting of that name. Nothing has
    /// changed.
    pub(crate) fn set(&self, name: &str, value: &[u8]) -> Result<(), Option<&'static str>> {
        self.assign(name, value, true)
    }

    /// Checks as [`set`](Self::set) does, and changes nothing.
    pub(crate) fn check(&self, name: &str, value: &[u8]) -> Result<(), Option<&'static str>> {
        self.assign(name, value, false)
    }

    fn assign(&self, name: &str, value: &[u8], does: bool) -> Result<(), Option<&'static str>> {
        let text = String::from_utf8_lossy(value);
        let store = |to: &AtomicU64, number: u64| {
            if does {
                to.store(number, Ordering::Relaxed);
            }
            Ok(())
        };
        let memory = |to: &AtomicU64| {
            let number = size(&text).ok_or(Some("argument must be a memory value"))?;
            match number {
                MEBIBYTE..=SIZE_AT_MOST => store(to, number),
                _ => Err(Some("argument must be between 1048576 and 9223372036854775807 inclusive")),
            }
        };
        match name {
            "appendfsync" => {
                let chosen = AppendSync::from_name(&text.to_ascii_lowercase());
                let chosen =
                    chosen.ok_or(Some("argument(s) must be one of the following: everysec, always, no"))?;
                if does {
                    self.append_sync.store(chosen as u8, Ordering::Relaxed);
                }
                Ok(())
            }
            "maxclients" => {
                let wrong = "argument must be between 1 and 4294967295 inclusive";
                let number = integer_within(value, 1, CLIENTS_AT_MOST, wrong)?;
                store(&self.max_clients, number.cast_unsigned())
            }
            "slowlog-log-slower-than" => {
                let wrong = "argument must be between -1 and 9223372036854775807 inclusive";
                let number = integer_within(value, -1, i64::MAX, wrong)?;
                if does {
                    self.slower_than.store(number, Ordering::Relaxed);
                }
                Ok(())
            }
            "slowlog-max-len" | "tracking-table-max-keys" => {
                let wrong = "argument must be between 0 and 9223372036854775807 inclusive";
                let number = integer_within(value, 0, i64::MAX, wrong)?;
                let is_of_log = name == "slowlog-max-len";
                let to = if is_of_log { &self.slow_log_length } else { &self.tracked_keys };
                store(to, number.cast_unsigned())
            }
            "notify-keyspace-events" => {
                let wrong = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                let classes = Classes::parse(value).ok_or(Some(wrong))?;
                if does {
                    self.interests.set_classes(classes);
                }
                Ok(())
            }
            "busy-reply-threshold" | "lua-time-limit" => {
                let wrong = "argument must be between 0 and 9223372036854775807 inclusive";
                let number = integer_within(value, 0, i64::MAX, wrong)?;
                store(&self.script_time, number.cast_unsigned())
            }
            "maxmemory-clients" => {
                let number = size(&text).filter(|number| *number <= SIZE_AT_MOST);
                store(&self.client_memory, number.ok_or(Some("argument must be a memory value"))?)
            }
            "proto-max-bulk-len" => memory(&self.argument_at_most),
            "client-query-buffer-limit" => memory(&self.request_at_most),
            "client-output-buffer-limit" => {
                let limit = output_limit(&text, self.pubsub_limit()).map_err(Some)?;
                if does {
                    *self.pubsub_limit.lock() = limit;
                }
                Ok(())
            }
            "requirepass" => {
                if value.len() > PASSWORD_AT_MOST {
                    return Err(Some("a password has 4096 bytes at most"));
                }
                // A file of settings is to have it.
                if std::str::from_utf8(value).is_err() {
                    return Err(Some("argument must be UTF-8"));
                }
                if does {
                    *self.password.lock() = value.to_vec();
                }
                Ok(())
            }
            _ if name.starts_with("tls-") => {
                let mut tls = self.tls();
                tls.assign(name, value)?;
                if does {
                    *self.tls.lock() = tls;
                }
                Ok(())
            }
            _ => match self.operation.assign(name, value, does) {
                Err(None) => self.forms.assign(name, value, does),
                known => known,
            },
        }
    }
}

/// Parses `client-output-buffer-limit`: a class of clients and three limits, any number of times.
/// Returns the limits of pushes, which are `known` if no class is theirs.
fn output_limit(text: &str, known: OutputLimit) -> Result<OutputLimit, &'static str> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    let mut limit = known;
    for class in words.chunks_exact(4) {
        let wrong = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let (hard, soft) = (size(class[1]).ok_or(wrong)?, size(class[2]).ok_or(wrong)?);
        let given = OutputLimit { hard, soft, soft_seconds: class[3].parse().map_err(|_| wrong)? };
        let is_none = given.hard == 0 && given.soft == 0;
        match &*class[0].to_ascii_lowercase() {
            "pubsub" => limit = given,
            "normal" | "slave" | "replica" if is_none => {}
            "normal" | "slave" | "replica" => return Err("only the class pubsub can have a limit"),
            _ => return Err("Invalid client class specified in buffer limit configuration."),
        }
    }
    Ok(limit)
}

/// Parses a number of bytes, with Redis' units (`100mb` has 1024s, `100m` has 1000s) or those of
/// IEC (`100MiB`), in any case. `None`: it is no such number, or has more than 64 bits.
pub fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let units = [
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("k", 1000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
    ];
    let found = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = found.unwrap_or((text.strip_suffix('b').unwrap_or(&text), 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("512mb"), Some(512 << 20));
        assert_eq!(size("1K"), Some(1000));
        assert_eq!((size("1GiB"), size("3kib"), size("2MiB")), (Some(1 << 30), Some(3072), Some(2 << 20)));
        assert_eq!(size("17"), Some(17));
        assert_eq!(size("17b"), Some(17));
        assert_eq!(size("x"), None);
        assert_eq!(size("99999999999gb"), None);
    }

    #[test]
    fn the_limit_of_pushes_is_that_of_its_class() {
        let known = OutputLimit::default();
        let limit = output_limit("normal 0 0 0 pubsub 1mb 2kb 3", known).unwrap();
        assert_eq!(limit, OutputLimit { hard: 1 << 20, soft: 2 << 10, soft_seconds: 3 });
        assert_eq!((output_limit("", known), output_limit("slave 0 0 60", known)), (Ok(known), Ok(known)));
        for wrong in ["pubsub 1", "pubsub x 0 0", "pubsub 0 0 -1", "other 0 0 0", "normal 1 0 0"] {
            assert!(output_limit(wrong, known).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_value_changes_nothing() {
        let settings = Settings::new(AppendSync::Always, 10, "", Arc::default());
        assert!(settings.set("maxclients", b"0").is_err());
        assert!(settings.set("appendfsync", b"sometimes").is_err());
        assert_eq!(settings.set("nothing", b"1"), Err(None));
        assert_eq!((settings.max_clients(), settings.append_sync()), (10, AppendSync::Always));
        let why = |name, value: &str| settings.set(name, value.as_bytes()).unwrap_err().unwrap();
        assert_eq!(why("maxclients", "1kb"), "argument couldn't be parsed into an integer");
        assert_eq!(why("maxclients", "4294967296"), "argument must be between 1 and 4294967295 inclusive");
        assert_eq!(why("proto-max-bulk-len", "x"), "argument must be a memory value");
        let range = "argument must be between 1048576 and 9223372036854775807 inclusive";
        assert_eq!(why("proto-max-bulk-len", "1kb"), range);
        assert_eq!(why("client-query-buffer-limit", "9223372036854775808"), range);
        settings.set("requirepass", b"secret").unwrap();
        assert!(settings.values().contains(&("requirepass", "secret".to_owned())));
    }
}
