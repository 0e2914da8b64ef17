//! Any bytes as an index block of any layout: iterated both ways and searched.
#![no_main]

use karst_format::comparator::Comparator;
use karst_format::index::{IndexBlock, IndexCursor, IndexLayout};
use karst_format::key::SeqNo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [layout, split, data @ ..] = data else { return };
    let layout = IndexLayout {
        user_keys: layout & 1 != 0,
        delta_handles: layout & 2 != 0,
        first_keys: layout & 4 != 0,
    };
    let (target, contents) = data.split_at((*split as usize).min(data.len()));
    let limit = contents.len() + 1;
    let Ok(index) = IndexBlock::parse(contents.into(), layout) else { return };
    for mut cursor in [IndexCursor::new(), IndexCursor::with_global_seqno(SeqNo(7))] {
        let mut steps = 0;
        let mut found = cursor.seek_to_first(&index);
        while let Ok(true) = found {
            let _ = (cursor.user_key(&index), cursor.handle(), cursor.first_internal_key(&index));
            steps += 1;
            assert!(steps < limit);
            found = cursor.next(&index);
        }
        steps = 0;
        found = cursor.seek_to_last(&index);
        while let Ok(true) = found {
            let _ = (cursor.key(&index), cursor.handle(), cursor.first_internal_key(&index));
            steps += 1;
            assert!(steps < limit);
            found = cursor.prev(&index);
        }
        for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise] {
            let _ = cursor.seek(&index, &comparator, target);
            let _ = index.find(&comparator, target);
        }
    }
});
