//! MULTI, EXEC, DISCARD and WATCH.

use crate::client::Served;
use std::sync::atomic::{AtomicBool, Ordering};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

#[test]
fn exec_runs_what_was_queued() {
    Served::start().check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("PING", "+QUEUED"),
        ("EXEC", "[+OK :2 \"2\" +PONG]"),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "+OK"),
        ("SET a 9", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("GET a", "\"2\""),
        ("MULTI", "+OK"),
        ("EXEC", "[]"),
    ]);
}

#[test]
fn a_refused_command_refuses_all_and_a_failed_one_itself() {
    Served::start().check(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("NOTHING", "-ERR unknown command 'NOTHING', with args beginning with: "),
        ("EXEC", ABORTED),
        ("MULTI", "+OK"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("EXEC", ABORTED),
        ("EXISTS a", ":0"),
        ("MULTI", "+OK"),
        ("SET a x", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("SET b 1", "+QUEUED"),
        ("EXEC", "[+OK -ERR value is not an integer or out of range +OK]"),
        ("MGET a b", "[\"x\" \"1\"]"),
    ]);
}

#[test]
fn select_within_a_transaction_counts() {
    Served::start().check(&[
        ("MULTI", "+OK"),
        ("SELECT 3", "+QUEUED"),
        ("SET k three", "+QUEUED"),
        ("SWAPDB 3 4", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("SELECT 4", "+QUEUED"),
        ("GET k", "+QUEUED"),
        ("EXEC", "[+OK +OK +OK :0 +OK \"three\"]"),
        ("GET k", "\"three\""),
    ]);
}

#[test]
fn a_watched_key_that_changes_refuses_exec() {
    let served = Served::start();
    let (mut one, mut other) = (served.client(), served.client());
    one.check(&[("SET k 1", "+OK"), ("WATCH k none", "+OK")]);
    other.check(&[("SET unrelated 1", "+OK"), ("GET k", "\"1\"")]);
    one.check(&[("MULTI", "+OK"), ("INCR k", "+QUEUED"), ("EXEC", "[:2]")]);
    // Each way in which a key is touched.
    for touch in ["SET k 5", "DEL k", "INCR none", "EXPIRE k 100", "RENAME other k", "FLUSHALL", "SWAPDB 0 1"]
    {
        one.check(&[("MSET k 1 other 1", "+OK"), ("DEL none", ":0")]);
        one.line("DEL none");
        one.check(&[("WATCH k none", "+OK")]);
        other.line(touch);
        one.check(&[("MULTI", "+OK"), ("SET k won", "+QUEUED"), ("EXEC", "nil")]);
        one.check(&[("MULTI", "+OK"), ("SET k won", "+QUEUED"), ("EXEC", "[+OK]")]);
        one.check(&[("FLUSHALL", "+OK")]);
    }
    one.check(&[("WATCH k", "+OK"), ("UNWATCH", "+OK")]);
    other.check(&[("SET k 5", "+OK")]);
    one.check(&[("MULTI", "+OK"), ("WATCH k", "-ERR WATCH inside MULTI is not allowed"), ("EXEC", "[]")]);
}

#[test]
fn transactions_of_many_clients_are_atomic() {
    let served = Served::start();
    let clients: Vec<_> = (0..8).map(|_| served.client()).collect();
    let threads = clients.into_iter().map(|mut client| {
        std::thread::spawn(move || {
            for _ in 0..50 {
                client.check(&[("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("INCR b", "+QUEUED")]);
                let both: Vec<i64> = client.line("EXEC").list().iter().map(|sum| sum.integer()).collect();
                assert_eq!(both[0], both[1]);
                let both = client.line("MGET a b").list();
                assert_eq!(both[0], both[1], "a reader has seen half of a transaction");
                client.line("INCR c");
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().expect("its checks hold"));
    served.check(&[("MGET a b c", "[\"400\" \"400\" \"400\"]")]);
}

/// Sets a flag when it is dropped, also by a panic, for threads that would go on.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn transactions_with_whole_databases_are_atomic() {
    let served = Served::start();
    let exchange = [
        ("MULTI", "+OK"),
        ("FLUSHALL", "+QUEUED"),
        ("SWAPDB 0 1", "+QUEUED"),
        ("SET where zero", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("SET where one", "+QUEUED"),
        ("SELECT 0", "+QUEUED"),
        ("EXEC", "[+OK +OK +OK +OK +OK +OK]"),
    ];
    served.check(&exchange);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = served.client();
                while !has_ended.load(Ordering::Relaxed) {
                    client.check(&[("GET where", "\"zero\""), ("MGET where where", "[\"zero\" \"zero\"]")]);
                    client.check(&[("KEYS *", "[\"where\"]")]);
                }
            });
        }
        let mut client = served.client();
        let swap = [("MULTI", "+OK"), ("SWAPDB 0 1", "+QUEUED")].iter().chain(&exchange[3..]);
        let swap: Vec<_> = swap.map(|(line, reply)| (*line, reply.replace("[+OK ", "["))).collect();
        for _ in 0..100 {
            client.check(&exchange);
            client.check(&swap.iter().map(|(line, reply)| (*line, &reply[..])).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_transaction_sees_one_state_of_all_keys() {
    let served = Served::start();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        scope.spawn(|| {
            let mut client = served.client();
            while !has_ended.load(Ordering::Relaxed) {
                client.check(&[("SET k v", "+OK"), ("DEL k", ":1")]);
            }
        });
        let mut client = served.client();
        for round in 0..300 {
            client.check(&[("MULTI", "+OK"), ("KEYS k", "+QUEUED")]);
            // With and without a write.
            if round % 2 == 0 {
                client.check(&[("SET other 1", "+QUEUED")]);
            }
            client.check(&[("KEYS k", "+QUEUED")]);
            let replies = client.line("EXEC").list();
            assert_eq!(replies.first(), replies.last());
        }
    });
}

#[test]
fn a_transaction_holds_no_more_than_a_request_may() {
    let served = Served::start();
    let part = "x".repeat(100_000);
    let too_much = "-ERR queued commands and watched keys exceed client-query-buffer-limit";
    served.check(&[("CONFIG SET client-query-buffer-limit 1mb", "+OK")]);
    let mut client = served.client();
    client.check(&[("MULTI", "+OK")]);
    for _ in 0..10 {
        assert_eq!(client.call(&["SET", "k", &part]).to_string(), "+QUEUED");
    }
    assert_eq!(client.call(&["SET", "k", &part]).to_string(), too_much);
    assert!(client.is_closed());
    // Watched keys are held as well; what was given back is not counted.
    let mut client = served.client();
    for round in 0..3 {
        (0..8).for_each(|n| assert_eq!(client.call(&["WATCH", &format!("{n}{part}")]).to_string(), "+OK"));
        if round < 2 {
            client.check(&[("UNWATCH", "+OK"), ("MULTI", "+OK"), ("SET k v", "+QUEUED"), ("EXEC", "[+OK]")]);
        }
    }
    client.check(&[("MULTI", "+OK")]);
    assert_eq!(client.call(&["SET", "k", &part]).to_string(), "+QUEUED");
    assert_eq!(client.call(&["SET", "k", &part]).to_string(), "+QUEUED");
    assert_eq!(client.call(&["SET", "k", &part]).to_string(), too_much);
    assert!(client.is_closed());
    served.check(&[("GET k", "\"v\"")]);
}

#[test]
fn what_changes_nothing_touches_nothing() {
    let served = Served::start();
    let (mut one, mut other) = (served.client(), served.client());
    one.check(&[("SET k 1", "+OK"), ("WATCH k", "+OK")]);
    other.check(&[("GETEX k", "\"1\""), ("GETEX k PERSIST", "\"1\""), ("PERSIST k", ":0")]);
    one.check(&[("MULTI", "+OK"), ("INCR k", "+QUEUED"), ("EXEC", "[:2]")]);
    one.check(&[("EXPIRE k 1000", ":1"), ("WATCH k", "+OK")]);
    other.check(&[("GETEX k PERSIST", "\"2\""), ("TTL k", ":-1")]);
    one.check(&[("MULTI", "+OK"), ("INCR k", "+QUEUED"), ("EXEC", "nil")]);
}
