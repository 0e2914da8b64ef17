//! A callback that destroys its own reactor.

use super::*;
use std::sync::atomic::AtomicBool;

/// State of the callback that destroys its reactor, and of the callbacks behind it.
struct Ends {
    reactor: H,
    db: H,
    destroyed: AtomicBool,
    /// Callbacks run after the destruction, and those of them whose next operation was refused.
    behind: AtomicUsize,
    refused: AtomicUsize,
}

const BEHIND: usize = 20;

unsafe extern "C" fn behind_the_end(done: *const Completion) {
    unsafe {
        let ends = &*(*done).user_data.cast::<Ends>();
        assert!(ends.destroyed.load(Ordering::SeqCst));
        assert!([OK, CANCELLED].contains(&(*done).status));
        let notify =
            Notify { queue: null_mut(), callback: Some(behind_the_end), user_data: (*done).user_data };
        let op = karst_get_async(ends.reactor, ends.db, null_mut(), null_mut(), at(&key(1)), 4, &notify);
        let polled = karst_reactor_poll(ends.reactor);
        ends.refused.fetch_add(usize::from(op.is_null() && polled == -1), Ordering::SeqCst);
        karst_op_release((*done).op);
        ends.behind.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn destroys_its_reactor(done: *const Completion) {
    unsafe {
        let ends = &*(*done).user_data.cast::<Ends>();
        let notify =
            Notify { queue: null_mut(), callback: Some(behind_the_end), user_data: (*done).user_data };
        for i in 0..BEHIND as u32 {
            let k = key(i);
            assert!(
                !karst_get_async(ends.reactor, ends.db, null_mut(), null_mut(), at(&k), 4, &notify).is_null()
            );
        }
        ok(|e| karst_reactor_destroy(ends.reactor, e));
        // Overwrites freed memory, if any was freed.
        for size in (8..=1024).step_by(8).flat_map(|size| [size; 10]) {
            libc::calloc(1, size);
        }
        ends.destroyed.store(true, Ordering::SeqCst);
        karst_op_release((*done).op);
    }
}

#[test]
fn a_reactor_that_a_callback_of_its_thread_destroys_may_be_named_until_all_is_completed() {
    let setup = Setup::new();
    let reactor = setup.reactor(1);
    let ends = Ends {
        reactor,
        db: setup.db,
        destroyed: AtomicBool::new(false),
        behind: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
    };
    let user_data = (&raw const ends).cast_mut().cast();
    setup.get(reactor, 1, &Notify { queue: null_mut(), callback: Some(destroys_its_reactor), user_data });
    while ends.behind.load(Ordering::SeqCst) < BEHIND {
        std::thread::yield_now();
    }
    assert_eq!(ends.refused.load(Ordering::SeqCst), BEHIND);
}
