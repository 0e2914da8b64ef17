//! Stub for the simulation in builds without the feature `testing`: no environment is simulated and
//! the executor type has no values, which lets the compiler drop the code that would call it.

pub(crate) mod executor {
    use crate::channel::Channel;
    use crate::env::SystemClock;
    use crate::{background, thread_pool};
    use std::future::Future;
    use std::rc::Rc;
    use std::sync::Arc;

    #[derive(Debug)]
    pub(crate) enum NoExecutor {}
    pub(crate) use NoExecutor as Executor;

    impl NoExecutor {
        pub(crate) fn clock(&self) -> &Arc<SystemClock> {
            match *self {}
        }

        pub(crate) fn spawn(&self, _: background::Job) {
            match *self {}
        }

        pub(crate) fn draws_carrying(&self) -> bool {
            match *self {}
        }

        pub(crate) fn run_blocking(&self, _: thread_pool::BlockingJob) {
            match *self {}
        }

        pub(crate) fn block_on<F: Future>(&self, _: &Rc<Channel>, _: F) -> F::Output {
            match *self {}
        }
    }
}
