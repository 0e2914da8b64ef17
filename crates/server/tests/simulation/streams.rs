//! A stream with a group, which all clients add to and read, over the lives of the machine.
//!
//! Checked: an entry whose addition was acknowledged is there after every life, under its id; no
//! entry is delivered to the group twice; one that was delivered is pending until it is
//! acknowledged, and not afterwards.

use super::{Client, Gone, Known};
use karst_testkit::random::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Entries that one command reads at most.
const AT_ONCE: usize = 3;

/// The clients' knowledge of the stream. Each entry has a number of its own as its value.
#[derive(Clone, Default)]
pub(super) struct KnownStream {
    /// The entries that were sent, and their ids if these came.
    added: Vec<Option<String>>,
    /// The entries that replies of XREADGROUP had, by their ids.
    delivered: BTreeMap<String, usize>,
    /// Number of XACKs that were sent for an id, and the ids of those that were answered.
    sent: BTreeMap<String, u64>,
    acknowledged: BTreeSet<String>,
}

/// Reads the id of an entry and its number, behind the head of the list that it is in.
async fn entry(client: &mut Client) -> Result<(String, usize), Gone> {
    let lines = client.call("", 8).await?;
    assert_eq!((&*lines[0], &*lines[3], &*lines[5]), ("*2", "*2", "n"), "{lines:?}");
    Ok((lines[2].clone(), lines[7].parse().expect("a number")))
}

async fn add(client: &mut Client, random: &mut Random, known: &RefCell<Known>) -> Result<(), Gone> {
    let number = {
        let added = &mut known.borrow_mut().stream.added;
        added.push(None);
        added.len() - 1
    };
    let command = match random.below(3) {
        0 => format!("MULTI\r\nXADD stream * n {number}\r\nEXEC\r\n"),
        _ => format!("XADD stream * n {number}\r\n"),
    };
    let lines = if command.starts_with('M') { 5 } else { 2 };
    let reply = client.call(&command, lines).await?;
    let id = reply.into_iter().next_back().expect("lines");
    assert!(id.contains('-') && !id.starts_with('-'), "{id}");
    known.borrow_mut().stream.added[number] = Some(id);
    Ok(())
}

async fn read(
    client: &mut Client,
    number: u64,
    random: &mut Random,
    known: &RefCell<Known>,
) -> Result<(), Gone> {
    let block = if random.one_in(2) { "BLOCK 3 " } else { "" };
    let command = format!("XREADGROUP GROUP g c{number} COUNT {AT_ONCE} {block}STREAMS stream >\r\n");
    let head = client.call(&command, 1).await?.remove(0);
    match &*head {
        "*-1" => return Ok(()),
        "*1" => {}
        error => {
            assert!(error.starts_with("-NOGROUP"), "{error}");
            let made = client.call("XGROUP CREATE stream g 0 MKSTREAM\r\n", 1).await?.remove(0);
            assert!(made == "+OK" || made.starts_with("-BUSYGROUP"), "{made}");
            return Ok(());
        }
    }
    let head = client.call("", 4).await?;
    let count: usize = head[3].strip_prefix('*').and_then(|count| count.parse().ok()).expect("an array");
    assert!(head[2] == "stream" && (1..=AT_ONCE).contains(&count), "{head:?}");
    for _ in 0..count {
        let (id, number) = entry(client).await?;
        let before = known.borrow_mut().stream.delivered.insert(id.clone(), number);
        assert_eq!(before, None, "{id} was delivered twice");
    }
    Ok(())
}

async fn acknowledge(client: &mut Client, random: &mut Random, known: &RefCell<Known>) -> Result<(), Gone> {
    let id = {
        let stream = &mut known.borrow_mut().stream;
        let open: Vec<String> =
            stream.delivered.keys().filter(|id| !stream.acknowledged.contains(*id)).cloned().collect();
        let Some(id) = open.get(random.below(open.len().max(1) as u64) as usize) else { return Ok(()) };
        *stream.sent.entry(id.clone()).or_default() += 1;
        id.clone()
    };
    let reply = client.call(&format!("XACK stream g {id}\r\n"), 1).await?;
    let stream = &mut known.borrow_mut().stream;
    // Another client may have acknowledged it.
    let is_shared = stream.sent[&id] > 1;
    assert!(reply == [":1"] || reply == [":0"] && is_shared, "{id} was not pending: {reply:?}");
    stream.acknowledged.insert(id);
    Ok(())
}

/// One operation of a client.
pub(super) async fn operate(
    client: &mut Client,
    number: u64,
    random: &mut Random,
    known: &RefCell<Known>,
) -> Result<(), Gone> {
    match random.below(3) {
        0 => add(client, random, known).await,
        1 => read(client, number, random, known).await,
        _ => acknowledge(client, random, known).await,
    }
}

/// Reads the stream and its pending entries without faults, and compares them with what the clients
/// know.
pub(super) async fn check(client: &mut Client, known: &KnownStream) -> Result<(), Gone> {
    let head = client.call("XRANGE stream - +\r\n", 1).await?.remove(0);
    let count: usize = head.strip_prefix('*').and_then(|count| count.parse().ok()).expect("an array");
    let mut there = BTreeMap::new();
    for _ in 0..count {
        let (id, number) = entry(client).await?;
        assert!(known.added.len() > number, "{number} was never added");
        assert_eq!(there.insert(number, id), None, "{number} is there twice");
    }
    for (number, id) in known.added.iter().enumerate() {
        if let Some(id) = id {
            assert_eq!(there.get(&number), Some(id), "entry {number}");
        }
    }
    for (id, number) in &known.delivered {
        assert_eq!(there.get(number), Some(id), "{id} was delivered");
    }
    let head = client.call("XPENDING stream g - + 1000000\r\n", 1).await?.remove(0);
    let Some(count) = head.strip_prefix('*') else {
        assert!(head.starts_with("-NOGROUP") && known.delivered.is_empty(), "{head}");
        return Ok(());
    };
    let mut pending = BTreeSet::new();
    for _ in 0..count.parse::<usize>().expect("an array") {
        pending.insert(client.call("", 7).await?.swap_remove(2));
    }
    assert!(known.acknowledged.is_disjoint(&pending), "an acknowledged entry is pending");
    let lost = known.delivered.keys().find(|id| !pending.contains(*id) && !known.sent.contains_key(*id));
    assert_eq!(lost, None, "it was delivered, and is neither acknowledged nor pending");
    Ok(())
}
