//! Random or sequential reads by one thread: throughput of the device, and CPU cost.
//!
//! `cargo run --release -p karst-io --example randread -- --file F --depth 64 --bs 4096 --direct
//! [--unaligned] [--sequential] [--seconds 5] [--mode reactor|block_on|driver]
//! [--threads-transport] [--spin-us N] [--batch N] [--no-register]`

use karst_io::testing::foreign_block_on;
use karst_io::{Env, IdlePolicy, OpenOptions, Reactor, TransportKind, block_on, open, read, spawn_local};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

#[derive(Clone)]
struct Job {
    env: Env,
    file: Arc<dyn karst_io::RandomAccessFile>,
    depth: usize,
    bs: usize,
    unaligned: bool,
    sequential: bool,
    seconds: f64,
}

/// Returns the CPU time of this process in microseconds: user and system.
fn cpu_us() -> (f64, f64) {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = line.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) * 10_000.0;
    (ticks(11), ticks(12))
}

fn next(state: &Cell<u64>) -> u64 {
    let x = state.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    state.set(x);
    x >> 20
}

async fn worker(job: Job, seed: u64, until: Instant, count: Rc<Cell<u64>>, cursor: Rc<Cell<u64>>) {
    let state = Cell::new(seed);
    let span = job.file.size() - job.bs as u64 - 4096;
    while Instant::now() < until {
        let at = match job.sequential {
            true => cursor.replace(cursor.get() + job.bs as u64) % span,
            false => next(&state) % span,
        };
        // At multiples of the size, like fio, unless asked otherwise.
        let at = if job.unaligned { at } else { at - at % (job.bs as u64).next_multiple_of(512) };
        let got = read(&job.env, &job.file, at, job.bs).await.expect("read");
        assert_eq!(got.len(), job.bs);
        count.set(count.get() + 1);
    }
}

/// Polls those of its futures that were woken: a foreign executor within one future.
struct All {
    parts: Vec<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    woken: Arc<Woken>,
    wakers: Vec<Waker>,
    left: usize,
}

struct Woken {
    list: Mutex<(Vec<usize>, Option<Waker>)>,
}

struct PartWaker(usize, Arc<Woken>);

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        let mut list = self.1.list.lock().unwrap();
        list.0.push(self.0);
        if let Some(waker) = list.1.take() {
            drop(list);
            waker.wake();
        }
    }
}

impl All {
    fn new(parts: Vec<Option<Pin<Box<dyn Future<Output = ()>>>>>) -> Self {
        let left = parts.len();
        let woken = Arc::new(Woken { list: Mutex::new(((0..left).collect(), None)) });
        let wakers = (0..left).map(|i| Waker::from(Arc::new(PartWaker(i, woken.clone())))).collect();
        Self { parts, woken, wakers, left }
    }
}

impl Future for All {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let woken = {
            let mut list = this.woken.list.lock().unwrap();
            list.1 = Some(cx.waker().clone());
            std::mem::take(&mut list.0)
        };
        for i in woken {
            let Some(part) = &mut this.parts[i] else { continue };
            if part.as_mut().poll(&mut Context::from_waker(&this.wakers[i])).is_ready() {
                this.parts[i] = None;
                this.left -= 1;
            }
        }
        if this.left == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

async fn load(job: Job) -> u64 {
    let (count, cursor) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let until = Instant::now() + Duration::from_secs_f64(job.seconds);
    let part = |i| worker(job.clone(), i * 7919 + 1, until, count.clone(), cursor.clone());
    let tasks: Vec<_> = (0..job.depth as u64).map(|i| spawn_local(part(i))).collect();
    for task in tasks {
        task.await.expect("task");
    }
    count.get()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|a| a == name);
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).cloned();
    let number = |name: &str, default: f64| value(name).map_or(default, |v| v.parse().expect("a number"));
    let transport = if flag("--threads-transport") { TransportKind::Threads } else { TransportKind::Auto };
    let env = Env::builder()
        .transport(transport)
        .submit_batch(number("--batch", 6.0) as usize)
        .register_buffers(!flag("--no-register"))
        .build();
    let path = value("--file").expect("--file F");
    let options = OpenOptions { direct: flag("--direct") };
    let file = block_on(&env, open(&env, path.as_ref(), options)).expect("open");
    let job = Job {
        env: env.clone(),
        file,
        depth: number("--depth", 64.0) as usize,
        bs: number("--bs", 4096.0) as usize,
        unaligned: flag("--unaligned"),
        sequential: flag("--sequential"),
        seconds: number("--seconds", 5.0),
    };
    let bs = job.bs;
    let spin = number("--spin-us", 0.0);
    let idle = if spin > 0.0 {
        IdlePolicy::SpinThenBlock(Duration::from_secs_f64(spin / 1e6))
    } else {
        IdlePolicy::Block
    };
    let (start, before) = (Instant::now(), cpu_us());
    let mode = value("--mode").unwrap_or_else(|| "reactor".into());
    let mut holds = None;
    let reads = match mode.as_str() {
        "reactor" => {
            let reactor = Reactor::builder(&env).idle(idle).build().expect("reactor");
            let reads = reactor.spawn(move || load(job)).join().expect("load");
            holds = reactor.stats().pop();
            reads
        }
        _ => {
            let (count, cursor) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let until = Instant::now() + Duration::from_secs_f64(job.seconds);
            let part = |i| worker(job.clone(), i * 7919 + 1, until, count.clone(), cursor.clone());
            let all = All::new((0..job.depth as u64).map(|i| Some(Box::pin(part(i)) as _)).collect());
            match mode.as_str() {
                "driver" => foreign_block_on(all),
                _ => block_on(&env, all),
            }
            count.get()
        }
    };
    let (wall, after) = (start.elapsed().as_secs_f64(), cpu_us());
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{mode}: {:.0} IOPS, {:.0} MB/s, {:.2} us CPU a read ({:.2} user, {:.2} system)",
        reads as f64 / wall,
        reads as f64 * bs as f64 / wall / 1e6,
        (user + system) / reads as f64,
        user / reads as f64,
        system / reads as f64
    );
    println!("{:?}", env.io_stats());
    if let Some(h) = holds {
        let t = &h.hold_times;
        println!(
            "holds: mean {} ns, p50 {} ns, p99 {} ns, max {} ns; {} sleeps",
            t.mean_ns(),
            t.percentile_ns(50.0),
            t.percentile_ns(99.0),
            t.max_ns(),
            h.sleeps
        );
    }
}
