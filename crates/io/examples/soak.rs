//! Drops reads at random moments, by all entry forms at once, for the given time: no leaks, no
//! wrong bytes.
//!
//! `cargo run --release -p karst-io --example soak -- DIR SECONDS`

use karst_io::testing::cancellations;
use karst_io::{
    Env, FaultFileSystem, FaultPlan, Faults, Latency, LatencyFileSystem, PosixFileSystem, TransportKind,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("DIR SECONDS"));
    let seconds: f64 = args.next().expect("DIR SECONDS").parse().expect("seconds");
    let plan = FaultPlan {
        read_error: 0.05,
        read_errno: libc::EAGAIN,
        short_read: 0.2,
        stuck: 0.01,
        stuck_for: Duration::from_millis(20),
        ..FaultPlan::default()
    };
    let faulty = FaultFileSystem::new(Arc::new(PosixFileSystem), Faults::new(1, plan));
    let latency = Latency::of_reads(Duration::from_micros(50)).with_jitter(Duration::from_millis(1), 2);
    let slow = Arc::new(LatencyFileSystem::new(Arc::new(faulty), latency));
    let builders = [
        ("io_uring", Env::builder()),
        ("io_uring, slow and faulty", Env::builder().file_system(slow.clone())),
        ("threads", Env::builder().transport(TransportKind::Threads)),
        ("threads, slow and faulty", Env::builder().transport(TransportKind::Threads).file_system(slow)),
    ];
    for (name, builder) in builders {
        let env = builder.build();
        let dropped = cancellations(&env, &dir, true, Duration::from_secs_f64(seconds / 4.0), 99);
        let rate = dropped as f64 / (seconds / 4.0);
        println!("{name}: {dropped} dropped ({rate:.0} a second); {:?}", env.io_stats());
    }
}
