//! Operation: copies of the database, idle clients, settings in a file, and DEBUG.

use crate::client::{Client, Served, options};
use karst_server::{Running, ServerOptions, parse_config};
use karstdb::io::Env;
use std::fs;

#[test]
fn a_copy_of_the_database_can_be_served() {
    let directory = tempfile::tempdir().unwrap();
    let served =
        Served::with(&ServerOptions { save_directory: Some(directory.path().to_owned()), ..options() });
    let mut client = served.client();
    client.check(&[
        ("SET a 1", "+OK"),
        ("SAVE", "+OK"),
        ("SET b 2", "+OK"),
        ("SAVE", "+OK"),
        ("SET c 3", "+OK"),
    ]);
    assert!(client.line("LASTSAVE").integer() > 0);
    let copy = Running::start(&directory.path().join("checkpoint"), &options(), &Env::posix()).unwrap();
    Client::connect(copy.addresses()[0]).check(&[("MGET a b c", "[\"1\" \"2\" nil]"), ("DBSIZE", ":2")]);
    copy.shut_down().unwrap();
    client.check(&[("BGSAVE", "+Background saving started"), ("BGSAVE now", "-ERR syntax error")]);
    while client.line("INFO persistence").text().contains("rdb_bgsave_in_progress:1") {}
    assert!(client.line("INFO persistence").text().contains("rdb_last_bgsave_status:ok"));
    let left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["checkpoint"]);
    let why = "-ERR there is no directory for copies of the database: start the server with --save-dir";
    Served::start().check(&[("SAVE", why), ("BGSAVE", why)]);
}

#[test]
fn debug_is_refused_without_the_option() {
    let served = Served::start();
    let refusal = served.client().line("DEBUG SLEEP 0").to_string();
    assert!(refusal.starts_with("-ERR DEBUG command not allowed."), "{refusal}");
    Served::with(&ServerOptions { allow_debug: true, ..options() }).check(&[
        ("DEBUG SLEEP 0", "+OK"),
        ("DEBUG QUICKLIST-PACKED-THRESHOLD 10b", "+OK"),
        ("DEBUG SLEEP x", "-ERR value is not a valid float"),
        ("DEBUG JMAP", "-ERR unknown subcommand or wrong number of arguments for 'jmap'. Try DEBUG HELP."),
    ]);
}

#[test]
fn settings_and_users_come_from_a_file_and_go_into_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("karst.conf");
    fs::write(&path, "# mine\nthreads 2\ntimeout 100\n").unwrap();
    let with = ServerOptions {
        settings: vec![("timeout".to_owned(), b"100".to_vec())],
        users: vec![["me", "on", "nopass", "~a*", "+@all"].map(Into::into).to_vec()],
        config_file: Some(path.clone()),
        ..options()
    };
    let served = Served::with(&with);
    served.check(&[
        ("CONFIG GET timeout", "[\"timeout\" \"100\"]"),
        ("CONFIG SET timeout 7 slowlog-max-len 5 requirepass a'b", "+OK"),
        ("AUTH me any", "+OK"),
        ("GET b", "-NOPERM No permissions to access a key"),
        ("CONFIG REWRITE", "+OK"),
    ]);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<String> = parse_config(text.as_bytes())
        .unwrap()
        .into_iter()
        .map(|line| format!("{} {}", line.name, String::from_utf8(line.value()).unwrap()))
        .collect();
    assert!(text.starts_with("# mine\nthreads 2\ntimeout 7\n"), "{text}");
    for line in
        ["slowlog-max-len 5", "requirepass a'b", "user me on nopass sanitize-payload ~a* resetchannels +@all"]
    {
        assert!(lines.iter().any(|it| it == line), "{line} in {text}");
    }
    assert_eq!(lines.len(), 5, "nothing that is as by default: {text}");
    Served::start().check(&[("CONFIG REWRITE", "-ERR The server is running without a config file")]);
    let wrong = ServerOptions { settings: vec![("nothing".to_owned(), Vec::new())], ..options() };
    let directory = tempfile::tempdir().unwrap();
    assert!(Running::start(&directory.path().join("db"), &wrong, &Env::posix()).is_err());
}

#[test]
fn a_rewritten_file_keeps_the_passwords_of_the_default_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("karst.conf");
    let with = ServerOptions { config_file: Some(path.clone()), password: "revoked".to_owned(), ..options() };
    let mut served = Served::with(&with);
    let mut admin = served.client();
    let lines = || parse_config(&fs::read(&path).unwrap()).unwrap();
    let user =
        || lines().into_iter().filter(|line| line.name == "user").map(|line| line.words).collect::<Vec<_>>();
    admin.check(&[("AUTH revoked", "+OK"), ("CONFIG REWRITE", "+OK")]);
    assert!(user().is_empty(), "requirepass says it");
    admin.check(&[("ACL SETUSER default resetpass >new", "+OK"), ("CONFIG REWRITE", "+OK")]);
    drop(admin);
    served.close();
    served.open(&ServerOptions { users: user(), ..with });
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    served.check(&[
        ("AUTH revoked", wrong),
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH new", "+OK"),
    ]);
}
