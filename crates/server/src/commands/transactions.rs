//! MULTI, DISCARD, WATCH and UNWATCH; EXEC is in `exec`, because it runs other handlers.

use super::pace::Pace;
use super::{Call, held_too_much};
use crate::session::Transaction;
use crate::wrong::Wrong;

pub(super) async fn exec_without_multi(_: &mut Call<'_>) -> Result<(), Wrong> {
    Err(Wrong::err("EXEC without MULTI"))
}

pub(super) async fn multi(call: &mut Call<'_>) -> Result<(), Wrong> {
    let mut transaction = call.session.transaction.borrow_mut();
    if transaction.is_some() {
        return Err(Wrong::err("MULTI calls can not be nested"));
    }
    *transaction = Some(Transaction::default());
    call.out.ok();
    Ok(())
}

pub(super) async fn discard(call: &mut Call<'_>) -> Result<(), Wrong> {
    if call.session.transaction.take().is_none() {
        return Err(Wrong::err("DISCARD without MULTI"));
    }
    call.session.unwatch();
    call.out.ok();
    Ok(())
}

pub(super) async fn watch(call: &mut Call<'_>) -> Result<(), Wrong> {
    if call.session.is_in_transaction() {
        return Err(Wrong::err("WATCH inside MULTI is not allowed"));
    }
    let at_most = call.server.settings().limits().request;
    let mut pace = Pace::default();
    for key in call.keys(1..call.args.len()) {
        let is_new = !call.session.watched.borrow().contains_key(&key);
        if is_new {
            if !call.session.hold(std::slice::from_ref(&key.name), at_most) {
                return Err(held_too_much(call.session));
            }
            let watch = call.server.store().watch(&key).await?;
            call.session.watched.borrow_mut().insert(key, watch);
        }
        pace.step().await;
    }
    call.out.ok();
    Ok(())
}

pub(super) async fn unwatch(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.session.unwatch();
    call.out.ok();
    Ok(())
}
