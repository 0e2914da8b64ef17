//! Every network passes the one contract: the operating system's by io_uring and by epoll, and the
//! network of a process; and a simulation's is determined by its seed.

use karst_io::net::{ListenOptions, Listener, MemoryNetwork, NetworkFaults, Stream};
use karst_io::testing::network_contract;
use karst_io::{Env, Simulation, TransportKind};
use std::time::Duration;

#[test]
fn the_operating_systems_by_io_uring() {
    network_contract(Env::builder);
}

#[test]
fn the_operating_systems_with_three_reads_at_a_time() {
    network_contract(|| Env::builder().depth(3).submit_batch(2));
}

#[test]
fn the_operating_systems_by_epoll() {
    network_contract(|| Env::builder().transport(TransportKind::Threads).threads(4));
}

#[test]
fn the_processs_own() {
    network_contract(|| Env::builder().network(MemoryNetwork::new(1)));
}

#[test]
fn the_processs_own_with_parts_and_delays() {
    let faults = NetworkFaults {
        partial: 0.5,
        late: 0.5,
        delay: Duration::from_millis(1),
        ..NetworkFaults::default()
    };
    network_contract(|| {
        let network = MemoryNetwork::new(7);
        network.set_faults(faults);
        Env::builder().network(network)
    });
}

/// Clients that count, over connections that are reset now and then. Returns how many answers came,
/// how many connections failed, and the machine's history.
fn counting(seed: u64) -> (usize, usize, (u64, u64)) {
    let simulation = Simulation::new(seed);
    let network = simulation.env().memory_network().expect("a simulation has one");
    network.set_faults(NetworkFaults {
        partial: 0.5,
        reset: 0.02,
        late: 0.3,
        delay: Duration::from_millis(5),
    });
    let env = simulation.env().clone();
    let done = simulation.run(async move {
        let mut listener =
            Listener::bind(&env, "10.0.0.1:6379".parse().unwrap(), ListenOptions::default()).unwrap();
        let (mut answers, mut failed) = (0, 0);
        for round in 0..40u8 {
            let Ok(mut client) = Stream::connect(&env, listener.address()).await else { continue };
            let mut server = listener.accept().await.unwrap();
            let story = async {
                for number in 0..10u8 {
                    client.sender.send(vec![128 + round, b'0' + number, b'\n']).await?;
                    while !server.receiver.buffered().contains(&b'\n') {
                        assert!(server.receiver.fill().await? > 0, "an end that no side has made");
                    }
                    assert_eq!(server.receiver.buffered(), [128 + round, b'0' + number, b'\n']);
                    server.receiver.consume(3);
                    answers += 1;
                }
                Ok::<(), karst_io::Error>(())
            };
            if let Err(e) = story.await {
                assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}");
                failed += 1;
            }
        }
        (answers, failed)
    });
    let (answers, failed) = done.expect("the power has not failed");
    (answers, failed, simulation.history())
}

#[test]
fn a_simulated_network_follows_from_its_seed() {
    let mut histories = Vec::new();
    for seed in 0..10 {
        let first = counting(seed);
        assert_eq!(first, counting(seed), "seed {seed}");
        assert!(first.0 > 10 && first.1 > 0, "seed {seed}: {first:?}");
        histories.push(first.2);
    }
    histories.sort_unstable();
    histories.dedup();
    assert!(histories.len() > 5, "{histories:?}");
}
