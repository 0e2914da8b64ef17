//! Users and their rights.

use crate::client::{Client, Served, options};
use karst_server::{Running, ServerOptions};
use karstdb::ErrorKind;
use karstdb::io::Env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// A client that is a user with the password `pw`, made with these rules.
fn user(served: &Served, name: &str, rules: &str) -> Client {
    served.check(&[(&format!("ACL SETUSER {name} on >pw {rules}"), "+OK")]);
    let mut client = served.client();
    client.check(&[(&format!("AUTH {name} pw"), "+OK")]);
    client
}

const NO_KEY: &str = "-NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel";

#[test]
fn a_user_is_made_and_authenticates_itself() {
    let served = Served::start();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    served.check(&[
        ("ACL SETUSER me >pw", "+OK"),
        ("AUTH me pw", wrong),
        ("ACL SETUSER me on +acl|whoami +get", "+OK"),
        ("AUTH me never", wrong),
        ("HELLO 2 AUTH me never", wrong),
        ("ACL USERS", "[\"default\" \"me\"]"),
        ("AUTH me pw", "+OK"),
        ("ACL WHOAMI", "\"me\""),
        ("ACL USERS", "-NOPERM User me has no permissions to run the 'acl|users' command"),
        ("GET k", NO_KEY),
        ("SET k v", "-NOPERM User me has no permissions to run the 'set' command"),
        ("NOTHING", "-ERR unknown command 'NOTHING', with args beginning with: "),
        ("RESET", "+RESET"),
        ("ACL WHOAMI", "\"default\""),
        ("ACL GETUSER nobody", "nil"),
        ("ACL SETUSER a\tb", "-ERR Usernames can't contain spaces or null characters"),
        (
            "ACL SETUSER me +none",
            "-ERR Error in ACL SETUSER modifier '+none': Unknown command or category name in ACL",
        ),
        ("ACL SETUSER me (+get", "-ERR Unmatched parenthesis in acl selector starting at '(+get'."),
    ]);
    let mut client = served.client();
    client.send_command(&["HELLO", "3", "AUTH", "me", "pw"]);
    assert!(client.reply().is_some());
    client.check(&[("ACL WHOAMI", "\"me\"")]);
}

#[test]
fn keys_and_channels_are_checked_by_their_patterns() {
    let served = Served::start();
    let mut client = user(&served, "me", "+@all ~a* %R~r* %W~w* &news*");
    client.check(&[
        ("SET a1 x", "+OK"),
        ("SET r1 x", NO_KEY),
        ("GET r1", "nil"),
        ("SET w1 x", "+OK"),
        ("GET w1", NO_KEY),
        ("SET w1 x GET", NO_KEY),
        ("MGET a1 b1", NO_KEY),
        ("COPY a1 w2", ":1"),
        ("COPY w1 a2", NO_KEY),
        ("EXISTS w1", ":1"),
        ("SORT a BY w*", "-ERR BY option of SORT denied due to insufficient ACL permissions."),
        ("SORT a GET w*", "-ERR GET option of SORT denied due to insufficient ACL permissions."),
        ("PUBLISH news1 x", ":0"),
        ("PUBLISH other x", NO_CHANNEL),
        ("SSUBSCRIBE other", NO_CHANNEL),
        ("PSUBSCRIBE new*", NO_CHANNEL),
        ("PSUBSCRIBE news*", "[\"psubscribe\" \"news*\" :1]"),
    ]);
}

#[test]
fn a_pipeline_is_checked_command_by_command() {
    let served = Served::start();
    let mut client = user(&served, "me", "+@all -incr ~a*");
    let denied = "-NOPERM User me has no permissions to run the 'incr' command";
    for (line, replies) in [
        ("SET a 1,SET b 1,SET aa 2,INCR a", ["+OK", NO_KEY, "+OK", denied]),
        ("GET a,GET b,GET aa,GET c", ["\"1\"", NO_KEY, "\"2\"", NO_KEY]),
    ] {
        let bytes: Vec<u8> = line
            .split(',')
            .flat_map(|line| crate::client::encoded(&line.split(' ').collect::<Vec<_>>()))
            .collect();
        client.send(&bytes);
        client.expect(&replies);
    }
    served.check(&[("EXISTS b", ":0")]);
}

#[test]
fn a_change_applies_to_clients_that_are_connected() {
    let served = Served::start();
    let mut client = user(&served, "me", "+get +set +multi +exec ~*");
    client.check(&[("SET k v", "+OK"), ("MULTI", "+OK"), ("SET k w", "+QUEUED"), ("GET k", "+QUEUED")]);
    served.check(&[("ACL SETUSER me -set", "+OK")]);
    let exec = client.line("EXEC").to_string();
    assert!(exec.starts_with("[-NOPERM ACLs rules changed between the moment the transaction"), "{exec}");
    assert!(exec.ends_with(" \"v\"]"), "{exec}");
    client.check(&[
        ("MULTI", "+OK"),
        ("SET k w", "-NOPERM User me has no permissions to run the 'set' command"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
    let mut subscriber = user(&served, "reader", "+@all resetchannels &a &b");
    subscriber.check(&[("SUBSCRIBE a", "[\"subscribe\" \"a\" :1]")]);
    served.check(&[("ACL SETUSER reader resetchannels &a &c", "+OK")]);
    subscriber.check(&[("SUBSCRIBE c", "[\"subscribe\" \"c\" :2]")]);
    served.check(&[("ACL SETUSER reader resetchannels &c", "+OK")]);
    assert!(subscriber.is_closed());
    served.check(&[
        ("ACL DELUSER me nobody", ":1"),
        ("ACL DELUSER default", "-ERR The 'default' user cannot be removed"),
    ]);
    assert!(client.is_closed());
}

#[test]
fn a_command_that_waits_is_checked_when_it_goes_on() {
    let served = Served::start();
    let mut client = user(&served, "me", "+blpop ~*");
    client.send_command(&["BLPOP", "list", "0"]);
    let mut other = served.client();
    while !other.line("INFO clients").text().contains("blocked_clients:1") {}
    other.check(&[("ACL SETUSER me -blpop", "+OK"), ("RPUSH list x", ":1")]);
    client.expect(&["-NOPERM User me has no permissions to run the 'blpop' command"]);
    other.check(&[("LLEN list", ":1")]);
}

#[test]
fn the_default_user_can_be_closed() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("ACL SETUSER admin on nopass ~* &* +@all", "+OK"), ("AUTH admin any", "+OK")]);
    client.check(&[("ACL SETUSER default off", "+OK")]);
    let mut other = served.client();
    other.check(&[("PING", "-NOAUTH Authentication required."), ("AUTH admin x", "+OK"), ("PING", "+PONG")]);
    let mut waiting = served.client();
    waiting.check(&[("PING", "-NOAUTH Authentication required.")]);
    client.check(&[("ACL SETUSER default on", "+OK"), ("CONFIG SET requirepass secret", "+OK")]);
    waiting.check(&[("PING", "-NOAUTH Authentication required."), ("AUTH secret", "+OK"), ("PING", "+PONG")]);
    client.check(&[("CONFIG SET requirepass ", "+OK")]);
    served.client().check(&[("PING", "+PONG")]);
}

#[test]
fn refusals_are_logged() {
    let served = Served::start();
    let mut client = user(&served, "me", "+get +multi +exec ~a");
    for line in ["SET k v", "SET k v", "GET k", "MULTI", "SET k v", "EXEC", "AUTH me wrong"] {
        client.line(line);
    }
    let mut admin = served.client();
    let log = admin.line("ACL LOG").to_string();
    for part in [
        "\"count\" :2 \"reason\" \"command\" \"context\" \"toplevel\" \"object\" \"set\" \"username\" \"me\"",
        "\"reason\" \"key\" \"context\" \"toplevel\" \"object\" \"k\"",
        "\"reason\" \"command\" \"context\" \"multi\" \"object\" \"set\"",
        "\"reason\" \"auth\" \"context\" \"toplevel\" \"object\" \"AUTH\"",
        " user=me ",
    ] {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert_eq!(admin.line("ACL LOG 1").list().len(), 1);
    admin.check(&[("ACL LOG RESET", "+OK"), ("ACL LOG", "[]"), ("CONFIG SET acllog-max-len 1", "+OK")]);
    for line in ["GET x", "GET y"] {
        client.line(line);
    }
    assert_eq!(admin.line("ACL LOG").list().len(), 1);
}

#[test]
fn a_dry_run_says_what_would_be_refused() {
    Served::start().check(&[
        ("ACL SETUSER me +@all -get %R~r &c", "+OK"),
        ("ACL DRYRUN me MGET r", "+OK"),
        ("ACL DRYRUN me GET r", "\"User me has no permissions to run the \\'get\\' command\""),
        ("ACL DRYRUN me SET r x", "\"User me has no permissions to access the \\'r\\' key\""),
        ("ACL DRYRUN me PUBLISH d x", "\"User me has no permissions to access the \\'d\\' channel\""),
        ("ACL DRYRUN me MGET", "-ERR wrong number of arguments for 'mget' command"),
        ("ACL DRYRUN me NOTHING", "-ERR Command 'NOTHING' not found"),
        ("ACL DRYRUN nobody GET r", "-ERR User 'nobody' not found"),
    ]);
}

#[test]
fn a_script_asks_what_its_user_may_do() {
    let served = Served::start();
    let mut client = user(&served, "me", "+eval +acl|log +get +mget ~a &c");
    let mut asked = |command: &str| {
        client.call(&["EVAL", &format!("return redis.acl_check_cmd({command})"), "0"]).to_string()
    };
    assert_eq!((asked("'get', 'a'"), asked("'MGET', 'a', 'a'")), (":1".into(), ":1".into()));
    assert_eq!((asked("'get', 'b'"), asked("'mget', 'a', 'b'")), ("nil".into(), "nil".into()));
    assert_eq!((asked("'set', 'a', 1"), asked("'acl', 'whoami'")), ("nil".into(), "nil".into()));
    for wrong in ["'nothing'", "'get'", "'acl', 'nothing'"] {
        assert!(asked(wrong).starts_with("-ERR Invalid command passed to redis.acl_check_cmd()"), "{wrong}");
    }
    // A question is no refusal.
    served.check(&[("ACL LOG", "[]")]);
    let mut admin = served.client();
    assert_eq!(admin.call(&["EVAL", "return redis.acl_check_cmd('set', 'x', 1)", "0"]).to_string(), ":1");
}

#[test]
fn clients_are_listed_and_ended_by_their_user() {
    let served = Served::start();
    let mut client = user(&served, "me", "+client|info");
    assert!(client.line("CLIENT INFO").text().contains(" user=me "));
    served.check(&[("CLIENT KILL USER me", ":1")]);
    assert!(client.is_closed());
}

fn with_file(path: &Path) -> ServerOptions {
    ServerOptions { acl_file: Some(path.to_owned()), ..options() }
}

#[test]
fn users_are_saved_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.acl");
    fs::write(&path, "user me on >pw ~a* +@all\nuser default on nopass ~* &* +@all\n").unwrap();
    let served = Served::with(&with_file(&path));
    let (mut client, mut admin) = (served.client(), served.client());
    client.check(&[("AUTH me pw", "+OK"), ("GET b", NO_KEY)]);
    admin.check(&[("ACL SETUSER other on nopass (+get ~x)", "+OK"), ("ACL SAVE", "+OK")]);
    let saved = fs::read_to_string(&path).unwrap();
    assert!(
        saved.contains(
            "user other on nopass sanitize-payload resetchannels -@all (~x resetchannels -@all +get)"
        )
    );
    let mut other = served.client();
    other.check(&[("AUTH other x", "+OK")]);
    fs::write(&path, "user me on >pw ~b* +@all\n").unwrap();
    admin.check(&[("ACL LOAD", "+OK"), ("ACL USERS", "[\"default\" \"me\"]")]);
    client.check(&[("GET b", "nil")]);
    assert!(other.is_closed());
    fs::write(&path, "user me\nuser me\n").unwrap();
    let wrong = admin.line("ACL LOAD").to_string();
    assert!(wrong.starts_with("-ERR WARNING: Duplicate user 'me' found on line 2. "), "{wrong}");
    client.check(&[("GET b", "nil")]);
    Served::start().check(&[("ACL SAVE", "-ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.")]);
}

#[test]
fn a_file_without_the_default_user_keeps_its_password() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.acl");
    fs::write(&path, "user me on >pw ~* +@all\n").unwrap();
    let needed = "-NOAUTH Authentication required.";
    let with = ServerOptions { password: "secret".to_owned(), ..with_file(&path) };
    let served = Served::with(&with);
    let mut admin = served.client();
    admin.check(&[("PING", needed), ("AUTH secret", "+OK"), ("ACL LOAD", "+OK"), ("PING", "+PONG")]);
    served.check(&[
        ("PING", needed),
        ("AUTH default any", "-WRONGPASS invalid username-password pair or user is disabled."),
    ]);
    admin.check(&[("CONFIG SET requirepass other", "+OK"), ("ACL LOAD", "+OK")]);
    served.check(&[("AUTH other", "+OK"), ("PING", "+PONG")]);
}

#[test]
fn an_address_for_others_needs_a_password_of_the_default_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.acl");
    let listen = vec![SocketAddr::from(([0, 0, 0, 0], 0))];
    let start = |with: ServerOptions| {
        let with = ServerOptions { listen: listen.clone(), ..with };
        Running::start(&directory.path().join("db"), &with, &Env::posix())
            .map(drop)
            .map_err(|error| error.kind())
    };
    fs::write(&path, "user default on nopass ~* &* +@all\n").unwrap();
    let password = "secret".to_owned();
    assert_eq!(start(options()), Err(ErrorKind::InvalidArgument));
    assert_eq!(start(ServerOptions { password, ..with_file(&path) }), Err(ErrorKind::InvalidArgument));
    fs::write(&path, "user default on >pw ~* &* +@all\n").unwrap();
    assert_eq!(start(with_file(&path)), Ok(()));
    let user = vec![["default", "off"].map(Into::into).to_vec()];
    assert_eq!(start(ServerOptions { users: user, ..options() }), Ok(()));
}

#[test]
fn buffered_commands_of_a_deleted_user_are_refused() {
    let served = Served::start();
    let mut client = user(&served, "me", "~* &* +@all");
    let lines = ["MULTI", "ACL DELUSER me", "SET k v", "EXEC", "SET k v"];
    client.send(&lines.map(|line| crate::client::encoded(&line.split(' ').collect::<Vec<_>>())).concat());
    while client.reply().is_some() {}
    served.check(&[("EXISTS k", ":0"), ("ACL USERS", "[\"default\"]")]);
}
