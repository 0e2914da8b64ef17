//! The shipped operators: values equal to RocksDB's, and lookup by name.

use super::*;

fn merge(name: &str, existing: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
    match from_name(name).unwrap().full_merge(b"key", existing, operands).unwrap() {
        Merged::Bytes(bytes) => bytes,
        Merged::Operand(i) => operands[i].to_vec(),
        Merged::Existing => existing.unwrap().to_vec(),
    }
}

#[test]
fn every_name_in_options_is_found() {
    for (short, class) in [
        ("stringappend", "StringAppendOperator"),
        ("stringappendtest", "StringAppendTESTOperator"),
        ("uint64add", "UInt64AddOperator"),
        ("put", "PutOperator"),
        ("put_v1", "PutOperator"),
        ("max", "MaxOperator"),
        ("bytesxor", "BytesXOR"),
        ("sortlist", "MergeSortOperator"),
    ] {
        assert_eq!(from_name(short).unwrap().name(), class);
        assert_eq!(from_name(class).unwrap().name(), class);
        assert_eq!(from_name(&format!("{{id={class};}}")).unwrap().name(), class);
    }
    assert!(from_name("CassandraValueMergeOperator").is_none());
    assert!(from_name("").is_none());
    assert!(from_name("{id=max;weight=3}").is_none());
}

#[test]
fn strings_are_joined() {
    assert_eq!(merge("stringappend", None, &[b"a"]), b"a");
    assert_eq!(merge("stringappend", None, &[b"a", b"", b"c"]), b"a,,c");
    assert_eq!(merge("stringappendtest", Some(b""), &[b"a", b"b"]), b",a,b");
    assert_eq!(merge("{id=StringAppendOperator;delimiter=<>;}", Some(b"x"), &[b"y"]), b"x<>y");
    assert_eq!(merge("{id=StringAppendOperator;delimiter=\\:;}", Some(b"x"), &[b"y"]), b"x:y");
    assert_eq!(merge("{delimiter=;id=StringAppendTESTOperator}", None, &[b"x", b"y"]), b"xy");
    let partial = |name| from_name(name).unwrap().partial_merge(b"", &[b"a", b"b"]);
    assert_eq!(partial("stringappend").unwrap(), b"a,b");
    assert_eq!(partial("stringappendtest"), None);
}

#[test]
fn integers_are_added_and_bad_ones_count_as_zero() {
    let n = |n: u64| n.to_le_bytes();
    assert_eq!(merge("uint64add", None, &[&n(1), &n(2)]), n(3));
    assert_eq!(merge("uint64add", Some(&n(u64::MAX)), &[&n(2)]), n(1));
    assert_eq!(merge("uint64add", Some(b"short"), &[&n(7)]), n(7));
    let add = from_name("uint64add").unwrap();
    assert_eq!(add.partial_merge(b"", &[&n(1), b"short", &n(2)]).unwrap(), n(3));
    assert!(add.full_merge(b"", None, &[]).is_err());
}

#[test]
fn put_max_and_xor() {
    assert_eq!(merge("put", Some(b"old"), &[b"a", b"b"]), b"b");
    assert_eq!(merge("max", Some(b"m"), &[b"a", b"b"]), b"m");
    assert_eq!(merge("max", None, &[b"a", b"c", b"b"]), b"c");
    assert_eq!(merge("max", None, &[b""]), b"");
    assert_eq!(merge("bytesxor", Some(&[1, 2, 3]), &[&[1], &[0, 1]]), [0, 3, 3]);
    assert_eq!(merge("bytesxor", None, &[&[9, 9]]), [9, 9]);
}

#[test]
fn lists_stay_sorted_and_bad_operands_are_refused() {
    assert_eq!(merge("sortlist", Some(b"99"), &[b"1,3,5", b"2,3,9", b"-4"]), b"-4,1,2,3,3,5,9");
    assert!(from_name("sortlist").unwrap().full_merge(b"k", None, &[b"1,x"]).is_err());
    assert!(from_name("sortlist").unwrap().full_merge(b"k", None, &[b""]).is_err());
}
