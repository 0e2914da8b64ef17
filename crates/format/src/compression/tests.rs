//! Tests of [`super`]: round trips, handmade layouts, hostile bytes.
use super::*;
use proptest::prelude::*;

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..3000),
        proptest::collection::vec(
            prop_oneof![Just(b"hello world ".to_vec()), Just(b"other ".to_vec()), Just(vec![7; 300])],
            0..200
        )
        .prop_map(|pieces| pieces.concat()),
    ]
}

fn types() -> impl Strategy<Value = CompressionType> {
    proptest::sample::select(&CompressionType::ALL[..])
}

proptest! {
    #[test]
    fn round_trip(data in data(), compression in types(), dictionary in proptest::option::of(data()), level in proptest::option::of(1i32..9)) {
        let dictionary = dictionary.map(|d| Dictionary::new(d.into()));
        let mut out = vec![9; 3];
        compress_into(compression, level, &data, dictionary.as_ref(), &mut out);
        let back = decompress(compression, &out[3..], dictionary.as_ref(), 5, MAX_BLOCK_BYTES).unwrap();
        prop_assert_eq!(&back[..], &data[..]);
        if !data.is_empty() {
            prop_assert!(decompress(compression, &out[3..], dictionary.as_ref(), 5, data.len() - 1).is_err());
        }
    }

    #[test]
    fn hostile_bytes_end_in_errors(
        data in data(), compression in types(), dictionary in proptest::option::of(data()), version in 0u32..6,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4), cut in 0usize..9,
    ) {
        let dictionary = dictionary.map(|d| Dictionary::new(d.into()));
        let mut out = Vec::new();
        compress_into(compression, None, &data, dictionary.as_ref(), &mut out);
        for (at, value) in damage {
            if !out.is_empty() {
                let at = at.index(out.len());
                out[at] = value;
            }
        }
        out.truncate(out.len().saturating_sub(cut));
        if let Ok(back) = decompress(compression, &out, dictionary.as_ref(), version, 1 << 16) {
            prop_assert!(back.len() <= 1 << 16);
        }
    }

    #[test]
    fn arbitrary_bytes_end_in_errors(data: Vec<u8>, compression in types(), version in 0u32..6) {
        let _ = decompress(compression, &data, None, version, 1 << 16);
    }
}

#[test]
fn dictionaries_help_where_they_are_used() {
    // Text without internal repetitions, all of it in the dictionary.
    let text: Vec<u8> = (0..1500u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let dictionary = Dictionary::new(text.clone().into());
    for compression in CompressionType::ALL {
        let (mut plain, mut with) = (Vec::new(), Vec::new());
        compress_into(compression, None, &text, None, &mut plain);
        compress_into(compression, None, &text, Some(&dictionary), &mut with);
        if compression.uses_dictionary() {
            assert!(with.len() < plain.len() / 10, "{compression:?}: {} of {}", with.len(), plain.len());
            assert!(
                decompress(compression, &with, None, 5, 1 << 20)
                    .is_err_and(|e| e.what.contains(compression.name())),
                "{compression:?}"
            );
        } else {
            assert_eq!(plain, with);
        }
    }
}

#[test]
fn dictionaries_longer_than_the_window() {
    let dictionary: Vec<u8> =
        (0..100_000u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let text = dictionary[dictionary.len() - 9000..].to_vec();
    let dictionary = Dictionary::new(dictionary.into());
    for compression in CompressionType::ALL {
        let mut out = Vec::new();
        compress_into(compression, None, &text, Some(&dictionary), &mut out);
        assert_eq!(&decompress(compression, &out, Some(&dictionary), 5, 1 << 20).unwrap()[..], text);
        assert!(
            !compression.uses_dictionary() || out.len() < text.len() / 5,
            "{compression:?} {}",
            out.len()
        );
    }
}

#[test]
fn old_layouts_without_sizes() {
    let text = b"old tables say nothing about their size ".repeat(2000);
    for compression in [CompressionType::Zlib, CompressionType::Bzip2] {
        let mut sized = Vec::new();
        compress_into(compression, None, &text, None, &mut sized);
        let mut reader = Reader::new(&sized);
        reader.varint32().unwrap();
        let back = decompress(compression, reader.rest(), None, 1, 1 << 20).unwrap();
        assert_eq!(&back[..], text);
        assert!(decompress(compression, reader.rest(), None, 1, 1000).is_err());
    }
    let mut sized = Vec::new();
    compress_into(CompressionType::Lz4, None, &text, None, &mut sized);
    let mut reader = Reader::new(&sized);
    let size = reader.varint32().unwrap();
    let old = [&u64::from(size).to_le_bytes()[..], reader.rest()].concat();
    assert_eq!(&decompress(CompressionType::Lz4, &old, None, 1, 1 << 20).unwrap()[..], text);
}

#[test]
fn a_small_block_cannot_claim_a_large_size() {
    let mut claim = Vec::new();
    put_varint32(&mut claim, 1 << 29);
    claim.extend_from_slice(&[0; 40]);
    for compression in [CompressionType::Snappy, CompressionType::Zlib, CompressionType::Lz4] {
        let error = decompress(compression, &claim, None, 5, MAX_BLOCK_BYTES).unwrap_err();
        assert!(error.what.contains("cannot hold"), "{error}");
    }
}

#[test]
fn names_and_refusals() {
    for t in CompressionType::ALL {
        assert_eq!(CompressionType::from_u8(t as u8).unwrap(), t);
        assert_eq!(CompressionType::from_name(t.name()), Some(t));
        assert_eq!(CompressionType::from_name(t.option_name()), Some(t));
    }
    assert!(CompressionType::from_u8(6).unwrap_err().what.contains("Xpress"));
    assert!(CompressionType::from_u8(0x81).unwrap_err().what.contains("custom compression"));
    assert!(CompressionType::from_u8(0xff).is_err());
}
