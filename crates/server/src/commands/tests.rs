//! Commits of several commands when the store fails, and their size.

use super::*;
use crate::rdb::Writer;
use crate::resp::Protocol;
use crate::server::ServerOptions;
use futures_util::future::join;
use karstdb::io::{Env, MemoryFileSystem, block_on};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Runs a test with a server that nobody listens for, whose key `bad` is damaged, and a session.
fn with_server(test: impl AsyncFnOnce(&Server, &Session)) {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    block_on(&env, async {
        let server = Server::open(Path::new("/db"), &ServerOptions::default(), &env).await.unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let connected =
            server.clients().add(nowhere, nowhere, server.users().default(), env.now(), 1).unwrap();
        let session = Session::new(connected.client.clone());
        server.store().db().put(b"\0\0bad", b"\x07").unwrap();
        test(&server, &session).await;
    });
}

/// Splits a line into arguments.
pub(super) fn words(line: &str) -> Request {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn lines(mut out: Encoder) -> Vec<String> {
    let text = String::from_utf8(out.take()).unwrap();
    text.lines().map(|line| line.get(..16).unwrap_or(line).to_owned()).collect()
}

async fn one(server: &Server, session: &Session, mut args: Request) -> Vec<String> {
    let mut out = Encoder::new(Protocol::Two);
    execute(server, session, &mut args, &mut out).await;
    lines(out)
}

async fn line(server: &Server, session: &Session, line: &str) -> Vec<String> {
    one(server, session, words(line)).await
}

async fn writers(server: &Server, session: &Session, requests: &[Request]) -> Vec<String> {
    let mut out = Encoder::new(Protocol::Two);
    execute_writers(server, session, requests, &mut out).await;
    lines(out)
}

/// Beginning of the reply for the damaged key.
const DAMAGED: &str = "-ERR corruption:";

#[test]
fn a_run_of_writers_loses_all_that_a_failure_was_to_be_committed_with() {
    with_server(async |server, session| {
        line(server, session, "SET good 1").await;
        let run = ["SET x 1", "INCR good", "DEL good bad", "SET y 1", "HSET y f v", "INCR good"].map(words);
        let replies = writers(server, session, &run).await;
        let (lost, kept) = replies.split_at(3);
        assert_eq!(lost, [DAMAGED; 3]);
        assert_eq!(kept, ["+OK", "-WRONGTYPE Opera", ":2"]);
        let found = line(server, session, "MGET good x y").await;
        assert_eq!(found, ["*3", "$1", "2", "$-1", "$1", "1"]);
        assert_eq!(server.store().size(0), 2);
    });
}

#[test]
fn nothing_runs_beside_the_command_that_caching_is_for() {
    with_server(async |server, session| {
        let read = words("GET a");
        assert_eq!(company(&read, session), Company::Readers);
        line(server, session, "CLIENT TRACKING ON OPTIN").await;
        line(server, session, "CLIENT CACHING YES").await;
        assert_eq!(company(&read, session), Company::Alone);
        line(server, session, "GET a").await;
        assert_eq!(company(&read, session), Company::Readers);
    });
}

#[test]
fn a_refused_command_leaves_nothing_to_commit() {
    with_server(async |server, session| {
        // More than one trim may remove in a test.
        for id in 1..=1100 {
            line(server, session, &format!("XADD s {id}-1 f v")).await;
        }
        let refused = "-ERR more than 4";
        let run = ["XADD s MAXLEN 10 5000-1 f v", "SET a 1"].map(words);
        assert_eq!(writers(server, session, &run).await, [refused, "+OK"]);
        for queued in ["MULTI", "XADD s MAXLEN 10 5000-1 f v", "SET b 1"] {
            line(server, session, queued).await;
        }
        assert_eq!(line(server, session, "EXEC").await, ["*2", refused, "+OK"]);
        let script = "redis.pcall('xadd','s','maxlen',10,'5000-1','f','v');redis.call('set','c',1)";
        assert_eq!(line(server, session, &format!("EVAL {script} 0")).await, ["$-1"]);
        assert_eq!(line(server, session, "EXISTS a b c").await, [":3"]);
        assert_eq!(line(server, session, "XADD s 6000-1 f v").await, ["$6", "6000-1"]);
        assert_eq!(line(server, session, "XLEN s").await, [":1101"]);
        let last = line(server, session, "XREVRANGE s + - COUNT 2").await;
        assert_eq!((&*last[3], &*last[11]), ("6000-1", "1100-1"), "{last:?}");
        assert_eq!(line(server, session, "XTRIM s MAXLEN ~ 500 LIMIT 600").await, [":600"]);
    });
}

#[test]
fn neighbouring_gets_answer_and_fail_each_by_itself() {
    with_server(async |server, session| {
        for before in ["SET good 1", "RPUSH list x", "SET late 2 PXAT 1"] {
            line(server, session, before).await;
        }
        let run = ["GET good", "get bad", "Get list", "GET none", "GET late", "GET good", "STRLEN good"];
        let run = run.map(words);
        assert_eq!(gets(session, &run), 6, "STRLEN is none");
        let mut out = Encoder::new(Protocol::Two);
        let (commands, errors) = (server.stats().commands.get(), server.stats().errors.get());
        let (done, longest) = execute_gets(server, session, &run[..6], 1 << 20, &mut out).await;
        assert_eq!(done, 6);
        assert_eq!((server.stats().commands.get(), server.stats().errors.get()), (commands + 6, errors + 2));
        let replies = lines(out);
        assert_eq!(replies, ["$1", "1", DAMAGED, "-WRONGTYPE Opera", "$-1", "$-1", "$1", "1"]);
        assert!(longest > "-WRONGTYPE Operation".len(), "the longest is an error");
        let counts = server.store().counts();
        assert_eq!((counts.hits(), counts.misses()), (3, 2), "GETs are counted, but not the damaged one");
        // In another database none of them is there.
        line(server, session, "SELECT 1").await;
        let mut out = Encoder::new(Protocol::Two);
        let absent = execute_gets(server, session, &run[..3], 1 << 20, &mut out).await;
        assert_eq!(absent, (3, "$-1\r\n".len()));
        assert_eq!(lines(out), ["$-1"; 3]);
    });
}

#[test]
fn gets_of_large_values_stop_where_the_output_is_full() {
    with_server(async |server, session| {
        let large = "x".repeat(40 << 10);
        one(server, session, words(&format!("SET large {large}"))).await;
        let run: Vec<Request> = (0..100).map(|_| words("GET large")).collect();
        let mut out = Encoder::new(Protocol::Two);
        let (done, longest) = execute_gets(server, session, &run, 100 << 10, &mut out).await;
        assert_eq!((done, longest), (3, large.len() + "$40960\r\n\r\n".len()));
        let mut full = Encoder::new(Protocol::Two);
        let (done, _) = execute_gets(server, session, &run, 1, &mut full).await;
        assert_eq!(done, 1, "one at least");
        assert_eq!(full.take(), out.take()[..longest]);
    });
}

#[test]
fn only_well_formed_gets_are_read_together() {
    with_server(async |_, session| {
        let counted =
            |lines: &[&str]| gets(session, &lines.iter().map(|line| words(line)).collect::<Vec<_>>());
        assert_eq!(counted(&["GET a", "gEt b", "GET", "GET c"]), 2);
        assert_eq!((counted(&["GET a b", "GET a"]), counted(&["MGET a"]), counted(&[])), (0, 0, 0));
    });
}

#[test]
fn a_transaction_in_which_the_store_fails_writes_nothing() {
    with_server(async |server, session| {
        for failing in ["DEL good bad", "GET bad", "RENAME bad good", "MSET good 2 bad 2"] {
            line(server, session, "SET good 1").await;
            line(server, session, "MULTI").await;
            for queued in ["SET x 1", failing, "SET y 1"] {
                assert_eq!(line(server, session, queued).await, ["+QUEUED"]);
            }
            assert_eq!(line(server, session, "EXEC").await, [DAMAGED], "{failing}");
            let found = line(server, session, "MGET good x y").await;
            assert_eq!(found, ["*3", "$1", "1", "$-1", "$-1"], "{failing}");
        }
        assert_eq!(server.store().size(0), 1);
    });
}

#[test]
fn what_writers_write_is_committed_in_parts() {
    with_server(async |server, session| {
        let large = "x".repeat(300 << 10);
        let mut run: Vec<Request> = (0..6).map(|n| words(&format!("SET {n} {large}"))).collect();
        run.push(words("DEL 0 bad"));
        let replies = writers(server, session, &run).await;
        let (committed, lost) = replies.split_at(4);
        assert_eq!(
            (committed, lost),
            (&["+OK"; 4].map(String::from)[..], &[DAMAGED; 3].map(String::from)[..])
        );
        assert_eq!(line(server, session, "EXISTS 0 1 2 3 4 5").await, [":4"]);
    });
}

#[test]
fn a_transaction_has_a_limit_of_what_it_writes() {
    with_server(async |server, session| {
        let large = "x".repeat(1 << 20);
        line(server, session, "MULTI").await;
        for n in 0..5 {
            line(server, session, &format!("SET {n} {large}")).await;
        }
        assert_eq!(line(server, session, "EXEC").await, ["-ERR the transac"]);
        assert_eq!(line(server, session, "EXISTS 0 1 2 3 4").await, [":0"]);
    });
}

#[test]
fn a_transaction_that_only_reads_keeps_nobody_waiting_and_sees_one_state() {
    with_server(async |server, session| {
        server.store().db().delete(b"\0\0bad").unwrap();
        line(server, session, "SET a 1").await;
        // Whoever has all stripes would be waited for.
        let all = server.store().change_all().await;
        line(server, session, "MULTI").await;
        for queued in ["KEYS *", "DBSIZE", "GET a", "SELECT 1", "EXISTS a", "SELECT 0"] {
            line(server, session, queued).await;
        }
        let replies = line(server, session, "EXEC").await;
        assert_eq!(replies, ["*6", "*1", "$1", "a", ":1", "$1", "1", "+OK", ":0", "+OK"]);
        drop(all);
    });
}

#[test]
fn a_transaction_sees_one_state_of_keys_that_it_does_not_name() {
    with_server(async |server, session| {
        server.store().db().delete(b"\0\0bad").unwrap();
        let run: Vec<Request> = (0..5000).map(|n| words(&format!("SET {n} v"))).collect();
        writers(server, session, &run).await;
        for queued in [&["KEYS *", "KEYS *"][..], &["KEYS *", "SET 0 w", "KEYS *"]] {
            line(server, session, "MULTI").await;
            for queued in queued {
                line(server, session, queued).await;
            }
            // A walk over so many keys lets the other one run in its midst.
            let other = async {
                let run = [words("SET new v")];
                writers(server, session, &run).await;
            };
            let (replies, ()) = join(line(server, session, "EXEC"), other).await;
            let counts: Vec<_> = replies.iter().filter(|line| line.starts_with('*')).collect();
            assert_eq!((counts.len(), counts[1]), (3, counts[2]), "{queued:?}");
            assert_eq!(line(server, session, "DEL new").await, [":1"]);
        }
    });
}

/// RESTORE of a hash whose fields, values and expiries are these.
async fn restore_fields(
    server: &Server,
    session: &Session,
    fields: &[(&str, &str, Option<i64>)],
) -> Vec<String> {
    let mut writer = Writer::of_fields(fields.len() as u64, 1);
    fields
        .iter()
        .for_each(|(name, value, expiry)| writer.field(name.as_bytes(), value.as_bytes(), *expiry, 1));
    let payload = writer.sealed();
    let args = [&b"RESTORE"[..], b"h", b"0", &payload, b"REPLACE"].map(<[u8]>::to_vec);
    one(server, session, args.into()).await
}

#[test]
fn the_last_of_a_field_that_comes_twice_counts() {
    with_server(async |server, session| {
        let (late, later) = (Some(33_177_117_420_000), Some(33_177_117_420_001));
        let filler: Vec<String> = (0..3000).map(|number| format!("filler {number}")).collect();
        // The two of a field are in one piece that is written, and in two.
        for between in [0, filler.len()] {
            let mut fields =
                vec![("gone", "1", late), ("gone too", "1", None), ("kept", "1", late), ("free", "1", late)];
            fields.extend(filler[..between].iter().map(|name| (&**name, "x", later)));
            fields.extend([
                ("gone", "2", Some(2)),
                ("gone too", "2", Some(2)),
                ("kept", "2", later),
                ("free", "2", None),
            ]);
            assert_eq!(restore_fields(server, session, &fields).await, ["+OK"]);
            assert_eq!(line(server, session, "HLEN h").await, [format!(":{}", between + 2)]);
            let times = line(server, session, "HPEXPIRETIME h FIELDS 4 gone too kept free").await;
            assert_eq!(times, ["*4", ":-2", ":-2", ":33177117420001", ":-1"]);
            assert_eq!(line(server, session, "HGET h kept").await, ["$1", "2"]);
        }
        assert_eq!(restore_fields(server, session, &[("a", "1", late), ("a", "2", Some(2))]).await, ["+OK"]);
        assert_eq!(line(server, session, "EXISTS h").await, [":0"]);
    });
}
