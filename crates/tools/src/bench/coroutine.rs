//! readrandomcoroutine and multireadrandomcoroutine: on each of --threads reactor threads,
//! --coro_jobs_per_thread tasks each read in a loop, so that many reads are in flight on one
//! thread.

use super::key::{Keys, Random};
use super::reads::Target;
use super::report::{OpKind, Ops, Until};
use karst_engine::{ColumnFamily, Db, Error, ReadOptions, Result};
use karst_io::Reactor;

/// Values that a task owns, because tasks outlive the stack frame that starts them.
struct Job {
    db: Db,
    families: Vec<ColumnFamily>,
    options: ReadOptions,
    flags: super::flags::Flags,
    keys: Keys,
    reads: u64,
    watch: super::reporter::Watch,
}

/// Runs the jobs of one workload. Returns one [`Ops`] per job.
pub(crate) fn run(t: &Target<'_>, seed: u64, batched: bool) -> Result<Vec<Ops>> {
    let threads = t.flags.threads as usize;
    let jobs = t.flags.coro_jobs_per_thread as u64;
    let batch = if batched { t.flags.batch_size as u64 } else { 1 };
    if t.flags.duration == 0 && !t.reads().is_multiple_of(jobs * batch) {
        return Err(Error::invalid_argument(format!(
            "--reads {} cannot be divided among {jobs} jobs of batches of {batch}",
            t.reads()
        )));
    }
    let pool = Reactor::builder(t.db.env()).threads(threads).build().map_err(Error::from)?;
    let mut seeds = Random::new(seed);
    let mut handles = Vec::new();
    for thread in 0..threads {
        for _ in 0..jobs {
            let mut job = Job {
                db: t.db.clone(),
                families: t.families.to_vec(),
                options: t.options.clone(),
                flags: t.flags.clone(),
                keys: Keys::new(t.flags, seeds.next()),
                reads: t.reads() / jobs,
                watch: t.watch.clone(),
            };
            handles.push(pool.spawn_on(thread, move || async move {
                let mut ops = Ops::new(&job.flags, thread as i32);
                ops.watched_by(&job.watch);
                let result = if batched {
                    multi_get_job(&mut job, &mut ops).await
                } else {
                    get_job(&mut job, &mut ops).await
                };
                ops.stop();
                result.map(|()| ops)
            }));
        }
    }
    handles.into_iter().map(|handle| handle.join().expect("a job panicked")).collect()
}

async fn get_job(job: &mut Job, ops: &mut Ops) -> Result<()> {
    let mut key = Vec::new();
    let mut until = Until::new(&job.flags, job.reads);
    while !until.done(1) {
        let number = job.keys.draw();
        job.keys.encode(number, &mut key);
        let family = &job.families[(number % job.families.len() as u64) as usize];
        ops.read += 1;
        if let Some(value) = job.db.get_cf_async(&job.options, family, &key).await? {
            ops.found += 1;
            ops.bytes += (key.len() + value.len()) as u64;
        }
        ops.finished(OpKind::Read, 1);
    }
    Ok(())
}

async fn multi_get_job(job: &mut Job, ops: &mut Ops) -> Result<()> {
    let size = job.flags.batch_size as u64;
    let mut batch = vec![Vec::new(); size as usize];
    let mut until = Until::new(&job.flags, job.reads);
    while !until.done(size) {
        job.keys.next_batch(&mut batch);
        ops.read += size;
        let values = job.db.multi_get_cf_async(&job.options, &job.families[0], &batch).await;
        for (value, key) in values.into_iter().zip(&batch) {
            if let Some(value) = value? {
                ops.found += 1;
                ops.bytes += (key.len() + value.len()) as u64;
            }
        }
        ops.finished(OpKind::Read, size);
    }
    Ok(())
}
