//! The life of a server: restarts, the end, and what is answered before it.

use crate::client::{Client, Served, encoded, options};
use karst_server::{AppendSync, ServerOptions};

#[test]
fn data_is_there_after_a_restart() {
    for append_sync in [AppendSync::Always, AppendSync::EverySecond, AppendSync::No] {
        let options = ServerOptions { append_sync, ..options() };
        let mut served = Served::with(&options);
        served.check(&[
            ("MSET a 1 b 2", "+OK"),
            ("EXPIRE b 1000", ":1"),
            ("SELECT 5", "+OK"),
            ("SET c 3", "+OK"),
        ]);
        for _ in 0..3 {
            served.close();
            served.open(&options);
            served.check(&[
                ("MGET a b", "[\"1\" \"2\"]"),
                ("TTL a", ":-1"),
                ("DBSIZE", ":2"),
                ("SELECT 5", "+OK"),
                ("GET c", "\"3\""),
                ("DBSIZE", ":1"),
            ]);
            assert!(served.client().line("TTL b").integer() > 0);
        }
    }
}

#[test]
fn what_was_received_is_answered_before_the_end() {
    let mut served = Served::start();
    let mut client = served.client();
    client.line("PING");
    // The end is asked for behind writes of one piece: they are answered, and then it ends.
    let mut bytes = Vec::new();
    (0..100).for_each(|n| bytes.extend(encoded(&["SET", &format!("k{n}"), "v"])));
    bytes.extend(encoded(&["SHUTDOWN"]));
    client.send(&bytes);
    served.running.as_ref().unwrap().wait();
    for _ in 0..100 {
        assert_eq!(client.reply().unwrap().to_string(), "+OK");
    }
    assert!(client.is_closed());
    served.close();
    served.open(&options());
    served.check(&[("DBSIZE", ":100")]);
}

#[test]
fn the_end_waits_for_no_idle_client() {
    let mut served = Served::start();
    let mut clients: Vec<Client> = (0..20).map(|_| served.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.line("PING").to_string(), "+PONG"));
    clients[0].send(b"*3\r\n$3\r\nSET\r\n$1\r\nk");
    served.close();
    assert!(clients.iter_mut().all(Client::is_closed));
}

#[test]
fn many_clients_on_many_threads() {
    let served = Served::with(&ServerOptions { threads: 4, ..options() });
    let threads: Vec<_> = (0..32)
        .map(|n| {
            let mut client = served.client();
            std::thread::spawn(move || {
                for round in 0..50 {
                    let key = format!("own:{n}");
                    client.check(&[(&format!("SET {key} {round}"), "+OK")]);
                    client.check(&[(&format!("GET {key}"), &format!("\"{round}\""))]);
                    client.line("INCR all");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("its checks hold"));
    served.check(&[("GET all", "\"1600\""), ("DBSIZE", ":33")]);
}

/// A SET under `always` writes and syncs the log on the ring of its thread.
#[test]
fn synced_writes_are_carried_by_the_rings() {
    let directory = tempfile::tempdir().unwrap();
    let env = karstdb::io::Env::posix();
    let options = ServerOptions { append_sync: AppendSync::Always, ..options() };
    let running = karst_server::Running::start(&directory.path().join("db"), &options, &env).unwrap();
    let mut client = Client::connect(running.addresses()[0]);
    // The first sync of a log is a job's, because it syncs the directory too.
    client.check(&[("SET first 1", "+OK")]);
    let before = env.io_stats().writes;
    (0..50).for_each(|n| client.check(&[(&format!("SET k{n} v"), "+OK")]));
    let carried = env.io_stats().writes - before;
    assert!(carried >= 100, "{carried} writes and syncs for 50 commands");
    running.shut_down().unwrap();
}

#[test]
fn an_address_in_use_is_an_error() {
    let served = Served::with(&ServerOptions { threads: 1, ..options() });
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions { listen: vec![served.address()], threads: 1, ..options() };
    let env = karstdb::io::Env::posix();
    let refused = karst_server::Running::start(directory.path(), &options, &env).unwrap_err();
    assert!(refused.to_string().contains("listen"), "{refused}");
}
