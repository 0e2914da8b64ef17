//! Clients of TLS: certificates and versions, all that a connection does, and what ends it.

use crate::client::{Client, Reply, Served, encoded, options};
use karst_server::{Running, ServerOptions, parse_config};
use karst_testkit::tls::{Authority, Identity};
use karstdb::io::Env;
use rustls::{ClientConfig, HandshakeKind, version};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with certificates, and the authority that has signed them.
struct Certificates {
    directory: TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Self {
        let certificates = Self {
            directory: tempfile::tempdir().expect("a directory"),
            authority: Authority::new("authority"),
        };
        certificates.write("ca.crt", &certificates.authority.certificate);
        certificates.write_server(&certificates.authority.identity());
        certificates
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("a text").to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("it is written");
    }

    fn write_server(&self, server: &Identity) {
        self.write("server.crt", &server.certificate);
        self.write("server.key", &server.key);
    }

    /// Options of a server with these certificates and further settings.
    fn options(&self, settings: &[(&str, &str)]) -> ServerOptions {
        let files = [
            ("tls-cert-file", self.path("server.crt")),
            ("tls-key-file", self.path("server.key")),
            ("tls-ca-cert-file", self.path("ca.crt")),
        ];
        let files = files.map(|(name, path)| (name.to_owned(), path.into_bytes()));
        let more = settings.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        ServerOptions {
            tls_listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            settings: files.into_iter().chain(more).collect(),
            ..options()
        }
    }

    /// A client with a certificate.
    fn client(&self) -> Arc<ClientConfig> {
        self.authority.client(Some(&self.authority.identity()), &[])
    }
}

fn address(served: &Served) -> SocketAddr {
    served.running.as_ref().expect("it runs").tls_addresses()[0]
}

fn connect(served: &Served, config: &Arc<ClientConfig>) -> Client {
    Client::connect_tls(address(served), config)
}

/// A server with certificates, whose clients need some too, and options of such clients.
fn start() -> (Served, Arc<ClientConfig>) {
    let certificates = Certificates::new();
    let client = certificates.client();
    // The files are read at the start only.
    (Served::with(&certificates.options(&[])), client)
}

/// Number of connections that TLS has ended.
fn errors(served: &Served) -> u64 {
    let info = served.client().line("INFO stats").text();
    let found = info.lines().find_map(|line| line.strip_prefix("tls_errors:"));
    found.expect("the field").parse().expect("a number")
}

/// Waits until no client is connected but the one that asks.
fn wait_until_alone(served: &Served) {
    let mut client = served.client();
    while !client.line("INFO clients").text().contains("\r\nconnected_clients:1\r\n") {}
}

#[test]
fn both_versions_are_served_beside_plain_clients() {
    let certificates = Certificates::new();
    let served = Served::with(&certificates.options(&[]));
    let client = Some(certificates.authority.identity());
    for version in [&version::TLS12, &version::TLS13] {
        let config = certificates.authority.client(client.as_ref(), &[version]);
        let mut client = connect(&served, &config);
        client.check(&[("PING", "+PONG"), ("SET k v", "+OK"), ("GET k", "\"v\"")]);
        assert_eq!(client.tls().conn.protocol_version(), Some(version.version));
        let local = address(&served);
        let line = client.line("CLIENT INFO").text();
        assert!(line.contains(&format!(" laddr={local} ")), "{line}");
        client.check(&[("QUIT", "+OK")]);
        assert!(client.is_told_the_end());
    }
    served.check(&[("GET k", "\"v\"")]);
    assert_eq!(errors(&served), 0);
}

#[test]
fn clients_have_certificates_as_they_are_asked() {
    let certificates = Certificates::new();
    let stranger = Authority::new("stranger");
    let one = |identity: Option<&Identity>, version| certificates.authority.client(identity, &[version]);
    // With a certificate of the authority, of another, and without one.
    for (asked, expected) in
        [("yes", [true, false, false]), ("optional", [true, false, true]), ("no", [true, true, true])]
    {
        let served = Served::with(&certificates.options(&[("tls-auth-clients", asked)]));
        for version in [&version::TLS12, &version::TLS13] {
            let known = one(Some(&certificates.authority.identity()), version);
            let unknown = one(Some(&stranger.identity()), version);
            let found = [known, unknown, one(None, version)].map(|config| {
                let reply = connect(&served, &config).try_line("PING");
                reply.is_some_and(|reply| reply.to_string() == "+PONG")
            });
            assert_eq!(found, expected, "tls-auth-clients {asked}, {version:?}");
        }
        let refused = expected.iter().filter(|is_served| !**is_served).count();
        wait_until_alone(&served);
        assert_eq!(errors(&served), 2 * refused as u64);
    }
}

#[test]
fn versions_are_those_of_the_setting() {
    let certificates = Certificates::new();
    let served = Served::with(&certificates.options(&[("tls-protocols", "tlsv1.3")]));
    let identity = certificates.authority.identity();
    let client = |version| certificates.authority.client(Some(&identity), &[version]);
    assert!(connect(&served, &client(&version::TLS12)).try_line("PING").is_none());
    connect(&served, &client(&version::TLS13)).check(&[("PING", "+PONG")]);
}

#[test]
fn a_session_is_resumed() {
    let (served, config) = start();
    let kinds = [(); 2].map(|()| {
        let mut client = connect(&served, &config);
        client.check(&[("PING", "+PONG")]);
        client.tls().conn.handshake_kind()
    });
    assert_eq!(kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
}

#[test]
fn a_server_without_usable_certificates_does_not_start() {
    let certificates = Certificates::new();
    certificates.write("empty", "nothing\n");
    certificates.write("other.key", &certificates.authority.identity().key);
    let path = |name: &str| certificates.path(name);
    let cases = [
        (vec![("tls-cert-file", "")], "tls-cert-file is not set"),
        (vec![("tls-key-file", "")], "tls-key-file is not set"),
        (vec![("tls-ca-cert-file", "")], "tls-ca-cert-file is not set: tls-auth-clients is 'yes'"),
        (
            vec![("tls-ca-cert-file", ""), ("tls-auth-clients", "optional")],
            "tls-ca-cert-file is not set: tls-auth-clients is 'optional'",
        ),
        (vec![("tls-cert-file", "/none")], "tls-cert-file /none: "),
    ];
    let cases = cases.into_iter().map(|(settings, why)| {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        (settings.iter().map(owned).collect::<Vec<_>>(), why.to_owned())
    });
    let with_files = [
        ("tls-cert-file", "empty", "it has no certificate in PEM"),
        ("tls-ca-cert-file", "empty", "it has no certificate in PEM"),
        ("tls-key-file", "server.crt", "it has no private key in PEM that is not encrypted"),
        ("tls-key-file", "other.key", &format!("it is not the key of {}", path("server.crt"))),
    ];
    let with_files = with_files.map(|(setting, file, why)| {
        (vec![(setting.to_owned(), path(file))], format!("{setting} {}: {why}", path(file)))
    });
    for (settings, why) in cases.chain(with_files) {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let directory = tempfile::tempdir().expect("a directory");
        let refused = Running::start(directory.path(), &certificates.options(&settings), &Env::posix());
        let refused = refused.expect_err("it does not start").to_string();
        assert!(refused.contains(&why), "{refused}, not {why}");
    }
    let mut open = certificates.options(&[]);
    open.tls_listen = vec![SocketAddr::from(([0, 0, 0, 0], 0))];
    let directory = tempfile::tempdir().expect("a directory");
    let refused = Running::start(directory.path(), &open, &Env::posix()).expect_err("it is open");
    assert!(refused.to_string().contains("needs --requirepass"), "{refused}");
}

#[test]
fn a_password_is_asked_for_as_without_tls() {
    let certificates = Certificates::new();
    let mut options = certificates.options(&[]);
    options.password = "secret".to_owned();
    let served = Served::with(&options);
    connect(&served, &certificates.client()).check(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("AUTH secret", "+OK"),
        ("GET k", "nil"),
    ]);
}

#[test]
fn large_requests_and_replies_go_both_ways() {
    let (served, config) = start();
    let mut client = connect(&served, &config);
    let value: Vec<u8> = (0..20u32 << 20).map(|at| (at % 251) as u8).collect();
    assert_eq!(client.call(&[&b"SET"[..], b"large", &value]).to_string(), "+OK");
    assert_eq!(client.line("GET large"), Reply::Bulk(value));
    // A pipeline of small requests, whose replies fit into no socket.
    let mebibyte = vec![b'x'; 1 << 20];
    assert_eq!(client.call(&[&b"SET"[..], b"k", &mebibyte]).to_string(), "+OK");
    client.send(&encoded(&["GET", "k"]).repeat(64));
    for _ in 0..64 {
        assert_eq!(client.reply(), Some(Reply::Bulk(mebibyte.clone())));
    }
    let mut bytes = Vec::new();
    (0..5000).for_each(|n| bytes.extend(encoded(&["SET", &format!("k{n}"), &n.to_string()])));
    (0..5000).for_each(|n| bytes.extend(encoded(&["GET", &format!("k{n}")])));
    client.send(&bytes);
    (0..5000).for_each(|_| client.expect(&["+OK"]));
    (0..5000).for_each(|n| client.expect(&[&format!("\"{n}\"")]));
}

#[test]
fn requests_come_in_records_of_a_byte() {
    let (served, config) = start();
    let mut client = connect(&served, &config);
    for byte in encoded(&["SET", "k", "a\r\nb"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.reply().expect("a reply").to_string(), "+OK");
    client.check(&[("GET k", "\"a\\r\\nb\"")]);
}

#[test]
fn pushes_come() {
    let (served, config) = start();
    let (mut subscriber, mut publisher) = (connect(&served, &config), connect(&served, &config));
    subscriber.check(&[("SUBSCRIBE news", "[\"subscribe\" \"news\" :1]")]);
    for n in 0..100 {
        publisher.check(&[(&format!("PUBLISH news {n}"), ":1")]);
    }
    for n in 0..100 {
        subscriber.expect(&[&format!("[\"message\" \"news\" \"{n}\"]")]);
    }
    let mut cache = connect(&served, &config);
    assert!(cache.line("HELLO 3").to_string().starts_with('{'));
    cache.check(&[("CLIENT TRACKING ON", "+OK"), ("GET k", "nil")]);
    publisher.check(&[("SET k v", "+OK")]);
    cache.expect(&["(\"invalidate\" [\"k\"])"]);
}

#[test]
fn commands_wait_and_their_clients_leave() {
    let (served, config) = start();
    let (mut waiting, mut other) = (connect(&served, &config), connect(&served, &config));
    // Requests behind the command that waits are kept.
    waiting.send(b"BLPOP list 0\r\nPING\r\n");
    other.wait_for_blocked(1);
    waiting.send(b"PING again\r\n");
    other.check(&[("RPUSH list x", ":1")]);
    waiting.expect(&["[\"list\" \"x\"]", "+PONG", "\"again\""]);
    // The end of a client is seen while its command waits: by a message, and without one.
    for has_message in [true, false] {
        let mut leaving = connect(&served, &config);
        leaving.send(b"BLPOP list 0\r\n");
        other.wait_for_blocked(1);
        if has_message {
            let tls = leaving.tls();
            tls.conn.send_close_notify();
            tls.flush().expect("it is sent");
        }
        drop(leaving);
        other.wait_for_blocked(0);
    }
    let id = waiting.line("CLIENT ID").integer();
    waiting.send(b"BLPOP list 0\r\n");
    other.wait_for_blocked(1);
    other.check(&[(&format!("CLIENT KILL ID {id}"), ":1")]);
    assert!(waiting.is_told_the_end());
}

#[test]
fn bytes_without_tls_end_their_connection() {
    let (served, config) = start();
    let mut client = Client::connect(address(&served));
    client.send(b"PING\r\nPING\r\n");
    // The server sends an alert, and ends the connection.
    while !client.is_closed() {}
    assert_eq!(errors(&served), 1);
    // A client that leaves without a byte, or in the middle of a record, is no error of TLS.
    drop(TcpStream::connect(address(&served)).expect("it listens"));
    let mut half = TcpStream::connect(address(&served)).expect("it listens");
    half.write_all(&[22, 3, 1, 2, 0, 1]).expect("it is sent");
    drop(half);
    wait_until_alone(&served);
    assert_eq!(errors(&served), 1);
    connect(&served, &config).check(&[("PING", "+PONG")]);
}

#[test]
fn a_client_leaves_in_the_middle_of_a_record() {
    let (served, config) = start();
    let mut client = connect(&served, &config);
    client.check(&[("SET k 1", "+OK")]);
    let tls = client.tls();
    tls.conn.writer().write_all(b"SET k 2\r\n").expect("memory");
    let mut record = Vec::new();
    tls.conn.write_tls(&mut record).expect("memory");
    tls.sock.write_all(&record[..record.len() - 1]).expect("it is sent");
    drop(client);
    wait_until_alone(&served);
    served.check(&[("GET k", "\"1\"")]);
    assert_eq!(errors(&served), 0);
}

#[test]
fn keys_are_updated_within_limits() {
    let (served, config) = start();
    let mut client = connect(&served, &config);
    for _ in 0..100 {
        client.check(&[("PING", "+PONG")]);
        client.tls().conn.refresh_traffic_keys().expect("version 1.3");
    }
    client.check(&[("PING", "+PONG")]);
    assert_eq!(errors(&served), 0);
    // The number of updates without requests in between is limited.
    let tls = client.tls();
    while tls.conn.refresh_traffic_keys().is_ok() && tls.flush().is_ok() {}
    drop(client);
    wait_until_alone(&served);
    assert_eq!(errors(&served), 1);
}

#[test]
fn handshakes_are_large_within_limits() {
    let certificates = Certificates::new();
    let served = Served::with(&certificates.options(&[]));
    let names: Vec<String> = (0..1000).map(|n| format!("name-{n:04}.test")).collect();
    // A message of a handshake has 64 KiB at most.
    for (count, is_served) in [(1, true), (3, true), (5, false)] {
        let mut identity = certificates.authority.identity_with(&names);
        identity.certificate = identity.certificate.repeat(count);
        let config = certificates.authority.client(Some(&identity), &[]);
        let reply = connect(&served, &config).try_line("PING");
        assert_eq!(reply.is_some(), is_served, "{count} certificates of {} names", names.len());
    }
}

#[test]
fn more_clients_than_allowed_are_refused() {
    let certificates = Certificates::new();
    let mut options = certificates.options(&[]);
    options.max_clients = 2;
    let served = Served::with(&options);
    let config = certificates.client();
    let mut clients = [connect(&served, &config), connect(&served, &config)];
    clients.iter_mut().for_each(|client| client.check(&[("PING", "+PONG")]));
    assert!(connect(&served, &config).try_line("PING").is_none());
    clients[0].check(&[("PING", "+PONG")]);
    let info = clients[1].line("INFO stats").text();
    assert!(info.contains("\r\nrejected_connections:1\r\n"), "{info}");
}

#[test]
fn the_end_is_told_behind_the_last_replies() {
    let (mut served, config) = start();
    let mut clients: Vec<Client> = (0..20).map(|_| connect(&served, &config)).collect();
    clients.iter_mut().for_each(|client| client.check(&[("PING", "+PONG")]));
    // Some have not ended, or not begun, their handshakes.
    let mut raw: Vec<_> =
        (0..10).map(|_| TcpStream::connect(address(&served)).expect("it listens")).collect();
    raw[..5].iter_mut().for_each(|stream| stream.write_all(&[22, 3, 1, 2, 0]).expect("it is sent"));
    let mut bytes = Vec::new();
    (0..100).for_each(|n| bytes.extend(encoded(&["SET", &format!("k{n}"), "v"])));
    bytes.extend(encoded(&["SHUTDOWN"]));
    clients[0].send(&bytes);
    served.running.as_ref().expect("it runs").wait();
    (0..100).for_each(|_| clients[0].expect(&["+OK"]));
    served.close();
    assert!(clients.iter_mut().all(Client::is_told_the_end));
    assert!(raw.iter_mut().all(|stream| matches!(stream.read(&mut [0]), Ok(0) | Err(_))));
}

#[test]
fn certificates_are_exchanged_while_it_runs() {
    let certificates = Certificates::new();
    let served = Served::with(&certificates.options(&[]));
    let (first, second) = (certificates.client(), Authority::new("second"));
    let of_second = second.client(Some(&second.identity()), &[]);
    let mut before = connect(&served, &first);
    before.check(&[("PING", "+PONG")]);
    let set = |name: &str, file: &str| format!("CONFIG SET {name} {}", certificates.path(file));
    let get = format!("[\"tls-cert-file\" \"{}\"]", certificates.path("server.crt"));
    // A certificate alone, without its key, is refused.
    certificates.write("second.crt", &second.identity().certificate);
    let refused = before.line(&set("tls-cert-file", "second.crt")).to_string();
    let failed = "-ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - tls-key-file ";
    assert!(refused.starts_with(failed), "{refused}");
    before.check(&[("CONFIG GET tls-cert-file", &get)]);
    connect(&served, &first).check(&[("PING", "+PONG")]);
    // New files behind the names of before.
    certificates.write_server(&second.identity());
    certificates.write("ca.crt", &second.certificate);
    before.check(&[(&set("tls-cert-file", "server.crt"), "+OK"), ("CONFIG GET tls-cert-file", &get)]);
    connect(&served, &of_second).check(&[("PING", "+PONG")]);
    assert!(connect(&served, &first).try_line("PING").is_none());
    before.check(&[
        ("CONFIG SET tls-auth-clients no tls-protocols TLSv1.2", "+OK"),
        ("CONFIG GET tls-auth-clients", "[\"tls-auth-clients\" \"no\"]"),
        ("CONFIG GET tls-protocols", "[\"tls-protocols\" \"TLSv1.2\"]"),
        ("PING", "+PONG"),
    ]);
    let mut anyone = connect(&served, &second.client(None, &[]));
    anyone.check(&[("PING", "+PONG")]);
    assert_eq!(anyone.tls().conn.protocol_version(), Some(version::TLS12.version));
    for (line, why) in [
        ("CONFIG SET tls-protocols TLSv1.1", "tls-protocols') - argument(s) must be one or both of"),
        ("CONFIG SET tls-auth-clients maybe", "tls-auth-clients') - argument(s) must be one of"),
        ("CONFIG SET tls-auth-clients yes tls-ca-cert-file /none", "tls-ca-cert-file /none: "),
        ("CONFIG SET tls-port 1", "tls-port') - the only value served is"),
        ("CONFIG SET tls-ciphers x", "Unknown option"),
    ] {
        let reply = before.line(line).to_string();
        assert!(reply.starts_with("-ERR ") && reply.contains(why), "{line}: {reply}");
    }
    before.check(&[("CONFIG GET tls-auth-clients", "[\"tls-auth-clients\" \"no\"]")]);
}

#[test]
fn ports_and_settings_are_told() {
    let certificates = Certificates::new();
    let file = certificates.directory.path().join("karstdb.conf");
    let mut options = certificates.options(&[("tls-auth-clients", "optional")]);
    options.config_file = Some(file.clone());
    let served = Served::with(&options);
    let mut client = connect(&served, &certificates.client());
    let (plain, tls) = (served.address().port(), address(&served).port());
    client.check(&[
        ("CONFIG GET port", &format!("[\"port\" \"{plain}\"]")),
        ("CONFIG GET tls-port", &format!("[\"tls-port\" \"{tls}\"]")),
        ("CONFIG REWRITE", "+OK"),
    ]);
    assert!(client.line("INFO server").text().contains(&format!("\r\ntcp_port:{plain}\r\n")));
    let lines = parse_config(&std::fs::read(file).expect("it is written")).expect("it is right");
    let written: Vec<_> = lines.iter().map(|line| (&*line.name, line.value())).collect();
    for (name, value) in &options.settings {
        assert!(written.contains(&(name, value.clone())), "{name}");
    }
    drop((client, served));
    // Without listeners for plain clients.
    options.listen.clear();
    let served = Served::with(&options);
    let mut client = connect(&served, &certificates.client());
    client.check(&[("CONFIG GET port", "[\"port\" \"0\"]")]);
    let info = client.line("INFO server").text();
    assert!(info.contains(&format!("\r\ntcp_port:{}\r\n", address(&served).port())), "{info}");
}
