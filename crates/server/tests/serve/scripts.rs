//! EVAL and its relatives, SCRIPT, FUNCTION, and what scripts see.

use crate::client::{Client, Served};
use std::time::{Duration, Instant};

/// Runs a script without keys.
fn eval(client: &mut Client, script: &str) -> String {
    client.call(&["EVAL", script, "0"]).to_string()
}

/// Runs each script on a server of its own, and compares its reply.
fn check(cases: &[(&str, &str)]) {
    let served = Served::start();
    let mut client = served.client();
    for (script, expected) in cases {
        assert_eq!(eval(&mut client, script), *expected, "{script}");
    }
}

fn sha(client: &mut Client, script: &str) -> String {
    client.call(&["SCRIPT", "LOAD", script]).text()
}

#[test]
fn replies_are_converted() {
    check(&[
        ("return 1", ":1"),
        ("return 3.99", ":3"),
        ("return 'a'", "\"a\""),
        ("return true", ":1"),
        ("return false", "nil"),
        ("return", "nil"),
        ("return {1, 'a', {2}, nil, 3}", "[:1 \"a\" [:2]]"),
        ("return {ok='fine'}", "+fine"),
        ("return {err='MY error'}", "-MY error"),
        ("return redis.status_reply('x')", "+x"),
        ("return redis.error_reply('ERR x')", "-ERR x"),
        ("return redis.error_reply('x y')", "-x y"),
        ("return {double=1.5}", "\"1.5\""),
        ("return {map={a=1}}", "[\"a\" :1]"),
        ("return redis.call('set', 'k', 5)", "+OK"),
        ("return redis.call('get', 'k')", "\"5\""),
        ("return redis.call('get', 'none') == false", ":1"),
        ("return redis.call('incr', 'k') + 1", ":7"),
        ("return redis.call('set', 'k', 0.1)", "+OK"),
        ("return redis.call('get', 'k')", "\"0.10000000000000001\""),
        ("return redis.pcall('get').err", "\"ERR Wrong number of args calling Redis command from script\""),
        ("return redis.sha1hex('')", "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\""),
        ("return redis.REDIS_VERSION", "\"7.4.2\""),
        (
            "redis.setresp(3); redis.call('hset', 'h', 'f', 'v'); return redis.call('hgetall', 'h').map.f",
            "\"v\"",
        ),
        ("redis.setresp(3); return redis.call('zscore', 'none', 'x') == nil", ":1"),
    ]);
}

#[test]
fn replies_of_clients_with_resp3() {
    let served = Served::start();
    let mut client = served.client();
    client.line("HELLO 3");
    for (script, expected) in [
        ("redis.setresp(3); return true", "#t"),
        ("return true", ":1"),
        ("return false", "nil"),
        ("return {double=1.5}", ",1.5"),
        ("return {map={a=1}}", "{\"a\" :1}"),
        ("return {set={a=true}}", "<\"a\">"),
        ("return {big_number='12345678901234567890'}", "(12345678901234567890"),
        ("return {verbatim_string={format='txt', string='hi'}}", "\"txt:hi\""),
        (
            "redis.call('zadd', 'z', 1.5, 'm'); redis.setresp(3); return redis.call('zscore', 'z', 'm')",
            ",1.5",
        ),
    ] {
        assert_eq!(eval(&mut client, script), expected, "{script}");
    }
}

#[test]
fn errors_say_where_they_come_from() {
    let served = Served::start();
    let mut client = served.client();
    client.line("SET k x");
    for (script, text) in [
        ("return redis.call('incr', 'k')", "ERR value is not an integer or out of range"),
        ("redis.call('nothing')", "ERR Unknown Redis command called from script"),
        ("redis.call('get')", "ERR Wrong number of args calling Redis command from script"),
        ("redis.call('multi')", "ERR This Redis command is not allowed from script"),
        ("redis.call()", "ERR Please specify at least one argument for this redis lib call"),
        ("redis.call({})", "ERR Lua redis lib command arguments must be strings or integers"),
        ("error('mine')", "ERR user_script:1: mine"),
        ("error({err='MY own'})", "MY own"),
        ("return none", "ERR user_script:1: Script attempted to access nonexistent global variable 'none'"),
        ("a = 1", "ERR user_script:1: Attempt to modify a readonly table"),
        ("redis.call = 1", "ERR user_script:1: Attempt to modify a readonly table"),
        ("string.x = 1", "ERR user_script:1: Attempt to modify a readonly table"),
        ("cjson.decode('{')", "ERR user_script:1: Expected object key string but found T_END at character 2"),
        ("local t = nil; return t.x", "ERR user_script:1: attempt to index local 't' (a nil value)"),
    ] {
        let name = sha(&mut client, script);
        let expected = format!("-{text} script: {name}, on @user_script:1.");
        assert_eq!(eval(&mut client, script), expected, "{script}");
    }
    let broken = eval(&mut client, "return +");
    assert!(broken.starts_with("-ERR Error compiling script (new function): user_script:1:"), "{broken}");
    client.check(&[
        (
            "EVALSHA 0123456789012345678901234567890123456789 0",
            "-NOSCRIPT No matching script. Please use EVAL.",
        ),
        ("EVAL return x", "-ERR value is not an integer or out of range"),
        ("EVAL return 3 a", "-ERR Number of keys can't be greater than number of args"),
        ("EVAL return -1", "-ERR Number of keys can't be negative"),
    ]);
}

#[test]
fn errors_are_caught() {
    check(&[
        (
            "local ok, why = pcall(redis.call, 'nothing'); return why",
            "\"ERR Unknown Redis command called from script\"",
        ),
        ("local ok, why = pcall(error, 'x'); return why", "\"x\""),
        (
            "local ok, why = pcall(cjson.decode, '['); return why",
            "\"Expected value but found T_END at character 2\"",
        ),
        ("return {pcall(function() return 1, 2 end)}", "[:1 :1 :2]"),
        (
            "local ok, why = xpcall(function() redis.call('x') end, function(e) return e.err end); return why",
            "\"ERR Unknown Redis command called from script\"",
        ),
        (
            "local co = coroutine.wrap(function() coroutine.yield(redis.call('ping')) end); return co()",
            "+PONG",
        ),
        (
            "local t = {3, 1, 2}; table.sort(t, function(a, b) redis.call('ping'); return a < b end); return t",
            "[:1 :2 :3]",
        ),
        (
            "return (string.gsub('abc', '.', function(c) return redis.call('echo', c) .. '.' end))",
            "\"a.b.c.\"",
        ),
    ]);
}

#[test]
fn the_sandbox_holds() {
    let served = Served::start();
    let mut client = served.client();
    for name in ["io", "require", "dofile", "loadfile", "print", "debug", "module", "package", "newproxy"] {
        let reply = eval(&mut client, &format!("return {name}"));
        assert!(reply.contains(&format!("nonexistent global variable '{name}'")), "{reply}");
    }
    for script in [
        "setmetatable(_G, {})",
        "setmetatable(redis, {})",
        "rawset(_G, 'x', 1)",
        "rawset(string, 'x', 1)",
        "table.insert(redis, 1)",
        "getmetatable(_G).__index = 1",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.x = 1",
        "setfenv(0, {})",
        "getfenv(redis.call).x = 1",
        "getfenv(pcall).x = 1",
        "getfenv(0).x = 1",
        "xpcall(function() error('x') end, function() getfenv(2).x = 1 end); getfenv(1).y = 1",
    ] {
        let reply = eval(&mut client, script);
        assert!(reply.contains("Attempt to modify a readonly table"), "{script}: {reply}");
    }
    // No state is left for the next script, at any depth of calls.
    for level in 1..12 {
        eval(
            &mut client,
            &format!("local f = function() local e = getfenv({level}); e.leak = 1 end; pcall(f)"),
        );
    }
    assert!(eval(&mut client, "return leak").contains("nonexistent"));
    let bytecode =
        eval(&mut client, "local f, why = loadstring(string.dump(function() return 1 end)); return why");
    assert!(!bytecode.starts_with(":"), "{bytecode}");
    check(&[
        ("return loadstring('return 1 + 1')()", ":2"),
        ("local n = 0; for name in pairs(redis) do n = n + 1 end; return n > 10", ":1"),
        ("return rawget(redis, 'call') == redis.call", ":1"),
        ("return math.random() == math.random()", "nil"),
        ("setfenv(1, {}); return x", "nil"),
    ]);
    let seeded = "math.randomseed(10); return tostring(math.random())";
    assert_eq!(eval(&mut client, seeded), eval(&mut client, seeded), "numbers follow from the seed");
    let random = "setfenv(1, {tostring=tostring, math=math}); return tostring(math.random())";
    assert_ne!(eval(&mut client, random), eval(&mut client, random), "numbers differ in each run");
}

#[test]
fn libraries_are_those_of_redis() {
    check(&[
        ("return cjson.encode({1, 2, {a='x/y'}, cjson.null})", "\"[1,2,{\\\"a\\\":\\\"x\\\\/y\\\"},null]\""),
        ("return cjson.decode('[1, 2.5, \"\\\\u00e9\"]')[3]", "\"\\xc3\\xa9\""),
        ("return cjson.encode({})", "\"{}\""),
        ("return cjson.encode(1e15)", "\"1e+15\""),
    ]);
    check(&[
        ("return cmsgpack.pack(1, 'a', {1, 2})", "\"\\x01\\xa1a\\x92\\x01\\x02\""),
        ("return cmsgpack.unpack(cmsgpack.pack({a={1, 'x', true}})).a[2]", "\"x\""),
        ("return {cmsgpack.unpack_one(cmsgpack.pack(1, 2), 1)}", "[:-1 :2]"),
        ("return struct.pack('>HI', 1, 2)", "\"\\x00\\x01\\x00\\x00\\x00\\x02\""),
        ("return {struct.unpack('<bh', struct.pack('<bh', -1, -2))}", "[:-1 :-2 :4]"),
        ("return struct.size('!4bi')", ":8"),
        ("return bit.band(0xff, 0x0f)", ":15"),
        ("return bit.tohex(-1)", "\"ffffffff\""),
        ("return bit.lshift(1, 31)", ":-2147483648"),
    ]);
}

#[test]
fn hostile_scripts_end() {
    let served = Served::start();
    let mut client = served.client();
    let huge = "x".repeat(20_000);
    for (script, text) in [
        ("local t = {}; while true do t[#t + 1] = string.rep('x', 100000) .. #t end", "not enough memory"),
        ("return string.rep('x', 1024 * 1024 * 1024)", "resulting string too large"),
        ("local function f() return f() + 1 end; return f()", "stack overflow"),
        ("local function f() return coroutine.wrap(f)() end; return f()", "C stack overflow"),
        (
            "local s, t = string.rep('x', 1000000), {}; for i = 1, 200 do t[i] = s end; return t",
            "exceeds 128 MiB",
        ),
        ("local s = string.rep('a?', 100000); return string.find(s, s)", "pattern too complex"),
        ("local s = 'x'; for i = 1, 60 do s = s .. s end; return s", "not enough memory"),
        ("return cmsgpack.unpack(string.rep('\\145', 100000))", "stack overflow"),
        ("return cmsgpack.unpack(string.rep('\\0', 1000000))", "too many results to unpack"),
        (
            "return struct.unpack(string.rep('b', 10000), string.rep('x', 10000))",
            "too many results to unpack",
        ),
        ("return cjson.decode(string.rep('[', 100000))", "nested"),
        (&format!("return {}1{}", "(".repeat(300), ")".repeat(300)), "levels"),
        (&format!("return {}", "{".repeat(5000)), "levels"),
    ] {
        let reply = eval(&mut client, script);
        let shown = &script[..script.len().min(70)];
        assert!(reply.starts_with('-') && reply.contains(text), "{shown}: {reply:.200}");
    }
    // A table within itself is cut at some depth.
    client.send_command(&["EVAL", "local t = {}; t[1] = t; return t", "0"]);
    let mut nested = 0;
    let mut line = client.raw_line();
    while line == "*1" {
        nested += 1;
        line = client.raw_line();
    }
    assert_eq!((line.as_str(), nested > 1000), ("-ERR reached lua stack limit", true));
    assert_eq!(eval(&mut client, &format!("return #'{huge}'")), ":20000");
    client.check(&[("PING", "+PONG")]);
}

/// Waits until a command has another reply than one that begins so.
fn until_other(client: &mut Client, line: &str, beginning: &str) -> String {
    let begun = Instant::now();
    loop {
        let reply = client.line(line).to_string();
        if !reply.starts_with(beginning) {
            return reply;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{line} has only {reply}");
        std::thread::yield_now();
    }
}

#[test]
fn a_long_script_makes_others_wait_until_it_is_killed() {
    let served = Served::start();
    let (mut one, mut other) = (served.client(), served.client());
    other.check(&[
        ("CONFIG SET lua-time-limit 10", "+OK"),
        ("CONFIG GET busy-reply-threshold", "[\"busy-reply-threshold\" \"10\"]"),
        ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
    ]);
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do redis.pcall('get', 'k') end",
        "local co = coroutine.wrap(function() while true do end end); while true do pcall(co) end",
    ] {
        one.send_command(&["EVAL", script, "0"]);
        let busy = until_other(&mut other, "PING", "+PONG");
        assert!(busy.starts_with("-BUSY Redis is busy running a script."), "{busy}");
        assert!(other.line("FUNCTION KILL").to_string().starts_with("-BUSY"));
        assert!(other.line("FUNCTION STATS").to_string().contains("while true"));
        other.check(&[("SCRIPT KILL", "+OK")]);
        let killed = one.reply().expect("a reply").to_string();
        assert!(killed.contains("Script killed by user with SCRIPT KILL"), "{killed}");
        assert_eq!(until_other(&mut other, "PING", "-BUSY"), "+PONG");
    }
    // One that has written ends with the server.
    one.send_command(&["EVAL", "redis.call('set', KEYS[1], 1); while true do end", "1", "k"]);
    until_other(&mut other, "PING", "+PONG");
    assert!(other.line("SCRIPT KILL").to_string().starts_with("-UNKILLABLE"));
    other.check(&[("MULTI", "+OK")]);
    assert!(other.line("EXEC").to_string().starts_with("-EXECABORT Transaction discarded because of: BUSY"));
    let mut served = served;
    served.close();
    served.open(&crate::client::options());
    served.check(&[("GET k", "nil")]);
}

#[test]
fn scripts_are_kept() {
    let served = Served::start();
    let mut client = served.client();
    let loaded = sha(&mut client, "return ARGV[1]");
    client.check(&[
        (&format!("EVALSHA {loaded} 0 a"), "\"a\""),
        (&format!("EVALSHA {} 0 a", loaded.to_uppercase()), "\"a\""),
        (&format!("SCRIPT EXISTS {loaded} x"), "[:1 :0]"),
        ("SCRIPT FLUSH x", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        ("SCRIPT FLUSH ASYNC", "+OK"),
        (&format!("EVALSHA {loaded} 0 a"), "-NOSCRIPT No matching script. Please use EVAL."),
        ("SCRIPT DEBUG yes", "-ERR the debugger of scripts is not served"),
    ]);
    assert_eq!(client.call(&["EVAL", "return ARGV[1]", "0", "b"]).to_string(), "\"b\"");
    client.check(&[(&format!("EVALSHA {loaded} 0 c"), "\"c\"")]);
    let info = client.line("INFO memory").text();
    assert!(info.contains("number_of_cached_scripts:1\r"), "{info}");
}

#[test]
fn flags_say_what_a_script_may() {
    let served = Served::start();
    let mut client = served.client();
    let write = "return redis.call('set', KEYS[1], 1)";
    let refused = "-ERR Write commands are not allowed from read-only scripts. script: ";
    assert!(client.call(&["EVAL_RO", write, "1", "k"]).to_string().starts_with(refused));
    let flagged = format!("#!lua flags=no-writes\n{write}");
    assert!(client.call(&["EVAL", &flagged, "1", "k"]).to_string().starts_with(refused));
    assert_eq!(
        client.call(&["EVAL_RO", &format!("#!lua\n{write}"), "1", "k"]).to_string(),
        "-ERR Can not execute a script with write flag using *_ro command."
    );
    assert_eq!(client.call(&["EVAL", &format!("#!lua\n{write}"), "1", "k"]).to_string(), "+OK");
    let line = "#!lua flags=no-writes\n\nerror('x')";
    assert!(eval(&mut client, line).ends_with("on @user_script:3."));
    assert_eq!(client.call(&["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"]).to_string(), "\"1\"");
}

#[test]
fn scripts_of_many_clients_are_atomic() {
    let served = Served::start();
    let declared = "local a = redis.call('incr', KEYS[1]); return {a, redis.call('incr', KEYS[2])}";
    let undeclared = "local a = redis.call('incr', KEYS[1]); return {a, redis.call('incr', ARGV[1])}";
    let unnamed = "local a = redis.call('incr', ARGV[1]); return {a, redis.call('incr', ARGV[2])}";
    std::thread::scope(|scope| {
        for number in 0..6 {
            let mut client = served.client();
            scope.spawn(move || {
                for _ in 0..50 {
                    let reply = match number % 3 {
                        0 => client.call(&["EVAL", declared, "2", "a", "b"]),
                        1 => client.call(&["EVAL", undeclared, "1", "a", "b"]),
                        _ => client.call(&["EVAL", unnamed, "0", "a", "b"]),
                    };
                    let both: Vec<i64> = reply.list().iter().map(|it| it.integer()).collect();
                    assert_eq!(both[0], both[1]);
                    let both = client.line("MGET a b").list();
                    assert_eq!(both[0], both[1], "half of a script was seen");
                }
            });
        }
    });
    served.check(&[("MGET a b", "[\"300\" \"300\"]")]);
}

#[test]
fn scripts_within_transactions_and_databases() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED")]);
    client.call(&["EVAL", "redis.call('incr', 'k'); return redis.call('nothing')", "0"]);
    client.call(&["EVAL_RO", "return redis.call('get', 'k')", "0"]);
    let replies = client.line("EXEC").list();
    assert_eq!((replies[0].to_string(), replies[2].to_string()), ("+OK".to_owned(), "\"2\"".to_owned()));
    assert!(replies[1].to_string().starts_with("-ERR Unknown Redis command"));
    assert_eq!(eval(&mut client, "redis.call('select', 5); redis.call('set', 'k', 'five'); return 1"), ":1");
    client.check(&[("GET k", "\"2\""), ("SELECT 5", "+OK"), ("GET k", "\"five\""), ("SELECT 0", "+OK")]);
    // What a failed script has written before stays, as in Redis.
    eval(&mut client, "redis.call('set', 'k', 'kept'); error('x')");
    client.check(&[("GET k", "\"kept\"")]);
    assert_eq!(eval(&mut client, "return redis.call('blpop', 'none', 0) == false"), ":1");
    assert_eq!(
        eval(&mut client, "return redis.pcall('xread', 'block', 0, 'streams', 's', '$')"),
        "-ERR xread command is not allowed with BLOCK option from scripts"
    );
    assert_eq!(eval(&mut client, "return redis.call('xread', 'streams', 's', '$') == false"), ":1");
    assert_eq!(eval(&mut client, "return redis.call('dbsize')"), ":1");
    client.check(&[("COMMAND GETKEYS EVAL x 2 a b c", "[\"a\" \"b\"]")]);
}

#[test]
fn a_script_serves_those_who_wait_and_publishes_at_its_end() {
    let served = Served::start();
    let (mut waiting, mut listening) = (served.client(), served.client());
    waiting.send_command(&["BLPOP", "list", "0"]);
    listening.check(&[("SUBSCRIBE news", "[\"subscribe\" \"news\" :1]")]);
    let mut client = served.client();
    while !client.line("INFO clients").text().contains("blocked_clients:1") {}
    let script = "redis.call('rpush', 'list', 'x'); return redis.call('publish', 'news', 'hot')";
    assert_eq!(eval(&mut client, script), ":1");
    waiting.expect(&["[\"list\" \"x\"]"]);
    listening.expect(&["[\"message\" \"news\" \"hot\"]"]);
}

const LIBRARY: &str = "#!lua name=mine
local function add(keys, args) return redis.call('incrby', keys[1], args[1]) end
redis.register_function('add', add)
redis.register_function{function_name='look', callback=function(keys) return redis.call('get', keys[1]) end,
  flags={'no-writes'}, description='looks'}";

#[test]
fn functions_are_kept_across_restarts() {
    let mut served = Served::start();
    let mut client = served.client();
    assert_eq!(client.call(&["FUNCTION", "LOAD", LIBRARY]).to_string(), "\"mine\"");
    assert_eq!(client.call(&["FUNCTION", "LOAD", LIBRARY]).to_string(), "-ERR Library 'mine' already exists");
    assert_eq!(client.call(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]).to_string(), "\"mine\"");
    let list = "[[\"library_name\" \"mine\" \"engine\" \"LUA\" \"functions\" [[\"name\" \"add\" \"description\" \
                nil \"flags\" []] [\"name\" \"look\" \"description\" \"looks\" \"flags\" [+no-writes]]]]]";
    let script = [
        ("FCALL add 1 k 5", ":5"),
        ("FCALL_RO look 1 k", "\"5\""),
        ("FCALL_RO add 1 k 5", "-ERR Can not execute a script with write flag using *_ro command."),
        ("FCALL ADD 1 k 0", ":5"),
        ("FCALL none 0", "-ERR Function not found"),
        ("FCALL add x k", "-ERR Bad number of keys provided"),
        ("FUNCTION LIST", list),
        ("FUNCTION LIST LIBRARYNAME M*", list),
        ("FUNCTION LIST LIBRARYNAME x*", "[]"),
        ("FLUSHALL", "+OK"),
        (
            "FUNCTION STATS",
            "[\"running_script\" nil \"engines\" [\"LUA\" [\"libraries_count\" :1 \"functions_count\" :2]]]",
        ),
    ];
    client.check(&script);
    served.close();
    served.open(&crate::client::options());
    let mut client = served.client();
    client.check(&script);
    let dump = match client.line("FUNCTION DUMP") {
        crate::client::Reply::Bulk(bytes) => bytes,
        other => panic!("{other}"),
    };
    let restore = |client: &mut Client, policy: &str| {
        client.call(&[&b"FUNCTION"[..], b"RESTORE", &dump, policy.as_bytes()]).to_string()
    };
    assert_eq!(restore(&mut client, "APPEND"), "-ERR Library mine already exists");
    assert_eq!(restore(&mut client, "REPLACE"), "+OK");
    client.check(&[("FUNCTION FLUSH", "+OK"), ("FCALL add 1 k 5", "-ERR Function not found")]);
    assert_eq!(restore(&mut client, "FLUSH"), "+OK");
    client.check(&[("FCALL add 1 k 5", ":5"), ("FUNCTION DELETE mine", "+OK")]);
    client.check(&[("FUNCTION DELETE mine", "-ERR Library not found"), ("FUNCTION LIST", "[]")]);
    let mut damaged = dump.clone();
    damaged[3] ^= 1;
    let reply = client.call(&[&b"FUNCTION"[..], b"RESTORE", &damaged]).to_string();
    assert_eq!(reply, "-ERR DUMP payload version or checksum are wrong");
}

#[test]
fn libraries_that_are_wrong_are_refused() {
    let served = Served::start();
    let mut client = served.client();
    for (code, text) in [
        ("return 1", "ERR Missing library metadata"),
        ("#!lua name=x\n", "ERR No functions registered"),
        ("#!lua name=x\nreturn +", "ERR Error compiling function: user_function:2:"),
        ("#!lua name=x\nerror('no')", "ERR Error registering functions: "),
        ("#!lua name=x\nredis.call('get', 'x')", "nonexistent global variable 'call'"),
        ("#!lua name=x\nredis.register_function('a b', function() end)", "can only contain letters"),
        ("#!lua name=x\nredis.register_function('a')", "only applicable to Lua table"),
        ("#!lua name=x\na = 1", "Attempt to modify a readonly table"),
        ("#!lua name=x\nmath.random()", "nonexistent global variable 'math'"),
        ("#!lua name=x\npcall(error)", "nonexistent global variable 'pcall'"),
        ("#!lua name=x\nwhile true do end", "FUNCTION LOAD timeout"),
    ] {
        let reply = client.call(&["FUNCTION", "LOAD", code]).to_string();
        assert!(reply.starts_with('-') && reply.contains(text), "{code}: {reply}");
    }
    client.check(&[("FUNCTION LIST", "[]")]);
}

#[test]
fn monitors_see_commands_of_scripts() {
    let served = Served::start();
    let (mut monitor, mut client) = (served.client(), served.client());
    monitor.check(&[("MONITOR", "+OK")]);
    client.call(&["EVAL", "return redis.call('set', 'k', 'v')", "0"]);
    let lines: Vec<String> = (0..2).map(|_| monitor.reply().expect("a line").to_string()).collect();
    assert!(lines[0].contains("\"EVAL\"") && lines[1].contains("[0 lua] \"set\" \"k\" \"v\""), "{lines:?}");
}

#[test]
fn many_scripts_wait_for_locks_and_machines() {
    let served = Served::start();
    let declared = "redis.call('incr', KEYS[1]); return 1";
    let unnamed = "redis.call('incr', 'n'); return 1";
    let mut clients: Vec<Client> = (0..400).map(|_| served.client()).collect();
    for _ in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            match number % 4 {
                0 => client.send_command(&["EVAL", declared, "1", "n"]),
                1 => client.send_command(&["EVAL", unnamed, "0"]),
                // It may begin to track, so that it has locks although it only reads.
                2 => {
                    client.send(b"MULTI\r\nCLIENT GETREDIR\r\nGET n\r\n");
                    client.send_command(&["EVAL_RO", &format!("return 1 -- {number}"), "0"]);
                    client.send(b"SCRIPT LOAD return\r\nEXEC\r\n");
                }
                _ => {
                    client.send(b"MULTI\r\n");
                    client.send_command(&["EVAL", &format!("{unnamed} -- {number}"), "0"]);
                    client.send(b"EXEC\r\n");
                }
            }
        }
        for (number, client) in clients.iter_mut().enumerate() {
            match number % 4 {
                0 | 1 => client.expect(&[":1"]),
                2 => {
                    client.expect(&["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED"]);
                    assert_eq!(client.reply().expect("a reply").list().len(), 4);
                }
                _ => client.expect(&["+OK", "+QUEUED", "[:1]"]),
            }
        }
    }
    served.check(&[("GET n", "\"900\"")]);
}
