//! PFADD, PFCOUNT and PFMERGE: estimates of the number of different elements, in strings.

use super::Call;
use super::pace::Pace;
use super::strings::change;
use crate::hyperloglog::{BadRegisters, Registers, kept_estimate};
use crate::store::Key;
use crate::wrong::Wrong;

impl From<BadRegisters> for Wrong {
    fn from(bad: BadRegisters) -> Self {
        match bad {
            BadRegisters::NoHyperLogLog => Wrong::no_hyperloglog(),
            BadRegisters::Corrupt => Wrong::corrupt_hyperloglog(),
        }
    }
}

async fn registers(call: &Call<'_>, key: &Key) -> Result<Option<Registers>, Wrong> {
    let text = call.access.string(key).await?;
    Ok(text.map(|text| Registers::decode(&text)).transpose()?)
}

pub(super) async fn add(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let before = registers(call, &key).await?;
    let mut has_changed = before.is_none();
    let (mut registers, mut pace) = (before.unwrap_or_else(Registers::new), Pace::default());
    for element in &call.args[2..] {
        has_changed |= registers.add(element);
        pace.step().await;
    }
    if has_changed {
        change(call, &key, &registers.encode(), "pfadd").await?;
    }
    call.out.integer(has_changed.into());
    Ok(())
}

pub(super) async fn count(call: &mut Call<'_>) -> Result<(), Wrong> {
    let estimate = match call.args {
        [_, _] => match call.access.string(&call.key(1)).await? {
            None => 0,
            Some(text) => match kept_estimate(&text)? {
                Some(estimate) => estimate,
                None => Registers::decode(&text)?.estimate(),
            },
        },
        _ => {
            call.access.pin();
            union(call, 1).await?.estimate()
        }
    };
    call.out.integer(estimate.cast_signed());
    Ok(())
}

pub(super) async fn merge(call: &mut Call<'_>) -> Result<(), Wrong> {
    let union = union(call, 1).await?;
    change(call, &call.key(1), &union.encode(), "pfadd").await?;
    call.out.ok();
    Ok(())
}

/// The registers of all keys from an argument on, each of which may be absent.
async fn union(call: &Call<'_>, from: usize) -> Result<Registers, Wrong> {
    let (mut union, mut pace) = (Registers::new(), Pace::default());
    for key in call.keys(from..call.args.len()) {
        if let Some(registers) = registers(call, &key).await? {
            union.merge(&registers);
        }
        // Each has 16,384 registers to walk over.
        pace.steps(16).await;
    }
    Ok(union)
}
