//! The table: name, arity, flags and keys of each command, its number and its handler.
//!
//! The rows are a macro, so that this module makes the table of them and `dispatch` the `match`.

use crate::numbers::integer;
use crate::store::Key;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

/// Maximum length of a command's name in bytes.
const NAME_AT_MOST: usize = 32;

/// Properties of a command, by Redis' names in COMMAND INFO, except for the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    /// It may write: it has its keys for itself, and is committed.
    pub(crate) const WRITE: Self = Self(1);
    /// It reads keys, and changes nothing: it may run beside others of its pipeline.
    pub(crate) const READONLY: Self = Self(2);
    /// Its time does not depend on the size of values.
    pub(crate) const FAST: Self = Self(4);
    /// It is for operators.
    pub(crate) const ADMIN: Self = Self(8);
    /// It needs no authentication.
    pub(crate) const NO_AUTH: Self = Self(16);
    /// Its memory grows with the data.
    pub(crate) const DENY_OOM: Self = Self(32);
    /// It is about publishing and subscribing.
    pub(crate) const PUBSUB: Self = Self(128);
    /// It may wait for an element of its keys, outside of a transaction.
    pub(crate) const BLOCKING: Self = Self(512);
    /// Scripts do not call it.
    pub(crate) const NO_SCRIPT: Self = Self(256);
    /// A transaction does not queue it.
    pub(crate) const AT_ONCE: Self = Self(64);

    /// Those of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// Their names in COMMAND INFO.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let all = [
            (Self::WRITE, "write"),
            (Self::READONLY, "readonly"),
            (Self::FAST, "fast"),
            (Self::ADMIN, "admin"),
            (Self::NO_AUTH, "no_auth"),
            (Self::DENY_OOM, "denyoom"),
            (Self::PUBSUB, "pubsub"),
            (Self::NO_SCRIPT, "noscript"),
            (Self::BLOCKING, "blocking"),
        ];
        all.into_iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| name).collect()
    }
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None.
    None,
    /// From the first to the last (negative: counted from the end), each `step`th.
    Range(usize, isize, usize),
    /// Those that follow the argument of this number, which says how many they are.
    Counted(usize),
    /// The first argument, and the one behind the last STORE of SORT.
    Sort,
    /// The first argument, and those that the second one counts as [`Keys::Counted`] does.
    FirstAndCounted,
    /// The first argument, and those behind STORE and STOREDIST.
    FirstAndStored,
    /// The first half of the arguments behind STREAMS of XREAD and XREADGROUP.
    Streams,
    /// Any key of any database.
    All,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) id: Id,
    /// Name in lower case.
    pub(crate) name: &'static str,
    /// Number of arguments with the name; if negative, the minimum number, negated.
    pub(crate) arity: i8,
    pub(crate) flags: Flags,
    pub(crate) keys: Keys,
    /// File of its handler.
    pub(crate) file: &'static str,
}

impl Spec {
    /// Returns true if it may have `count` arguments, its name among them.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    /// Numbers of the arguments that are keys.
    pub(crate) fn key_positions(&self, args: &[Vec<u8>]) -> Vec<usize> {
        match self.keys {
            Keys::None | Keys::All => Vec::new(),
            Keys::Range(first, last, step) => {
                let end = match last {
                    0.. => last.unsigned_abs() + 1,
                    _ => (args.len() + 1).saturating_sub(last.unsigned_abs()),
                };
                (first..end.min(args.len())).step_by(step).collect()
            }
            Keys::Counted(at) => counted(args, at).collect(),
            Keys::FirstAndCounted => std::iter::once(1).chain(counted(args, 2)).collect(),
            Keys::FirstAndStored => {
                let is_store = |at: &usize| {
                    let word = args.get(at - 1);
                    word.is_some_and(|it| {
                        it.eq_ignore_ascii_case(b"store") || it.eq_ignore_ascii_case(b"storedist")
                    })
                };
                std::iter::once(1).chain((2..args.len()).filter(is_store)).collect()
            }
            Keys::Streams => streams(args).collect(),
            Keys::Sort => std::iter::once(1).chain(sort_target(args)).collect(),
        }
    }

    /// True if a request may be for keys that none of its arguments names.
    pub(crate) fn reaches_any(&self, args: &[Vec<u8>]) -> bool {
        match self.id {
            Id::Sort | Id::SortRo => args.iter().skip(2).any(|argument| argument.contains(&b'*')),
            _ if self.runs_writer() => true,
            _ => matches!(self.keys, Keys::All) || self.keys == Keys::None && self.flags.has(Flags::READONLY),
        }
    }

    /// True if it runs a script.
    pub(crate) fn runs_script(&self) -> bool {
        matches!(self.id, Id::Eval | Id::EvalRo | Id::EvalSha | Id::EvalShaRo | Id::FCall | Id::FCallRo)
    }

    /// True if it may need a virtual machine.
    pub(crate) fn needs_machine(&self) -> bool {
        self.runs_script() || self.id == Id::Script
    }

    /// True if it runs a script that may write any key.
    pub(crate) fn runs_writer(&self) -> bool {
        self.runs_script() && !self.flags.has(Flags::READONLY)
    }

    /// Keys of a request of a client in database `db`; of COPY and MOVE with the one that they
    /// make, which may be in another.
    pub(crate) fn keys(&self, args: &[Vec<u8>], db: u16) -> Vec<Key> {
        let key = |at: usize| Key { db, name: args[at].clone() };
        let mut found: Vec<Key> = self.key_positions(args).into_iter().map(key).collect();
        if matches!(self.id, Id::Copy | Id::Move) {
            found.push(target(args, db));
        }
        found
    }
}

/// Numbers of the arguments behind the one of number `at`, which says how many they are.
fn counted(args: &[Vec<u8>], at: usize) -> impl Iterator<Item = usize> + use<> {
    let count = args.get(at).and_then(|count| integer(count)).unwrap_or(0);
    (at + 1..args.len()).take(usize::try_from(count).unwrap_or(0))
}

/// Numbers of the arguments that are the streams of XREAD and XREADGROUP.
fn streams(args: &[Vec<u8>]) -> Range<usize> {
    let mut at = 1;
    while let Some(word) = args.get(at) {
        at += match &*word.to_ascii_lowercase() {
            b"block" | b"count" => 2,
            b"group" => 3,
            b"noack" => 1,
            b"streams" => return at + 1..at + 1 + (args.len() - at - 1) / 2,
            _ => break,
        };
    }
    0..0
}

const NONE: Keys = Keys::None;
/// The first argument.
const ONE: Keys = Keys::Range(1, 1, 1);
/// The first two arguments.
const TWO: Keys = Keys::Range(1, 2, 1);
/// All arguments.
const EACH: Keys = Keys::Range(1, -1, 1);
/// The second argument, behind a subcommand.
const SECOND: Keys = Keys::Range(2, 2, 1);

/// The database that an argument names; `None` if it names no database.
pub(super) fn database(argument: &[u8], databases: u16) -> Option<u16> {
    let number = integer(argument).and_then(|number| u16::try_from(number).ok());
    number.filter(|number| *number < databases)
}

/// The key that COPY or MOVE makes, as far as the arguments say which. The table needs it before
/// the handler has looked at them.
pub(super) fn target(args: &[Vec<u8>], db: u16) -> Key {
    let is_move = args[0].eq_ignore_ascii_case(b"move");
    let name = if is_move { &args[1] } else { &args[2] };
    let behind = args[3..].iter().position(|word| word.eq_ignore_ascii_case(b"db")).map(|at| at + 4);
    let number = if is_move { Some(2) } else { behind };
    let chosen = number.and_then(|at| args.get(at)).and_then(|number| database(number, u16::MAX));
    Key { db: chosen.unwrap_or(db), name: name.clone() }
}

/// Number of the argument that is the target of SORT: the one behind the last STORE.
pub(super) fn sort_target(args: &[Vec<u8>]) -> Option<usize> {
    let (mut at, mut target) = (2, None);
    while let Some(word) = args.get(at) {
        at += match &*word.to_ascii_lowercase() {
            b"limit" => 3,
            b"by" | b"get" => 2,
            b"store" => {
                target = Some(at + 1).filter(|target| *target < args.len()).or(target);
                2
            }
            _ => 1,
        };
    }
    target
}

/// Gives each row of the table to the macro `$then`: variant, name, arity, flags, keys, handler.
macro_rules! for_each_command {
    ($then:ident) => {
        $then! {
            // Connections.
            Auth "auth" -2 (FAST NO_AUTH NO_SCRIPT) NONE => connection::auth;
            Client "client" -2 (ADMIN NO_SCRIPT) NONE => connection::client;
            Echo "echo" 2 (FAST) NONE => connection::echo;
            Hello "hello" -1 (FAST NO_AUTH NO_SCRIPT) NONE => connection::hello;
            Ping "ping" -1 (FAST) NONE => connection::ping;
            Quit "quit" -1 (FAST NO_AUTH AT_ONCE NO_SCRIPT) NONE => connection::quit;
            Reset "reset" 1 (FAST NO_AUTH AT_ONCE NO_SCRIPT) NONE => connection::reset;
            Select "select" 2 (FAST) NONE => connection::select;

            // Publishing.
            PSubscribe "psubscribe" -2 (PUBSUB NO_SCRIPT) NONE => pubsub::psubscribe;
            PubSub "pubsub" -2 () NONE => pubsub::pubsub;
            Publish "publish" 3 (PUBSUB FAST) NONE => pubsub::publish;
            PUnsubscribe "punsubscribe" -1 (PUBSUB NO_SCRIPT) NONE => pubsub::punsubscribe;
            SPublish "spublish" 3 (PUBSUB FAST) ONE => pubsub::spublish;
            SSubscribe "ssubscribe" -2 (PUBSUB NO_SCRIPT) EACH => pubsub::ssubscribe;
            Subscribe "subscribe" -2 (PUBSUB NO_SCRIPT) NONE => pubsub::subscribe;
            SUnsubscribe "sunsubscribe" -1 (PUBSUB NO_SCRIPT) EACH => pubsub::sunsubscribe;
            Unsubscribe "unsubscribe" -1 (PUBSUB NO_SCRIPT) NONE => pubsub::unsubscribe;

            // The server.
            Acl "acl" -2 (ADMIN NO_SCRIPT) NONE => acl::acl;
            Asking "asking" 1 (FAST) NONE => absent::cluster;
            Cluster "cluster" -2 () NONE => absent::cluster;
            BgSave "bgsave" -1 (ADMIN NO_SCRIPT) NONE => operation::background_save;
            Command "command" -1 () NONE => server::command;
            Config "config" -2 (ADMIN NO_SCRIPT) NONE => server::config;
            DbSize "dbsize" 1 (READONLY FAST) NONE => server::db_size;
            Debug "debug" -2 (ADMIN NO_SCRIPT) NONE => operation::debug;
            FlushAll "flushall" -1 (WRITE) Keys::All => server::flush_all;
            FlushDb "flushdb" -1 (WRITE) Keys::All => server::flush_db;
            Function "function" -2 (NO_SCRIPT) NONE => functions::function;
            Info "info" -1 () NONE => server::info;
            LastSave "lastsave" 1 (FAST) NONE => operation::last_save;
            Latency "latency" -2 (ADMIN NO_SCRIPT) NONE => statistics::latency;
            Lolwut "lolwut" -1 (READONLY FAST) NONE => operation::lolwut;
            Memory "memory" -2 (READONLY) SECOND => memory::memory;
            Module "module" -2 (ADMIN NO_SCRIPT) NONE => absent::module;
            Monitor "monitor" 1 (ADMIN NO_SCRIPT) NONE => watching::monitor;
            ReadOnly "readonly" 1 (FAST) NONE => absent::cluster;
            ReadWrite "readwrite" 1 (FAST) NONE => absent::cluster;
            ReplicaOf "replicaof" 3 (ADMIN NO_SCRIPT) NONE => absent::replica_of;
            Role "role" 1 (FAST ADMIN NO_SCRIPT) NONE => server::role;
            Save "save" 1 (ADMIN NO_SCRIPT) NONE => operation::save;
            Shutdown "shutdown" -1 (ADMIN NO_SCRIPT) NONE => server::shutdown;
            SlaveOf "slaveof" 3 (ADMIN NO_SCRIPT) NONE => absent::replica_of;
            SlowLog "slowlog" -2 (ADMIN) NONE => watching::slow_log;
            SwapDb "swapdb" 3 (WRITE FAST) Keys::All => server::swap_db;
            Time "time" 1 (FAST) NONE => server::time;
            Wait "wait" 3 () NONE => blocking::wait;
            WaitAof "waitaof" 4 (NO_SCRIPT) NONE => blocking::wait_aof;

            // Strings.
            Append "append" 3 (WRITE DENY_OOM FAST) ONE => strings::append;
            Decr "decr" 2 (WRITE DENY_OOM FAST) ONE => strings::decr;
            DecrBy "decrby" 3 (WRITE DENY_OOM FAST) ONE => strings::decr_by;
            Get "get" 2 (READONLY FAST) ONE => strings::get;
            GetDel "getdel" 2 (WRITE FAST) ONE => strings::get_del;
            GetEx "getex" -2 (WRITE FAST) ONE => strings::get_ex;
            GetRange "getrange" 4 (READONLY) ONE => strings::get_range;
            GetSet "getset" 3 (WRITE DENY_OOM FAST) ONE => strings::get_set;
            Incr "incr" 2 (WRITE DENY_OOM FAST) ONE => strings::incr;
            IncrBy "incrby" 3 (WRITE DENY_OOM FAST) ONE => strings::incr_by;
            IncrByFloat "incrbyfloat" 3 (WRITE DENY_OOM FAST) ONE => strings::incr_by_float;
            Lcs "lcs" -3 (READONLY) TWO => lcs::lcs;
            MGet "mget" -2 (READONLY FAST) EACH => strings::mget;
            MSet "mset" -3 (WRITE DENY_OOM) Keys::Range(1, -1, 2) => strings::mset;
            MSetNx "msetnx" -3 (WRITE DENY_OOM) Keys::Range(1, -1, 2) => strings::mset_nx;
            PSetEx "psetex" 4 (WRITE DENY_OOM) ONE => strings::pset_ex;
            Set "set" -3 (WRITE DENY_OOM) ONE => strings::set;
            SetEx "setex" 4 (WRITE DENY_OOM) ONE => strings::set_ex;
            SetNx "setnx" 3 (WRITE DENY_OOM FAST) ONE => strings::set_nx;
            SetRange "setrange" 4 (WRITE DENY_OOM) ONE => strings::set_range;
            StrLen "strlen" 2 (READONLY FAST) ONE => strings::str_len;
            SubStr "substr" 4 (READONLY) ONE => strings::get_range;

            // Bits of strings.
            BitCount "bitcount" -2 (READONLY) ONE => bits::count;
            BitField "bitfield" -2 (WRITE DENY_OOM) ONE => bits::field;
            BitFieldRo "bitfield_ro" -2 (READONLY FAST) ONE => bits::field_read;
            BitOp "bitop" -4 (WRITE DENY_OOM) Keys::Range(2, -1, 1) => bits::operate;
            BitPos "bitpos" -3 (READONLY) ONE => bits::position;
            GetBit "getbit" 3 (READONLY FAST) ONE => bits::get_bit;
            SetBit "setbit" 4 (WRITE DENY_OOM) ONE => bits::set_bit;

            // Estimates of numbers of elements.
            PfAdd "pfadd" -2 (WRITE DENY_OOM FAST) ONE => hyperloglogs::add;
            PfCount "pfcount" -2 (READONLY) EACH => hyperloglogs::count;
            PfMerge "pfmerge" -2 (WRITE DENY_OOM) EACH => hyperloglogs::merge;

            // Keys of any type.
            Copy "copy" -3 (WRITE DENY_OOM) TWO => keys::copy;
            Del "del" -2 (WRITE) EACH => keys::del;
            Dump "dump" 2 (READONLY) ONE => dump::dump;
            Exists "exists" -2 (READONLY FAST) EACH => keys::exists;
            Expire "expire" -3 (WRITE FAST) ONE => keys::expire;
            ExpireAt "expireat" -3 (WRITE FAST) ONE => keys::expire_at;
            ExpireTime "expiretime" 2 (READONLY FAST) ONE => keys::expire_time;
            KeysOf "keys" 2 (READONLY) NONE => keys::keys;
            Move "move" 3 (WRITE FAST) ONE => keys::move_to;
            Object "object" -2 (READONLY) SECOND => keys::object;
            Persist "persist" 2 (WRITE FAST) ONE => keys::persist;
            PExpire "pexpire" -3 (WRITE FAST) ONE => keys::pexpire;
            PExpireAt "pexpireat" -3 (WRITE FAST) ONE => keys::pexpire_at;
            PExpireTime "pexpiretime" 2 (READONLY FAST) ONE => keys::pexpire_time;
            PTtl "pttl" 2 (READONLY FAST) ONE => keys::pttl;
            RandomKey "randomkey" 1 (READONLY) NONE => keys::random_key;
            Rename "rename" 3 (WRITE) TWO => keys::rename;
            RenameNx "renamenx" 3 (WRITE FAST) TWO => keys::rename_nx;
            Restore "restore" -4 (WRITE DENY_OOM) ONE => dump::restore;
            Scan "scan" -2 (READONLY) NONE => keys::scan;
            Touch "touch" -2 (READONLY FAST) EACH => keys::exists;
            Ttl "ttl" 2 (READONLY FAST) ONE => keys::ttl;
            Type "type" 2 (READONLY FAST) ONE => keys::type_of;
            Unlink "unlink" -2 (WRITE FAST) EACH => keys::del;

            // Elements of any collection, in an order.
            Sort "sort" -2 (WRITE DENY_OOM) Keys::Sort => sort::sort;
            SortRo "sort_ro" -2 (READONLY) ONE => sort::sort_read;

            // Hashes.
            HDel "hdel" -3 (WRITE FAST) ONE => hashes::del;
            HExists "hexists" 3 (READONLY FAST) ONE => hashes::exists;
            HExpire "hexpire" -6 (WRITE DENY_OOM FAST) ONE => field_expiry::expire;
            HExpireAt "hexpireat" -6 (WRITE DENY_OOM FAST) ONE => field_expiry::expire_at;
            HExpireTime "hexpiretime" -5 (READONLY FAST) ONE => field_expiry::expire_time;
            HGet "hget" 3 (READONLY FAST) ONE => hashes::get;
            HGetAll "hgetall" 2 (READONLY) ONE => hashes::get_all;
            HGetDel "hgetdel" -5 (WRITE FAST) ONE => field_expiry::get_del;
            HGetEx "hgetex" -5 (WRITE FAST) ONE => field_expiry::get_ex;
            HIncrBy "hincrby" 4 (WRITE DENY_OOM FAST) ONE => hashes::incr_by;
            HIncrByFloat "hincrbyfloat" 4 (WRITE DENY_OOM FAST) ONE => hashes::incr_by_float;
            HKeys "hkeys" 2 (READONLY) ONE => hashes::keys;
            HLen "hlen" 2 (READONLY FAST) ONE => hashes::length;
            HMGet "hmget" -3 (READONLY FAST) ONE => hashes::mget;
            HMSet "hmset" -4 (WRITE DENY_OOM FAST) ONE => hashes::mset;
            HPersist "hpersist" -5 (WRITE FAST) ONE => field_expiry::persist;
            HPExpire "hpexpire" -6 (WRITE DENY_OOM FAST) ONE => field_expiry::pexpire;
            HPExpireAt "hpexpireat" -6 (WRITE DENY_OOM FAST) ONE => field_expiry::pexpire_at;
            HPExpireTime "hpexpiretime" -5 (READONLY FAST) ONE => field_expiry::pexpire_time;
            HPTtl "hpttl" -5 (READONLY FAST) ONE => field_expiry::pttl;
            HRandField "hrandfield" -2 (READONLY) ONE => hashes::random_field;
            HScan "hscan" -3 (READONLY) ONE => hashes::scan_fields;
            HSet "hset" -4 (WRITE DENY_OOM FAST) ONE => hashes::set;
            HSetEx "hsetex" -6 (WRITE DENY_OOM FAST) ONE => field_expiry::set_ex;
            HSetNx "hsetnx" 4 (WRITE DENY_OOM FAST) ONE => hashes::set_nx;
            HStrLen "hstrlen" 3 (READONLY FAST) ONE => hashes::str_len;
            HTtl "httl" -5 (READONLY FAST) ONE => field_expiry::ttl;
            HVals "hvals" 2 (READONLY) ONE => hashes::values;

            // Sets.
            SAdd "sadd" -3 (WRITE DENY_OOM FAST) ONE => sets::add;
            SCard "scard" 2 (READONLY FAST) ONE => sets::length;
            SDiff "sdiff" -2 (READONLY) EACH => sets::diff;
            SDiffStore "sdiffstore" -3 (WRITE DENY_OOM) EACH => sets::diff_store;
            SInter "sinter" -2 (READONLY) EACH => sets::inter;
            SInterCard "sintercard" -3 (READONLY) Keys::Counted(1) => sets::inter_card;
            SInterStore "sinterstore" -3 (WRITE DENY_OOM) EACH => sets::inter_store;
            SIsMember "sismember" 3 (READONLY FAST) ONE => sets::is_member;
            SMembers "smembers" 2 (READONLY) ONE => sets::members;
            SMIsMember "smismember" -3 (READONLY FAST) ONE => sets::are_members;
            SMove "smove" 4 (WRITE FAST) TWO => sets::move_to;
            SPop "spop" -2 (WRITE FAST) ONE => sets::pop;
            SRandMember "srandmember" -2 (READONLY) ONE => sets::random_member;
            SRem "srem" -3 (WRITE FAST) ONE => sets::remove;
            SScan "sscan" -3 (READONLY) ONE => sets::scan_members;
            SUnion "sunion" -2 (READONLY) EACH => sets::union;
            SUnionStore "sunionstore" -3 (WRITE DENY_OOM) EACH => sets::union_store;

            // Lists.
            BlMove "blmove" 6 (WRITE DENY_OOM BLOCKING) TWO => blocking::at_once;
            BlMPop "blmpop" -5 (WRITE BLOCKING) Keys::Counted(2) => blocking::at_once;
            BlPop "blpop" -3 (WRITE BLOCKING) Keys::Range(1, -2, 1) => blocking::at_once;
            BRPop "brpop" -3 (WRITE BLOCKING) Keys::Range(1, -2, 1) => blocking::at_once;
            BRPopLPush "brpoplpush" 4 (WRITE DENY_OOM BLOCKING) TWO => blocking::at_once;
            LIndex "lindex" 3 (READONLY) ONE => lists::index;
            LInsert "linsert" 5 (WRITE DENY_OOM) ONE => lists::insert;
            LLen "llen" 2 (READONLY FAST) ONE => lists::length;
            LMove "lmove" 5 (WRITE DENY_OOM) TWO => lists::move_to;
            LMPop "lmpop" -4 (WRITE) Keys::Counted(1) => lists::pop_many;
            LPop "lpop" -2 (WRITE FAST) ONE => lists::left_pop;
            LPos "lpos" -3 (READONLY) ONE => lists::positions;
            LPush "lpush" -3 (WRITE DENY_OOM FAST) ONE => lists::left_push;
            LPushX "lpushx" -3 (WRITE DENY_OOM FAST) ONE => lists::left_push_existing;
            LRange "lrange" 4 (READONLY) ONE => lists::range;
            LRem "lrem" 4 (WRITE) ONE => lists::remove;
            LSet "lset" 4 (WRITE DENY_OOM) ONE => lists::set;
            LTrim "ltrim" 4 (WRITE) ONE => lists::trim;
            RPop "rpop" -2 (WRITE FAST) ONE => lists::right_pop;
            RPopLPush "rpoplpush" 3 (WRITE DENY_OOM) TWO => lists::pop_push;
            RPush "rpush" -3 (WRITE DENY_OOM FAST) ONE => lists::right_push;
            RPushX "rpushx" -3 (WRITE DENY_OOM FAST) ONE => lists::right_push_existing;

            // Sorted sets.
            BzMPop "bzmpop" -5 (WRITE BLOCKING) Keys::Counted(2) => blocking::at_once;
            BzPopMax "bzpopmax" -3 (WRITE FAST BLOCKING) Keys::Range(1, -2, 1) => blocking::at_once;
            BzPopMin "bzpopmin" -3 (WRITE FAST BLOCKING) Keys::Range(1, -2, 1) => blocking::at_once;
            ZAdd "zadd" -4 (WRITE DENY_OOM FAST) ONE => zsets::add;
            ZCard "zcard" 2 (READONLY FAST) ONE => zsets::length;
            ZCount "zcount" 4 (READONLY FAST) ONE => zset_ranges::count_scores;
            ZDiff "zdiff" -3 (READONLY) Keys::Counted(1) => zset_algebra::diff;
            ZDiffStore "zdiffstore" -4 (WRITE DENY_OOM) Keys::FirstAndCounted => zset_algebra::diff_store;
            ZIncrBy "zincrby" 4 (WRITE DENY_OOM FAST) ONE => zsets::incr_by;
            ZInter "zinter" -3 (READONLY) Keys::Counted(1) => zset_algebra::inter;
            ZInterCard "zintercard" -3 (READONLY) Keys::Counted(1) => zset_algebra::inter_card;
            ZInterStore "zinterstore" -4 (WRITE DENY_OOM) Keys::FirstAndCounted => zset_algebra::inter_store;
            ZLexCount "zlexcount" 4 (READONLY FAST) ONE => zset_ranges::count_names;
            ZMPop "zmpop" -4 (WRITE) Keys::Counted(1) => zsets::pop_many;
            ZMScore "zmscore" -3 (READONLY FAST) ONE => zsets::many_scores;
            ZPopMax "zpopmax" -2 (WRITE FAST) ONE => zsets::pop_max;
            ZPopMin "zpopmin" -2 (WRITE FAST) ONE => zsets::pop_min;
            ZRandMember "zrandmember" -2 (READONLY) ONE => zsets::random_member;
            ZRange "zrange" -4 (READONLY) ONE => zset_ranges::range_of_any;
            ZRangeByLex "zrangebylex" -4 (READONLY) ONE => zset_ranges::by_name;
            ZRangeByScore "zrangebyscore" -4 (READONLY) ONE => zset_ranges::by_score;
            ZRangeStore "zrangestore" -5 (WRITE DENY_OOM) TWO => zset_ranges::store;
            ZRank "zrank" -3 (READONLY FAST) ONE => zsets::rank;
            ZRem "zrem" -3 (WRITE FAST) ONE => zsets::remove;
            ZRemRangeByLex "zremrangebylex" 4 (WRITE) ONE => zset_ranges::remove_names;
            ZRemRangeByRank "zremrangebyrank" 4 (WRITE) ONE => zset_ranges::remove_ranks;
            ZRemRangeByScore "zremrangebyscore" 4 (WRITE) ONE => zset_ranges::remove_scores;
            ZRevRange "zrevrange" -4 (READONLY) ONE => zset_ranges::reverse_range;
            ZRevRangeByLex "zrevrangebylex" -4 (READONLY) ONE => zset_ranges::reverse_by_name;
            ZRevRangeByScore "zrevrangebyscore" -4 (READONLY) ONE => zset_ranges::reverse_by_score;
            ZRevRank "zrevrank" -3 (READONLY FAST) ONE => zsets::reverse_rank;
            ZScan "zscan" -3 (READONLY) ONE => zsets::scan_members;
            ZScore "zscore" 3 (READONLY FAST) ONE => zsets::score;
            ZUnion "zunion" -3 (READONLY) Keys::Counted(1) => zset_algebra::union;
            ZUnionStore "zunionstore" -4 (WRITE DENY_OOM) Keys::FirstAndCounted => zset_algebra::union_store;

            // Positions.
            GeoAdd "geoadd" -5 (WRITE DENY_OOM) ONE => geo::add;
            GeoDist "geodist" -4 (READONLY) ONE => geo::distance;
            GeoHash "geohash" -2 (READONLY) ONE => geo::hash;
            GeoPos "geopos" -2 (READONLY) ONE => geo::get;
            GeoRadius "georadius" -6 (WRITE DENY_OOM) Keys::FirstAndStored => geo::radius;
            GeoRadiusByMember "georadiusbymember" -5 (WRITE DENY_OOM) Keys::FirstAndStored => geo::radius_by_member;
            GeoRadiusByMemberRo "georadiusbymember_ro" -5 (READONLY) ONE => geo::radius_by_member_read_only;
            GeoRadiusRo "georadius_ro" -6 (READONLY) ONE => geo::radius_read_only;
            GeoSearch "geosearch" -7 (READONLY) ONE => geo::search_area;
            GeoSearchStore "geosearchstore" -8 (WRITE DENY_OOM) TWO => geo::search_and_store;

            // Streams.
            XAck "xack" -4 (WRITE FAST) ONE => stream_groups::acknowledge;
            XAdd "xadd" -5 (WRITE DENY_OOM FAST) ONE => streams::add;
            XAutoClaim "xautoclaim" -6 (WRITE FAST) ONE => stream_groups::claim_next;
            XClaim "xclaim" -6 (WRITE FAST) ONE => stream_groups::claim;
            XDel "xdel" -3 (WRITE FAST) ONE => streams::delete;
            XGroup "xgroup" -2 (WRITE DENY_OOM) SECOND => stream_groups::group;
            XInfo "xinfo" -2 (READONLY) SECOND => stream_info::info;
            XLen "xlen" 2 (READONLY FAST) ONE => streams::length;
            XPending "xpending" -3 (READONLY) ONE => stream_groups::pending;
            XRange "xrange" -4 (READONLY) ONE => streams::range;
            XRead "xread" -4 (READONLY BLOCKING) Keys::Streams => stream_reads::read;
            XReadGroup "xreadgroup" -7 (WRITE BLOCKING) Keys::Streams => stream_reads::read;
            XRevRange "xrevrange" -4 (READONLY) ONE => streams::reverse_range;
            XSetLast "xsetid" -3 (WRITE DENY_OOM FAST) ONE => streams::set_id;
            XTrim "xtrim" -4 (WRITE) ONE => streams::trim;
            // Scripts.
            Eval "eval" -3 (NO_SCRIPT) Keys::Counted(2) => functions::run;
            EvalRo "eval_ro" -3 (READONLY NO_SCRIPT) Keys::Counted(2) => functions::run;
            EvalSha "evalsha" -3 (NO_SCRIPT) Keys::Counted(2) => functions::run;
            EvalShaRo "evalsha_ro" -3 (READONLY NO_SCRIPT) Keys::Counted(2) => functions::run;
            FCall "fcall" -3 (NO_SCRIPT) Keys::Counted(2) => functions::run;
            FCallRo "fcall_ro" -3 (READONLY NO_SCRIPT) Keys::Counted(2) => functions::run;
            Script "script" -2 (NO_SCRIPT) NONE => functions::script;

            // Transactions.
            Discard "discard" 1 (FAST AT_ONCE NO_SCRIPT) NONE => transactions::discard;
            Exec "exec" 1 (AT_ONCE NO_SCRIPT) NONE => transactions::exec_without_multi;
            Multi "multi" 1 (FAST AT_ONCE NO_SCRIPT) NONE => transactions::multi;
            Unwatch "unwatch" 1 (FAST NO_SCRIPT) NONE => transactions::unwatch;
            Watch "watch" -2 (FAST AT_ONCE NO_SCRIPT) EACH => transactions::watch;
        }
    };
}
pub(super) use for_each_command;

/// Makes the table from its rows.
macro_rules! table {
    ($($id:ident $name:literal $arity:literal ($($flag:ident)*) $keys:expr => $group:ident::$handler:ident;)*) => {
        /// Number of a command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Id {
            $($id,)*
        }

        /// All commands.
        pub(crate) const TABLE: &[Spec] = &[$(Spec {
            id: Id::$id,
            name: $name,
            arity: $arity,
            flags: Flags(0)$(.and(Flags::$flag))*,
            keys: $keys,
            file: stringify!($group),
        },)*];
    };
}
for_each_command!(table);

/// Finds a command by its name, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    static BY_NAME: LazyLock<HashMap<&[u8], &Spec>> =
        LazyLock::new(|| TABLE.iter().map(|spec| (spec.name.as_bytes(), spec)).collect());
    let mut folded = [0; NAME_AT_MOST];
    let folded = folded.get_mut(..name.len())?;
    folded.copy_from_slice(name);
    folded.make_ascii_lowercase();
    BY_NAME.get(&*folded).copied()
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::*;

    #[test]
    fn names_are_unique_and_in_lower_case() {
        for spec in TABLE {
            assert!(spec.name.len() <= NAME_AT_MOST && spec.name == spec.name.to_ascii_lowercase());
            assert_eq!(find(spec.name.to_uppercase().as_bytes()).map(|found| found.id), Some(spec.id));
        }
        assert!(find(b"").is_none() && find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn a_command_either_reads_or_writes() {
        for spec in TABLE {
            let both = spec.flags.has(Flags::WRITE) && spec.flags.has(Flags::READONLY);
            assert!(!both, "{}", spec.name);
            assert!(!spec.flags.has(Flags::WRITE) || spec.keys != Keys::None, "{}", spec.name);
        }
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let positions = |line: &str| {
            let args = words(line);
            find(&args[0]).unwrap().key_positions(&args)
        };
        assert_eq!(positions("mset a 1 b 2"), [1, 3]);
        assert_eq!(positions("del a b c"), [1, 2, 3]);
        assert_eq!(positions("rename a b"), [1, 2]);
        assert_eq!(positions("object encoding a"), [2]);
        assert_eq!(positions("object help"), [0; 0]);
        assert_eq!(positions("zunionstore to 2 a b weights 1 2"), [1, 3, 4]);
        assert_eq!(positions("zdiffstore to 5 a"), [1, 3]);
        assert_eq!(positions("georadius a 1 2 3 m asc STORE b"), [1, 8]);
        let counted = Spec { keys: Keys::Counted(1), ..TABLE.iter().map(|s| Spec { ..*s }).next().unwrap() };
        assert_eq!(counted.key_positions(&words("sintercard 2 a b limit 3")), [2, 3]);
        assert_eq!(counted.key_positions(&words("sintercard 9 a")), [2]);
        assert_eq!(counted.key_positions(&words("sintercard x a")), [0; 0]);
        assert_eq!(positions("sort a by store get store limit store store desc store b store c"), [1, 13]);
        assert_eq!(positions("sort a STORE"), [1]);
        assert_eq!(positions("xread count 2 BLOCK 1 STREAMS streams b 0 0"), [6, 7]);
        assert_eq!(positions("xreadgroup group streams c noack streams a >"), [6]);
        assert_eq!(positions("xread streams a b 0"), [2]);
        assert_eq!(positions("xread count 2 a b"), [0; 0]);
    }

    #[test]
    fn the_target_of_a_copy_is_known_beforehand() {
        let key = |db, name: &str| Key { db, name: name.as_bytes().to_vec() };
        assert_eq!(target(&words("copy a b"), 3), key(3, "b"));
        assert_eq!(target(&words("COPY a b REPLACE db 4"), 3), key(4, "b"));
        assert_eq!(target(&words("copy a b db"), 3), key(3, "b"));
        assert_eq!(target(&words("move a 5"), 3), key(5, "a"));
        assert_eq!(target(&words("move a x"), 3), key(3, "a"));
    }
}
