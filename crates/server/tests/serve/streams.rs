//! Streams and their groups of consumers; those who wait for entries too.

use crate::client::{Client, Served};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument";

#[test]
fn entries_are_added_read_and_removed() {
    Served::start().check(&[
        ("XADD s 1-1 a 1 b 2", "\"1-1\""),
        ("XADD s 1-* a 2", "\"1-2\""),
        ("XADD s 3 a 3", "\"3-0\""),
        (
            "XADD s 3-0 a 3",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XADD s 2-* a 3",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD s 0-0 a 3", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD s x a 3", INVALID_ID),
        ("XADD s * a", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD s 4-0 a 3 b", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD none NOMKSTREAM * a 1", "nil"),
        ("EXISTS none", ":0"),
        ("TYPE s", "+stream"),
        ("OBJECT ENCODING s", "\"stream\""),
        ("SCAN 0 TYPE stream", "[\"0\" [\"s\"]]"),
        ("XLEN s", ":3"),
        ("XLEN none", ":0"),
        (
            "XRANGE s - +",
            "[[\"1-1\" [\"a\" \"1\" \"b\" \"2\"]] [\"1-2\" [\"a\" \"2\"]] [\"3-0\" [\"a\" \"3\"]]]",
        ),
        ("XRANGE s (1-1 + COUNT 1", "[[\"1-2\" [\"a\" \"2\"]]]"),
        ("XRANGE s 1 1", "[[\"1-1\" [\"a\" \"1\" \"b\" \"2\"]] [\"1-2\" [\"a\" \"2\"]]]"),
        ("XREVRANGE s + (1-2", "[[\"3-0\" [\"a\" \"3\"]]]"),
        ("XREVRANGE s + - COUNT 2", "[[\"3-0\" [\"a\" \"3\"]] [\"1-2\" [\"a\" \"2\"]]]"),
        ("XRANGE s - + COUNT 0", "nil"),
        ("XRANGE none - +", "[]"),
        ("XRANGE s (18446744073709551615-18446744073709551615 +", "-ERR invalid start ID for the interval"),
        ("XRANGE s - (0-0", "-ERR invalid end ID for the interval"),
        ("XRANGE s (- +", INVALID_ID),
        ("XRANGE s - + COUNT", "-ERR syntax error"),
        ("XDEL s 1-2 1-2 9-9", ":1"),
        ("XDEL s 1-1 x", INVALID_ID),
        ("XDEL none x", ":0"),
        ("XLEN s", ":2"),
        ("XDEL s 1-1 3-0", ":2"),
        ("XLEN s", ":0"),
        ("EXISTS s", ":1"),
        (
            "XADD s 3-0 a 3",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XADD s 18446744073709551615-18446744073709551615 a 1",
            "\"18446744073709551615-18446744073709551615\"",
        ),
        ("XADD s * a 1", "-ERR The stream has exhausted the last possible ID, unable to add more items"),
        ("SET t 1", "+OK"),
        ("XADD t * a 1", WRONG_TYPE),
        ("XRANGE t - +", WRONG_TYPE),
        ("XREAD STREAMS t 0", WRONG_TYPE),
        ("LPUSH s 1", WRONG_TYPE),
        ("GET s", WRONG_TYPE),
    ]);
}

#[test]
fn streams_are_trimmed() {
    let served = Served::start();
    let mut client = served.client();
    for number in 1..=1000 {
        client.check(&[(&format!("XADD s {number} a 1"), &format!("\"{number}-0\""))]);
    }
    client.check(&[
        ("XTRIM s MAXLEN ~ 555", ":400"),
        ("XLEN s", ":600"),
        ("XRANGE s - + COUNT 1", "[[\"401-0\" [\"a\" \"1\"]]]"),
        ("XTRIM s MAXLEN ~ 0 LIMIT 1", ":0"),
        ("XTRIM s MAXLEN ~ 0 LIMIT 250", ":200"),
        ("XTRIM s MINID 700", ":99"),
        ("XTRIM s MINID = 700", ":0"),
        ("XTRIM s MINID ~ 720-5 LIMIT 10", ":10"),
        ("XTRIM s MAXLEN = 3", ":288"),
        ("XADD s MAXLEN 2 1001 a 1", "\"1001-0\""),
        ("XRANGE s - +", "[[\"1000-0\" [\"a\" \"1\"]] [\"1001-0\" [\"a\" \"1\"]]]"),
        ("XINFO STREAM s", "[\"length\" :2 \"radix-tree-keys\" :1 \"radix-tree-nodes\" :2 \"last-generated-id\" \
          \"1001-0\" \"max-deleted-entry-id\" \"0-0\" \"entries-added\" :1001 \"recorded-first-entry-id\" \
          \"1000-0\" \"groups\" :0 \"first-entry\" [\"1000-0\" [\"a\" \"1\"]] \"last-entry\" [\"1001-0\" [\"a\" \
          \"1\"]]]"),
        ("XTRIM s MAXLEN 0", ":2"),
        ("XTRIM s MAXLEN 0", ":0"),
        ("XADD s MAXLEN 0 1002 a 1", "\"1002-0\""),
        ("XLEN s", ":0"),
        ("XTRIM none MAXLEN 1", ":0"),
        ("XTRIM s MAXLEN -1", "-ERR The MAXLEN argument must be >= 0."),
        ("XTRIM s MAXLEN 1 LIMIT 1", "-ERR syntax error, LIMIT cannot be used without the special ~ option"),
        ("XTRIM s MAXLEN ~ 1 LIMIT -1", "-ERR The LIMIT argument must be >= 0."),
        ("XTRIM s LIMIT 5 x", "-ERR syntax error"),
        ("XTRIM s MAXLEN 1 MINID 1", "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible"),
        ("XADD s LIMIT 5 * a 1", "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        ("XTRIM s MINID x", INVALID_ID),
        ("CONFIG SET stream-node-max-entries 1", "+OK"),
        ("XADD s 1003 a 1", "\"1003-0\""),
        ("XADD s MAXLEN ~ 1 1004 a 1", "\"1004-0\""),
        ("XLEN s", ":1"),
        ("CONFIG SET stream-node-max-entries 100", "+OK"),
        ("XTRIM s MAXLEN ~ 0", ":1"),
    ]);
    for number in 1..=300 {
        client.line(&format!("XADD all {number} a 1"));
    }
    client.check(&[
        ("XTRIM all MAXLEN 0", ":300"),
        ("XADD all 301 a 2", "\"301-0\""),
        ("XRANGE all - +", "[[\"301-0\" [\"a\" \"2\"]]]"),
    ]);
}

#[test]
fn ids_and_counts_are_set() {
    Served::start().check(&[
        ("XSETID s 1", "-ERR no such key"),
        ("XADD s 5-5 a 1", "\"5-5\""),
        ("XADD s 6-6 a 1", "\"6-6\""),
        ("XSETID s 6-5", "-ERR The ID specified in XSETID is smaller than the target stream top item"),
        (
            "XSETID s 9-9 ENTRIESADDED 1",
            "-ERR The entries_added specified in XSETID is smaller than the target \
          stream length",
        ),
        ("XSETID s 9-9 ENTRIESADDED -1", "-ERR entries_added must be positive"),
        (
            "XSETID s 9-9 MAXDELETEDID 9-10",
            "-ERR The ID specified in XSETID is smaller than the provided \
          max_deleted_entry_id",
        ),
        ("XSETID s 9-9 ENTRIESADDED", "-ERR syntax error"),
        ("XSETID s 9-9 ENTRIESADDED 100 MAXDELETEDID 7-0", "+OK"),
        ("XSETID s - ENTRIESADDED 100", INVALID_ID),
        (
            "XADD s 9-8 a 1",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        (
            "XINFO STREAM s FULL COUNT 1",
            "[\"length\" :2 \"radix-tree-keys\" :1 \"radix-tree-nodes\" :2 \
          \"last-generated-id\" \"9-9\" \"max-deleted-entry-id\" \"7-0\" \"entries-added\" :100 \
          \"recorded-first-entry-id\" \"5-5\" \"entries\" [[\"5-5\" [\"a\" \"1\"]]] \"groups\" []]",
        ),
        ("XINFO STREAM none", "-ERR no such key"),
        (
            "XINFO STREAM s FULL MANY",
            "-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO \
          HELP.",
        ),
    ]);
}

#[test]
fn several_streams_are_read() {
    let served = Served::start();
    served.check(&[
        ("XADD a 1-1 f 1", "\"1-1\""),
        ("XADD b 2-1 f 2", "\"2-1\""),
        ("XADD b 2-2 f 3", "\"2-2\""),
        (
            "XREAD STREAMS a none b 0 0 2-1",
            "[[\"a\" [[\"1-1\" [\"f\" \"1\"]]]] [\"b\" [[\"2-2\" [\"f\" \"3\"]]]]]",
        ),
        ("XREAD COUNT 1 STREAMS b 0", "[[\"b\" [[\"2-1\" [\"f\" \"2\"]]]]]"),
        (
            "XREAD COUNT 5 STREAMS a b + +",
            "[[\"a\" [[\"1-1\" [\"f\" \"1\"]]]] [\"b\" [[\"2-2\" [\"f\" \"3\"]]]]]",
        ),
        ("XREAD STREAMS a b $ $", "nil"),
        ("XREAD BLOCK 1 STREAMS a $", "nil"),
        ("XREAD BLOCK 0 STREAMS a 0", "[[\"a\" [[\"1-1\" [\"f\" \"1\"]]]]]"),
        (
            "XREAD STREAMS a b 0",
            "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
          specified.",
        ),
        ("XREAD STREAMS a x", INVALID_ID),
        (
            "XREAD STREAMS a >",
            "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
          <consumer> option.",
        ),
        ("XREAD COUNT x STREAMS a 0", "-ERR value is not an integer or out of range"),
        ("XREAD BLOCK -1 STREAMS a 0", "-ERR timeout is negative"),
        ("XREAD BLOCK x STREAMS a 0", "-ERR timeout is not an integer or out of range"),
        ("XREAD COUNT 1 a 0", "-ERR syntax error"),
        (
            "XREAD NOACK STREAMS a 0",
            "-ERR The NOACK option is only supported by XREADGROUP. You called XREAD \
          instead.",
        ),
        ("COMMAND GETKEYS XREAD COUNT 5 STREAMS a b 0 0", "[\"a\" \"b\"]"),
        ("MULTI", "+OK"),
        ("XADD a 1-2 f 4", "+QUEUED"),
        ("XREAD BLOCK 0 STREAMS a 1-1", "+QUEUED"),
        ("XREAD BLOCK 0 STREAMS a $", "+QUEUED"),
        ("EXEC", "[\"1-2\" [[\"a\" [[\"1-2\" [\"f\" \"4\"]]]]] nil]"),
    ]);
    let mut client = served.client();
    client.line("HELLO 3");
    client.check(&[
        ("XREAD STREAMS a none 0 0", "{\"a\" [[\"1-1\" [\"f\" \"1\"]] [\"1-2\" [\"f\" \"4\"]]]}"),
        ("XREAD STREAMS none 0", "nil"),
    ]);
}

#[test]
fn groups_deliver_each_entry_once() {
    Served::start().check(&[
        (
            "XGROUP CREATE s g $",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
          want to use the MKSTREAM option to create an empty stream automatically.",
        ),
        (
            "XREADGROUP GROUP g c STREAMS s >",
            "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with \
          GROUP option",
        ),
        ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
        ("XGROUP CREATE s g 0", "-BUSYGROUP Consumer Group name already exists"),
        ("XGROUP CREATE s h x", INVALID_ID),
        (
            "XGROUP CREATE s h 0 MAYBE",
            "-ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try \
          XGROUP HELP.",
        ),
        ("XADD s 1 a 1", "\"1-0\""),
        ("XADD s 2 a 2", "\"2-0\""),
        ("XADD s 3 a 3", "\"3-0\""),
        (
            "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
            "[[\"s\" [[\"1-0\" [\"a\" \"1\"]] [\"2-0\" [\"a\" \"2\"]]]]]",
        ),
        ("XREADGROUP GROUP g d STREAMS s >", "[[\"s\" [[\"3-0\" [\"a\" \"3\"]]]]]"),
        ("XREADGROUP GROUP g c STREAMS s >", "nil"),
        ("XREADGROUP GROUP g c STREAMS s 1", "[[\"s\" [[\"2-0\" [\"a\" \"2\"]]]]]"),
        ("XREADGROUP GROUP g d STREAMS s 5", "[[\"s\" []]]"),
        ("XPENDING s g", "[:3 \"1-0\" \"3-0\" [[\"c\" \"2\"] [\"d\" \"1\"]]]"),
        ("XPENDING s none", "-NOGROUP No such key 's' or consumer group 'none'"),
        ("XPENDING s g - + 10 nobody", "[]"),
        ("XPENDING s g - + 0", "[]"),
        ("XPENDING s g IDLE 10000000 - + 10", "[]"),
        ("XPENDING s g - +", "-ERR syntax error"),
        ("XACK s g 1 1 9", ":1"),
        ("XACK s g 2 x", INVALID_ID),
        ("XACK s none 1", ":0"),
        ("XPENDING s g", "[:2 \"2-0\" \"3-0\" [[\"c\" \"1\"] [\"d\" \"1\"]]]"),
        ("XDEL s 2", ":1"),
        ("XREADGROUP GROUP g c STREAMS s 0", "[[\"s\" [[\"2-0\" nil]]]]"),
        ("XGROUP SETID s g 0", "+OK"),
        ("XREADGROUP GROUP g e STREAMS s >", "[[\"s\" [[\"1-0\" [\"a\" \"1\"]] [\"3-0\" [\"a\" \"3\"]]]]]"),
        ("XPENDING s g", "[:3 \"1-0\" \"3-0\" [[\"c\" \"1\"] [\"e\" \"2\"]]]"),
        ("XGROUP CREATECONSUMER s g f", ":1"),
        ("XGROUP CREATECONSUMER s g f", ":0"),
        ("XGROUP CREATECONSUMER s none f", "-NOGROUP No such consumer group 'none' for key name 's'"),
        ("XGROUP DELCONSUMER s g e", ":2"),
        ("XGROUP DELCONSUMER s g e", ":0"),
        ("XPENDING s g", "[:1 \"2-0\" \"2-0\" [[\"c\" \"1\"]]]"),
        ("XADD s 4 a 4", "\"4-0\""),
        ("XREADGROUP GROUP g c NOACK STREAMS s >", "[[\"s\" [[\"4-0\" [\"a\" \"4\"]]]]]"),
        ("XPENDING s g", "[:1 \"2-0\" \"2-0\" [[\"c\" \"1\"]]]"),
        ("XACK s g 2", ":1"),
        ("XPENDING s g", "[:0 nil nil nil]"),
        (
            "XINFO GROUPS s",
            "[[\"name\" \"g\" \"consumers\" :3 \"pending\" :0 \"last-delivered-id\" \"4-0\" \
          \"entries-read\" :4 \"lag\" :0]]",
        ),
        ("XGROUP DESTROY s g", ":1"),
        ("XGROUP DESTROY s g", ":0"),
        ("XINFO GROUPS s", "[]"),
        ("XINFO CONSUMERS s g", "-NOGROUP No such consumer group 'g' for key name 's'"),
        ("XGROUP NONE s g", "-ERR unknown subcommand 'NONE'. Try XGROUP HELP."),
        ("DEL s", ":1"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn pending_entries_change_their_owner() {
    Served::start().check(&[
        ("XGROUP CREATE s g 0 MKSTREAM", "+OK"),
        ("XADD s 1 a 1", "\"1-0\""),
        ("XADD s 2 a 2", "\"2-0\""),
        ("XADD s 3 a 3", "\"3-0\""),
        ("XADD s 4 a 4", "\"4-0\""),
        (
            "XREADGROUP GROUP g c COUNT 3 STREAMS s >",
            "[[\"s\" [[\"1-0\" [\"a\" \"1\"]] [\"2-0\" [\"a\" \"2\"]] \
          [\"3-0\" [\"a\" \"3\"]]]]]",
        ),
        ("XCLAIM s none d 0 1", "-NOGROUP No such key 's' or consumer group 'none'"),
        ("XCLAIM s g d 0 1 1", "[[\"1-0\" [\"a\" \"1\"]] [\"1-0\" [\"a\" \"1\"]]]"),
        ("XCLAIM s g d 0 2 9 4 JUSTID", "[\"2-0\"]"),
        ("XCLAIM s g d 10000000 3", "[]"),
        ("XCLAIM s g d 0 4 FORCE RETRYCOUNT 9 IDLE 5000 LASTID 4", "[[\"4-0\" [\"a\" \"4\"]]]"),
        ("XREADGROUP GROUP g c STREAMS s >", "nil"),
        ("XPENDING s g", "[:4 \"1-0\" \"4-0\" [[\"c\" \"1\"] [\"d\" \"3\"]]]"),
        ("XPENDING s g IDLE 5000 - + 5 c", "[]"),
        ("XCLAIM s g d x 1", "-ERR Invalid min-idle-time argument for XCLAIM"),
        ("XCLAIM s g d 0 1 IDLE x", "-ERR Invalid IDLE option argument for XCLAIM"),
        ("XCLAIM s g d 0 1 NEVER", "-ERR Unrecognized XCLAIM option 'NEVER'"),
        ("XDEL s 2", ":1"),
        ("XAUTOCLAIM s g e 0 - COUNT 1", "[\"2-0\" [[\"1-0\" [\"a\" \"1\"]]] []]"),
        ("XAUTOCLAIM s g e 0 2-0 COUNT 2 JUSTID", "[\"4-0\" [\"3-0\"] [\"2-0\"]]"),
        ("XAUTOCLAIM s g e 0 (4-0", "[\"0-0\" [] []]"),
        ("XAUTOCLAIM s g e 10000000 0", "[\"0-0\" [] []]"),
        ("XAUTOCLAIM s g e 0 0 COUNT 0", "-ERR COUNT must be > 0"),
        ("XAUTOCLAIM s g e x 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("XAUTOCLAIM s none e 0 0", "-NOGROUP No such key 's' or consumer group 'none'"),
        ("XPENDING s g", "[:3 \"1-0\" \"4-0\" [[\"d\" \"1\"] [\"e\" \"2\"]]]"),
        ("XDEL s 4", ":1"),
        ("XCLAIM s g e 0 4", "[]"),
        ("XPENDING s g", "[:2 \"1-0\" \"3-0\" [[\"e\" \"2\"]]]"),
    ]);
}

#[test]
fn streams_with_groups_are_copied_moved_dumped_and_kept() {
    let mut served = Served::start();
    let full = "[\"length\" :2 \"radix-tree-keys\" :1 \"radix-tree-nodes\" :2 \"last-generated-id\" \"9-0\" \
                \"max-deleted-entry-id\" \"2-0\" \"entries-added\" :3 \"recorded-first-entry-id\" \"1-0\" \
                \"entries\" [[\"1-0\" [\"a\" \"1\"]] [\"3-0\" [\"b\" \"3\" \"c\" \"\"]]] \"groups\"";
    let pending = "[:1 \"3-0\" \"3-0\" [[\"c\" \"1\"]]]";
    served.check(&[
        ("XADD s 1 a 1", "\"1-0\""),
        ("XADD s 2 a 2", "\"2-0\""),
        ("XGROUP CREATE s g 2", "+OK"),
        ("XADD s 3 b 3 c d", "\"3-0\""),
        ("XDEL s 3", ":1"),
        ("XSETID s 2", "+OK"),
    ]);
    let mut client = served.client();
    client.send_command(&["XADD", "s", "3", "b", "3", "c", ""]);
    client.expect(&["\"3-0\""]);
    client.check(&[
        ("XSETID s 9 ENTRIESADDED 3 MAXDELETEDID 2-0", "+OK"),
        ("XDEL s 2", ":1"),
        ("XREADGROUP GROUP g c STREAMS s >", "[[\"s\" [[\"3-0\" [\"b\" \"3\" \"c\" \"\"]]]]]"),
        ("COPY s t", ":1"),
        ("EXPIRE s 1000", ":1"),
        ("COPY s u DB 1", ":1"),
        ("RENAME t v", "+OK"),
        ("XACK s g 3", ":1"),
        ("XPENDING v g", pending),
    ]);
    let crate::client::Reply::Bulk(dumped) = client.line("DUMP v") else { panic!("no payload") };
    client.send_command(&[&b"RESTORE"[..], b"w", b"0", &dumped]);
    client.expect(&["+OK"]);
    for length in 0..dumped.len() {
        client.send_command(&[&b"RESTORE"[..], b"x", b"0", &dumped[..length]]);
        assert!(client.reply().expect("a reply").to_string().starts_with("-ERR"), "{length}");
    }
    served.close();
    served.open(&crate::client::options());
    let mut client = served.client();
    for key in ["v", "w"] {
        let info = client.line(&format!("XINFO STREAM {key} FULL")).to_string();
        assert!(info.starts_with(full), "{info}");
        client.check(&[(&format!("XPENDING {key} g"), pending)]);
    }
    client.check(&[
        ("XREADGROUP GROUP g c STREAMS w 0", "[[\"w\" [[\"3-0\" [\"b\" \"3\" \"c\" \"\"]]]]]"),
        ("MEMORY USAGE none", "nil"),
        ("SELECT 1", "+OK"),
        ("XPENDING u g", pending),
        ("MOVE u 2", ":1"),
        ("SELECT 2", "+OK"),
        ("XACK u g 3", ":1"),
        ("XLEN u", ":2"),
        ("PERSIST u", ":1"),
        ("XADD u 10 a 1", "\"10-0\""),
    ]);
}

#[test]
fn readers_all_get_what_groups_get_once() {
    let served = Served::start();
    let mut writer = served.client();
    writer.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK"), ("XGROUP CREATE s h $", "+OK")]);
    let mut clients: Vec<Client> = (0..6).map(|_| served.client()).collect();
    let commands = [
        "XREAD BLOCK 0 STREAMS s $",
        "XREADGROUP GROUP g one BLOCK 0 COUNT 1 STREAMS s >",
        "XREADGROUP GROUP g two BLOCK 0 STREAMS s >",
        "XREAD BLOCK 0 STREAMS none s $ $",
        "XREADGROUP GROUP h three BLOCK 0 STREAMS s >",
        "XREAD BLOCK 0 STREAMS s +",
    ];
    for (number, command) in commands.iter().enumerate() {
        clients[number].send_line(command);
        writer.wait_for_blocked(number + 1);
    }
    writer.check(&[("XADD s 1 a 1", "\"1-0\"")]);
    for number in [0, 1, 3, 4, 5] {
        clients[number].expect(&["[[\"s\" [[\"1-0\" [\"a\" \"1\"]]]]]"]);
    }
    writer.wait_for_blocked(1);
    writer.check(&[("XADD s 2 a 2", "\"2-0\"")]);
    clients[2].expect(&["[[\"s\" [[\"2-0\" [\"a\" \"2\"]]]]]"]);
    writer.check(&[
        ("XPENDING s g", "[:2 \"1-0\" \"2-0\" [[\"one\" \"1\"] [\"two\" \"1\"]]]"),
        ("XPENDING s h", "[:1 \"1-0\" \"1-0\" [[\"three\" \"1\"]]]"),
    ]);
    // A transaction is seen as a whole, in the order of the command's streams.
    clients[0].line("HELLO 3");
    clients[0].send_line("XREAD BLOCK 0 STREAMS s t $ $");
    writer.wait_for_blocked(1);
    writer.check(&[
        ("MULTI", "+OK"),
        ("XADD t 1 a 1", "+QUEUED"),
        ("XADD s 3 a 3", "+QUEUED"),
        ("EXEC", "[\"1-0\" \"3-0\"]"),
    ]);
    clients[0].expect(&["{\"s\" [[\"3-0\" [\"a\" \"3\"]]] \"t\" [[\"1-0\" [\"a\" \"1\"]]]}"]);
}

#[test]
fn those_who_wait_are_told_that_a_group_is_gone() {
    let served = Served::start();
    let mut writer = served.client();
    let (mut pops, mut reads, mut one, mut two) =
        (served.client(), served.client(), served.client(), served.client());
    let gone = "-UNBLOCKED the stream key no longer exists";
    let cases = [
        ("DEL s", gone),
        ("SET s 1", gone),
        ("FLUSHALL", gone),
        ("SWAPDB 0 3", gone),
        ("PEXPIRE s 1", gone),
        ("XGROUP DESTROY s g", "-NOGROUP the consumer group this client was blocked on no longer exists"),
    ];
    for (command, error) in cases {
        writer.line("FLUSHALL");
        pops.send_line("BLPOP s 0");
        writer.wait_for_blocked(1);
        writer.check(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
        reads.send_line("XREAD BLOCK 0 STREAMS s $");
        writer.wait_for_blocked(2);
        one.send_line("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        writer.wait_for_blocked(3);
        two.send_line("XREADGROUP GROUP g d BLOCK 0 NOACK STREAMS s >");
        writer.wait_for_blocked(4);
        writer.line(command);
        one.expect(&[error]);
        two.expect(&[error]);
        writer.wait_for_blocked(2);
        writer.line("DEL s");
        writer.check(&[("XADD s 1 a 1", "\"1-0\"")]);
        reads.expect(&["[[\"s\" [[\"1-0\" [\"a\" \"1\"]]]]]"]);
        writer.check(&[("DEL s", ":1"), ("RPUSH s x", ":1")]);
        pops.expect(&["[\"s\" \"x\"]"]);
    }
}

#[test]
fn a_renamed_stream_serves_those_who_wait() {
    let served = Served::start();
    let (mut writer, mut one, mut two) = (served.client(), served.client(), served.client());
    writer.check(&[
        ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
        ("XGROUP CREATE t g $ MKSTREAM", "+OK"),
        ("XADD t 1 a 1", "\"1-0\""),
    ]);
    one.send_line("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    writer.wait_for_blocked(1);
    writer.check(&[("RENAME t s", "+OK")]);
    one.expect(&["[[\"s\" [[\"1-0\" [\"a\" \"1\"]]]]]"]);
    two.send_line("XREADGROUP GROUP g d BLOCK 0 STREAMS s >");
    writer.wait_for_blocked(1);
    writer.check(&[("XADD t 1 a 1", "\"1-0\""), ("RENAME t s", "+OK")]);
    two.expect(&["-NOGROUP the consumer group this client was blocked on no longer exists"]);
    // The consumer that waited is known, and has no entries.
    one.send_line("XREADGROUP GROUP g e BLOCK 1 STREAMS s >");
    one.expect(&["-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"]);
}
