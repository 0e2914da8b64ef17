//! A small single-threaded executor that knows nothing of KarstDB, like one a user may have: it
//! polls woken futures and otherwise sleeps, so the database's own threads complete its futures.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Numbers of the futures that were woken.
#[derive(Default)]
struct Woken {
    numbers: Mutex<VecDeque<usize>>,
    more: Condvar,
}

struct Of {
    woken: Arc<Woken>,
    number: usize,
}

impl Wake for Of {
    fn wake(self: Arc<Self>) {
        self.woken.numbers.lock().expect("nobody panics with it").push_back(self.number);
        self.woken.more.notify_one();
    }
}

/// Runs all futures to completion; returns their outputs.
pub(crate) fn run_all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let woken = Arc::new(Woken::default());
    woken.numbers.lock().expect("nobody panics with it").extend(0..futures.len());
    let wakers: Vec<Waker> =
        (0..futures.len()).map(|number| Waker::from(Arc::new(Of { woken: woken.clone(), number }))).collect();
    let mut outputs: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    while outputs.iter().any(Option::is_none) {
        let mut numbers = woken.numbers.lock().expect("nobody panics with it");
        let number = loop {
            match numbers.pop_front() {
                Some(number) => break number,
                None => numbers = woken.more.wait(numbers).expect("nobody panics with it"),
            }
        };
        drop(numbers);
        let Some(future) = &mut futures[number] else { continue };
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&wakers[number])) {
            outputs[number] = Some(output);
            futures[number] = None;
        }
    }
    outputs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futures_that_wait_for_each_other_and_for_threads_end() {
        let gate = Arc::new(Mutex::new((false, None::<Waker>)));
        let opened = gate.clone();
        let waits: Pin<Box<dyn Future<Output = u32>>> = Box::pin(std::future::poll_fn(move |cx| {
            let mut gate = gate.lock().unwrap();
            match gate.0 {
                true => Poll::Ready(7),
                false => {
                    gate.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }));
        let thread = std::thread::spawn(move || {
            loop {
                let mut gate = opened.lock().unwrap();
                if let Some(waker) = gate.1.take() {
                    gate.0 = true;
                    return waker.wake();
                }
                drop(gate);
                std::thread::yield_now();
            }
        });
        assert_eq!(run_all(vec![waits, Box::pin(async { 8 })]), [7, 8]);
        thread.join().unwrap();
    }
}
