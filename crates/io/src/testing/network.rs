//! The contract of networks: bytes come whole and in order, ends are seen, and no future that is
//! dropped loses or leaks anything.

use super::{pattern, poll_times, quiesce};
use crate::env::{Env, EnvBuilder};
use crate::net::{ListenOptions, Listener, Receiver, Stream};
use crate::reactor::{IdlePolicy, Reactor, spawn_local};
use crate::sync::mpsc::channel;
use crate::{OpenOptions, block_on, open, read, yield_now};
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

/// Runs the whole contract on the network of the environment that `builder` makes, in `block_on`
/// and on a reactor. Panics where the contract is broken.
pub fn network_contract(builder: impl Fn() -> EnvBuilder) {
    let run = |story: fn(Env) -> Story| {
        let env = builder().build();
        block_on(&env, story(env.clone()));
        quiesce(&env);
        let reactor = Reactor::builder(&env).build().unwrap();
        let env_of_task = env.clone();
        reactor.spawn(move || story(env_of_task)).join().unwrap();
        drop(reactor);
        quiesce(&env);
    };
    run(|env| Box::pin(bytes_come_in_order(env)));
    run(|env| Box::pin(ends_are_seen(env)));
    run(|env| Box::pin(errors_name_the_address(env)));
    run(|env| Box::pin(dropped_futures_lose_nothing(env)));
    run(|env| Box::pin(a_sender_waits_for_its_receiver(env)));
    run(|env| Box::pin(idle_connections_hold_up_no_reads(env)));
    many_connections_at_once(&builder().build());
    for idle in [IdlePolicy::Block, IdlePolicy::SpinThenBlock(Duration::from_micros(50)), IdlePolicy::Spin] {
        large_messages_between_threads(&builder().build(), idle);
    }
    ends_are_told_by_a_thread_that_polls_no_more(&builder().build());
}

type Story = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn listen(env: &Env) -> Listener {
    Listener::bind(env, any_port(), ListenOptions::default()).unwrap()
}

/// Both ends of a new connection.
async fn pair(env: &Env) -> (Stream, Stream) {
    let mut listener = listen(env);
    let client = Stream::connect(env, listener.address()).await.unwrap();
    let server = listener.accept().await.unwrap();
    client.set_nodelay(true).unwrap();
    (client, server)
}

/// Receives exactly `length` bytes.
async fn receive(receiver: &mut Receiver, length: usize) -> Vec<u8> {
    while receiver.buffered().len() < length {
        assert!(receiver.fill().await.unwrap() > 0, "the connection ended early");
    }
    let bytes = receiver.buffered()[..length].to_vec();
    receiver.consume(length);
    bytes
}

async fn bytes_come_in_order(env: Env) {
    let (mut client, mut server) = pair(&env).await;
    for (salt, length) in (0..).zip([1, 2, 100, 4095, 4096, 4097, 20_000, 65_536, 300_000]) {
        let data = pattern(salt, length);
        let send = client.sender.send(data.clone());
        let (sent, received) = both(send, receive(&mut server.receiver, length)).await;
        assert_eq!(sent.unwrap(), data, "the buffer comes back");
        assert_eq!(received, data);
        let echo = server.sender.send(received);
        let (_, echoed) = both(echo, receive(&mut client.receiver, length)).await;
        assert_eq!(echoed, data);
    }
    client.sender.send(Vec::new()).await.unwrap();
    client.sender.send(b"+OK\r\n+OK\r\n".to_vec()).await.unwrap();
    assert_eq!(receive(&mut server.receiver, 5).await, b"+OK\r\n");
    assert_eq!(receive(&mut server.receiver, 5).await, b"+OK\r\n");
}

async fn ends_are_seen(env: Env) {
    let (mut client, mut server) = pair(&env).await;
    client.sender.send(b"last words".to_vec()).await.unwrap();
    client.sender.finish().await.unwrap();
    assert_eq!(receive(&mut server.receiver, 10).await, b"last words");
    assert_eq!(server.receiver.fill().await.unwrap(), 0);
    assert_eq!(server.receiver.fill().await.unwrap(), 0, "it stays at its end");
    // The other direction goes on.
    server.sender.send(b"answer".to_vec()).await.unwrap();
    assert_eq!(receive(&mut client.receiver, 6).await, b"answer");
    drop(server);
    assert_eq!(client.receiver.fill().await.unwrap(), 0);

    // Bytes that were received and not consumed outlive the end of the connection.
    let (mut client, mut server) = pair(&env).await;
    server.sender.send(b"part".to_vec()).await.unwrap();
    client.sender.send(b"never read".to_vec()).await.unwrap();
    while client.receiver.buffered().len() < 4 {
        client.receiver.fill().await.unwrap();
    }
    drop(server);
    assert!(client.receiver.fill().await.map_or(true, |count| count == 0));
    assert_eq!(client.receiver.buffered(), b"part");

    let (mut client, server) = pair(&env).await;
    drop(server);
    // The first of these may be taken before the end is known.
    let mut failed = None;
    while failed.is_none() {
        failed = client.sender.send(vec![0; 1000]).await.err();
        yield_now().await;
    }
    let failed = failed.unwrap();
    assert!(matches!(failed.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{failed}");
    assert_eq!(failed.op, "send to");
}

async fn errors_name_the_address(env: Env) {
    let listener = listen(&env);
    let address = listener.address();
    let again = Listener::bind(&env, address, ListenOptions::default()).unwrap_err();
    assert_eq!((again.op, again.kind()), ("listen", ErrorKind::AddrInUse));
    assert_eq!(again.path.to_str(), Some(&*address.to_string()));
    drop(listener);
    let refused = Stream::connect(&env, address).await.unwrap_err();
    assert_eq!((refused.op, refused.kind()), ("connect", ErrorKind::ConnectionRefused));
    assert_eq!(refused.path.to_str(), Some(&*address.to_string()));
}

async fn dropped_futures_lose_nothing(env: Env) {
    let mut listener = listen(&env);
    for _ in 0..3 {
        assert!(once(listener.accept()).await.is_none());
    }
    let mut client = Stream::connect(&env, listener.address()).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    // A receive that is given up goes on, and what it takes is there for the next.
    for round in 0..20 {
        assert!(once(server.receiver.fill()).await.is_none());
        assert!(server.receiver.buffered().is_empty());
        let data = pattern(round, 100);
        client.sender.send(data.clone()).await.unwrap();
        assert_eq!(receive(&mut server.receiver, 100).await, data);
    }
    // The rest of a send that was given up after its first poll comes before the next send.
    let data = pattern(7, 1 << 20);
    let given_up = once(client.sender.send(data.clone())).await;
    assert!(given_up.is_none(), "more than a network takes at once");
    let send = client.sender.send(b"behind".to_vec());
    let (sent, received) = both(send, receive(&mut server.receiver, data.len() + 6)).await;
    assert_eq!(sent.unwrap(), b"behind");
    assert!(received[..data.len()] == data && received[data.len()..] == *b"behind");
    // Halves that are dropped with an operation under way leave nothing behind.
    assert!(once(client.receiver.fill()).await.is_none());
    drop(client);
    drop(server);
    assert!(once(listener.accept()).await.is_none());
}

async fn a_sender_waits_for_its_receiver(env: Env) {
    let (mut client, mut server) = pair(&env).await;
    let data = pattern(3, 4 << 20);
    let mut sending = std::pin::pin!(client.sender.send(data.clone()));
    assert!(poll_times(sending.as_mut(), 1).await.is_none());
    let (_, received) = both(sending, receive(&mut server.receiver, data.len())).await;
    assert!(received == data);
}

/// Receives that wait are not among the reads that a channel has in flight at most.
async fn idle_connections_hold_up_no_reads(env: Env) {
    let mut idle = Vec::new();
    for _ in 0..20 {
        let (client, mut server) = pair(&env).await;
        assert!(once(server.receiver.fill()).await.is_none());
        idle.push((client, server));
    }
    // A file that any process may read.
    let path = std::path::Path::new("/proc/self/exe");
    if env.fs().is_posix() {
        let file = open(&env, path, OpenOptions::default()).await.unwrap();
        for at in 0..50 {
            assert_eq!(read(&env, &file, at * 100, 100).await.unwrap().len(), 100);
        }
    }
}

/// A send that the kernel takes in parts is completed under every idle policy.
fn large_messages_between_threads(env: &Env, idle: IdlePolicy) {
    let reactor = Reactor::builder(env).idle(idle).build().unwrap();
    let (tell, told) = channel();
    let server_env = env.clone();
    let server = reactor.spawn(move || async move {
        let mut listener = listen(&server_env);
        tell.send(listener.address()).unwrap();
        let mut stream = listener.accept().await.unwrap();
        for round in 0..3 {
            let data = receive(&mut stream.receiver, 1 << 20).await;
            assert!(data == pattern(round, 1 << 20));
            stream.sender.send(data).await.unwrap();
        }
    });
    let address = told.recv().unwrap();
    block_on(env, async {
        let mut stream = Stream::connect(env, address).await.unwrap();
        for round in 0..3 {
            let data = pattern(round, 1 << 20);
            stream.sender.send(data.clone()).await.unwrap();
            assert!(receive(&mut stream.receiver, 1 << 20).await == data);
        }
    });
    server.join().unwrap();
    drop(reactor);
    quiesce(env);
}

/// A connection and a listener that are dropped with operations in flight end at once, although
/// their thread does not poll its channel again.
fn ends_are_told_by_a_thread_that_polls_no_more(env: &Env) {
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let env_of_thread = env.clone();
    let server = crate::sync::thread::spawn(move || {
        let env = env_of_thread;
        block_on(&env, async {
            let mut listener = listen(&env);
            tell.send(listener.address()).unwrap();
            let mut stream = listener.accept().await.unwrap();
            assert!(once(stream.receiver.fill()).await.is_none());
            assert!(once(listener.accept()).await.is_none());
            // In this order, because the client binds the address once it has seen the end.
            drop(listener);
            drop(stream);
        });
        let _ = ended.recv();
        quiesce(&env);
    });
    let address = told.recv().unwrap();
    block_on(env, async {
        let mut stream = Stream::connect(env, address).await.unwrap();
        assert!(stream.receiver.fill().await.is_ok_and(|count| count == 0));
        Listener::bind(env, address, ListenOptions::default()).unwrap();
    });
    drop(end);
    server.join().unwrap();
    quiesce(env);
}

fn many_connections_at_once(env: &Env) {
    const CONNECTIONS: usize = 200;
    let reactor = Reactor::builder(env).build().unwrap();
    let env_of_task = env.clone();
    let serve = move || async move {
        let env = env_of_task;
        let mut listener = listen(&env);
        let address = listener.address();
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let env = env.clone();
                spawn_local(async move {
                    let mut stream = Stream::connect(&env, address).await.unwrap();
                    for round in 0..10 {
                        let data = pattern(round, 50 + number);
                        stream.sender.send(data.clone()).await.unwrap();
                        assert_eq!(receive(&mut stream.receiver, data.len()).await, data);
                    }
                })
            })
            .collect();
        for _ in 0..CONNECTIONS {
            let Stream { mut receiver, mut sender } = listener.accept().await.unwrap();
            spawn_local(async move {
                while receiver.fill().await.is_ok_and(|count| count > 0) {
                    let echo = receiver.buffered().to_vec();
                    receiver.consume(echo.len());
                    if sender.send(echo).await.is_err() {
                        return;
                    }
                }
            });
        }
        for client in clients {
            client.await.unwrap();
        }
    };
    reactor.spawn(serve).join().unwrap();
    drop(reactor);
    quiesce(env);
}

/// Polls a future one time, and drops it.
async fn once<F: Future>(future: F) -> Option<F::Output> {
    poll_times(std::pin::pin!(future), 1).await
}

/// Runs two futures at the same time.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    use std::task::Poll;
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            second = Some(output);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.unwrap_or_else(|| unreachable!()), second.unwrap_or_else(|| unreachable!()))
}
