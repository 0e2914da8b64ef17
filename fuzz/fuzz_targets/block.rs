//! Any bytes as a block: iterated both ways and searched in every order. Every iteration ends, and
//! both directions agree on blocks that are in order.
#![no_main]

use karst_format::block::{Block, BlockCursor};
use karst_format::comparator::Comparator;
use karst_format::key::SeqNo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&split, data)) = data.split_first() else { return };
    let (target, contents) = data.split_at((split as usize).min(data.len()));
    let limit = contents.len() + 1;
    let Ok(block) = Block::parse(contents) else { return };
    for mut cursor in [BlockCursor::new(), BlockCursor::with_global_seqno(SeqNo(7))] {
        let mut forward = 0;
        let mut found = cursor.seek_to_first(&block);
        while let Ok(true) = found {
            let _ = (cursor.key(&block), cursor.value(&block), cursor.key_range());
            forward += 1;
            assert!(forward < limit);
            found = cursor.next(&block);
        }
        let mut backward = 0;
        found = cursor.seek_to_last(&block);
        while let Ok(true) = found {
            let _ = (cursor.key(&block), cursor.value(&block));
            backward += 1;
            assert!(backward < limit);
            found = cursor.prev(&block);
        }
        for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Uint64] {
            let _ = cursor.seek_for_get(&block, &comparator, target);
            let _ = cursor.seek_for_prev(&block, &comparator, target);
            if let Ok(true) = cursor.seek(&block, &comparator, target) {
                let _ = (cursor.key(&block), cursor.value(&block));
                if let Ok(true) = cursor.prev(&block) {
                    let _ = cursor.next(&block);
                }
            }
        }
    }
});
