//! A virtual machine of Lua as a coroutine: [`Machine`].

use super::convert::{Replied, Reply};
use super::errors::{Raise, as_table, as_text, error_table, handle, raised_reply};
use super::source::{FunctionMeta, Library, Script, behind_first_line};
use super::state::State;
use super::{Arguments, INSTRUCTIONS, Input, Job, MEMORY_AT_MOST, Outcome, Output};
use super::{api, bits, json, msgpack, packing};
use crate::wrong::Wrong;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use karstdb::io::report;
use mlua::chunk::ChunkMode;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value, VmState,
};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of address space of a machine's stack; pages that were never used take no memory.
const STACK: usize = 16 << 20;
/// Maximum number of compiled scripts that a machine keeps.
const SCRIPTS_KEPT: usize = 512;
/// Maximum number of loaded libraries that a machine keeps.
const LIBRARIES_KEPT: usize = 64;
/// Memory from which on a machine is not used again, in bytes.
const KEPT_AT_MOST: usize = 8 << 20;
/// Name in the registry of the function that pauses.
const PAUSE: &str = "karst_pause";

const PRELUDE: &str = include_str!("prelude.lua");

/// A virtual machine. Not `Send`: it stays on its thread.
pub(crate) struct Machine {
    routine: Coroutine<Input, Output, ()>,
    /// It waits for a job.
    is_idle: bool,
    /// A script was killed, or has left much memory.
    is_spent: Rc<Cell<bool>>,
}

impl Machine {
    /// Makes a machine.
    ///
    /// # Errors
    /// There is no memory for its stack.
    pub(crate) fn new() -> std::io::Result<Self> {
        let stack = DefaultStack::new(STACK)?;
        let is_spent = Rc::<Cell<bool>>::default();
        let spent = is_spent.clone();
        let mut routine = Coroutine::with_stack(stack, move |yielder, _first| {
            if let Err(error) = serve(yielder, &spent) {
                report!(error, %error, "a virtual machine of Lua cannot be made");
            }
        });
        let is_idle = matches!(routine.resume(Input::GoOn), CoroutineResult::Yield(Output::Idle));
        match is_idle {
            true => Ok(Self { routine, is_idle, is_spent }),
            false => Err(std::io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// True if it may run another job.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_idle && !self.is_spent.get() && !self.routine.done()
    }

    /// Goes on until the machine is suspended again.
    pub(crate) fn resume(&mut self, input: Input) -> Output {
        if self.routine.done() {
            return Output::Done(Outcome::Failed(Wrong::err("the virtual machine has ended")));
        }
        let output = match self.routine.resume(input) {
            CoroutineResult::Yield(output) => output,
            CoroutineResult::Return(()) => Output::Idle,
        };
        self.is_idle = matches!(output, Output::Done(_) | Output::Idle);
        output
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        while !self.is_idle && !self.routine.done() {
            self.resume(Input::Kill("ERR the script was abandoned"));
        }
        if !self.routine.done() {
            self.resume(Input::End);
        }
    }
}

/// Suspends the machine for others.
fn pause(yielder: &Yielder<Input, Output>, state: &State) -> Result<()> {
    state.check()?;
    if let Input::Kill(why) = yielder.suspend(Output::Pause) {
        state.killed.set(Some(why));
    }
    state.check()
}

/// Calls a command. Returns its reply.
fn call(
    lua: &Lua,
    yielder: &Yielder<Input, Output>,
    state: &State,
    values: &MultiValue,
) -> std::result::Result<Value, Raise> {
    if !state.is_running.get() {
        return Err(Raise::Reply("ERR redis.call/pcall can only be called inside a script invocation"));
    }
    let args = api::arguments(values)?;
    state.check()?;
    match yielder.suspend(Output::Call(args, state.protocol.get())) {
        Input::Reply(bytes) => {
            let pause = || pause(yielder, state);
            Ok(Replied::new(lua, &bytes, &pause).value()?)
        }
        Input::Kill(why) => {
            state.killed.set(Some(why));
            Err(Raise::Error(raised_reply(why)))
        }
        Input::Start(_) | Input::Checked(_) | Input::GoOn | Input::End => Err(Raise::Reply("ERR no reply")),
    }
}

/// Returns true if the user may run a command.
fn check(yielder: &Yielder<Input, Output>, state: &State, values: &MultiValue) -> Result<bool> {
    api::inside(state, "redis.acl_check_cmd")?;
    let args = api::arguments(values).map_err(Raise::error)?;
    state.check()?;
    match yielder.suspend(Output::Check(args)) {
        Input::Checked(Some(may_run)) => Ok(may_run),
        Input::Kill(why) => {
            state.killed.set(Some(why));
            Err(raised_reply(why))
        }
        _ => Err(raised_reply("ERR Invalid command passed to redis.acl_check_cmd()")),
    }
}

/// The text of a reply that is an error.
fn error_of(value: &Value) -> Result<Option<LuaString>> {
    match value {
        Value::Table(table) => match table.raw_get("err")? {
            Value::String(text) => Ok(Some(text)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The whole life of a machine.
fn serve(yielder: &Yielder<Input, Output>, is_spent: &Cell<bool>) -> Result<()> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    lua.set_memory_limit(MEMORY_AT_MOST)?;
    let state = Rc::new(State::default());
    lua.scope(|scope| {
        let host = host(&lua, &state)?;
        let redis: Table = host.raw_get("redis")?;
        let of = state.clone();
        let raising = scope.create_function(move |lua, values: MultiValue| {
            let reply = call(lua, yielder, &of, &values).map_err(Raise::error)?;
            match error_of(&reply)? {
                Some(text) => Err(raised_reply(text.as_bytes().to_vec())),
                None => Ok(reply),
            }
        })?;
        redis.raw_set("call", raising)?;
        let of = state.clone();
        let returning =
            scope.create_function(move |lua, values: MultiValue| match call(lua, yielder, &of, &values) {
                Ok(reply) => Ok(reply),
                Err(Raise::Reply(text)) => error_table(lua, text).map(Value::Table),
                Err(Raise::Error(error)) => Err(error),
            })?;
        redis.raw_set("pcall", returning)?;
        let of = state.clone();
        let checking = scope.create_function(move |_, values: MultiValue| check(yielder, &of, &values))?;
        redis.raw_set("acl_check_cmd", checking)?;
        let of = state.clone();
        let pausing = scope.create_function(move |_, ()| pause(yielder, &of))?;
        lua.set_named_registry_value(PAUSE, pausing)?;
        let mut runner = Runner::new(&lua, &state, host, yielder)?;
        let mut input = yielder.suspend(Output::Idle);
        while let Input::Start(job) = input {
            state.killed.set(None);
            state.reset();
            hook(&lua, INSTRUCTIONS)?;
            let outcome = runner.run(job);
            state.is_running.set(false);
            is_spent.set(state.killed.get().is_some() || lua.used_memory() > KEPT_AT_MOST);
            input = yielder.suspend(Output::Done(outcome));
        }
        Ok(())
    })
}

/// Has the script pause after each `count` instructions, and once it is killed fail at each.
fn hook(lua: &Lua, count: u32) -> Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(count);
    lua.set_global_hook(triggers, |lua, _| {
        let paused = lua.named_registry_value::<Function>(PAUSE)?.call::<()>(());
        if paused.is_err() {
            hook(lua, 1)?;
        }
        paused.map(|()| VmState::Continue)
    })
}

/// The functions for `prelude.lua`.
fn host(lua: &Lua, state: &Rc<State>) -> Result<Table> {
    let host = lua.create_table()?;
    let (redis, of_load) = api::tables(lua, state)?;
    host.raw_set("redis", redis)?;
    host.raw_set("redis_of_load", of_load)?;
    host.raw_set("register", api::register(lua, state)?)?;
    let (random, seed) = api::random(lua, state)?;
    host.raw_set("random", random)?;
    host.raw_set("randomseed", seed)?;
    let since = Instant::now();
    host.raw_set("clock", lua.create_function(move |_, ()| Ok(since.elapsed().as_secs_f64()))?)?;
    host.raw_set("memory", MEMORY_AT_MOST)?;
    host.raw_set("text", lua.create_function(|lua, error: Value| as_text(lua, error))?)?;
    host.raw_set("table", lua.create_function(|lua, error: Value| as_table(lua, error))?)?;
    host.raw_set("handler", lua.create_function(|lua, error: Value| handle(lua, error))?)?;
    host.raw_set("bit", bits::library(lua)?)?;
    host.raw_set("cjson", json::library(lua, &state.json)?)?;
    host.raw_set("cmsgpack", msgpack::library(lua)?)?;
    host.raw_set("struct", packing::library(lua)?)?;
    let load = lua.create_function(|lua, values: MultiValue| {
        let text = values.front().cloned().unwrap_or(Value::Nil);
        let Some(text) = lua.coerce_string(text)? else {
            return Err(super::errors::raised(lua, "bad argument #1 to 'loadstring' (string expected)"));
        };
        let name = match values.get(1) {
            Some(Value::String(name)) => name.to_string_lossy(),
            _ => text.to_string_lossy(),
        };
        let loaded = compile(lua, &text.as_bytes(), &name);
        Ok(match loaded {
            Ok(function) => (Value::Function(function), Value::Nil),
            Err(text) => (Value::Nil, Value::String(lua.create_string(text)?)),
        })
    })?;
    host.raw_set("load", load)?;
    Ok(host)
}

/// Compiles a text, never bytecode.
///
/// # Errors
/// The error's text.
fn compile(lua: &Lua, text: &[u8], name: &str) -> std::result::Result<Function, String> {
    // A name with a zero byte is none for Lua.
    let name = name.replace('\0', " ");
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text);
    chunk.into_function().map_err(|error| match error {
        mlua::Error::SyntaxError { message, .. } => message,
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        other => other.to_string(),
    })
}

/// Runs jobs inside of the machine's coroutine.
struct Runner<'a> {
    lua: &'a Lua,
    state: &'a State,
    yielder: &'a Yielder<Input, Output>,
    globals: Table,
    library_globals: Table,
    run: Function,
    load: Function,
    finish: Function,
    /// Compiled scripts by their hashes.
    scripts: HashMap<String, Function>,
    /// Functions of loaded libraries by the address of the library, which they keep.
    libraries: HashMap<*const Library, (Arc<Library>, HashMap<String, Function>)>,
}

impl<'a> Runner<'a> {
    fn new(lua: &'a Lua, state: &'a State, host: Table, yielder: &'a Yielder<Input, Output>) -> Result<Self> {
        let own = lua.create_table()?;
        for pair in lua.globals().pairs::<Value, Value>() {
            let (name, value) = pair?;
            own.raw_set(name, value)?;
        }
        let prelude = lua.load(PRELUDE).set_name("=prelude").set_environment(own);
        let machine: Table = prelude.call(host)?;
        let globals: Table = machine.raw_get("globals")?;
        // Functions of Lua's own libraries have the thread's globals.
        lua.set_globals(globals.clone())?;
        Ok(Self {
            lua,
            state,
            yielder,
            globals,
            library_globals: machine.raw_get("library_globals")?,
            run: machine.raw_get("run")?,
            load: machine.raw_get("load")?,
            finish: machine.raw_get("finish")?,
            scripts: HashMap::new(),
            libraries: HashMap::new(),
        })
    }

    fn run(&mut self, job: Job) -> Outcome {
        let done = match job {
            Job::Compile(script) => self.script(&script).map(|_| Outcome::Compiled),
            Job::Script(script, args) => self.run_script(&script, args),
            Job::Load(code) => self
                .register(&code)
                .map(|functions| Outcome::Loaded(functions.into_iter().map(|(meta, _)| meta).collect())),
            Job::Function(library, name, args) => self.run_function(&library, &name, args),
        };
        done.unwrap_or_else(Outcome::Failed)
    }

    /// The compiled script, whose globals are as for the first time.
    fn script(&mut self, script: &Script) -> std::result::Result<Function, Wrong> {
        let function = match self.scripts.get(&script.sha) {
            Some(function) => function.clone(),
            None => {
                let compiled = compile(self.lua, &script.text[script.head..], "@user_script");
                let function = compiled.map_err(|text| {
                    Wrong::err(format_args!("Error compiling script (new function): {text}"))
                })?;
                if self.scripts.len() >= SCRIPTS_KEPT {
                    self.scripts.clear();
                }
                self.scripts.insert(script.sha.clone(), function.clone());
                function
            }
        };
        function.set_environment(self.globals.clone()).map_err(failed)?;
        Ok(function)
    }

    fn run_script(&mut self, script: &Script, args: Arguments) -> std::result::Result<Outcome, Wrong> {
        let function = self.script(script)?;
        let outcome = self.call(&function, &script.sha, args, false);
        if self.finish.call::<()>(()).is_err() {
            self.state.killed.set(Some("ERR the machine has failed"));
        }
        outcome
    }

    fn run_function(
        &mut self,
        library: &Arc<Library>,
        name: &str,
        args: Arguments,
    ) -> std::result::Result<Outcome, Wrong> {
        let address = Arc::as_ptr(library);
        if !self.libraries.contains_key(&address) {
            let functions = self.register(&library.code)?;
            if self.libraries.len() >= LIBRARIES_KEPT {
                self.libraries.clear();
            }
            let functions = functions
                .into_iter()
                .map(|(meta, function)| (meta.name.to_ascii_lowercase(), function))
                .collect();
            self.libraries.insert(address, (library.clone(), functions));
        }
        let function =
            self.libraries.get(&address).and_then(|(_, functions)| functions.get(&name.to_ascii_lowercase()));
        let function = function.cloned().ok_or(Wrong::err("Function not found"))?;
        self.call(&function, name, args, true)
    }

    /// Runs a function. Returns its reply.
    fn call(
        &self,
        function: &Function,
        name: &str,
        args: Arguments,
        is_function: bool,
    ) -> std::result::Result<Outcome, Wrong> {
        let keys = self.list(&args.keys).map_err(failed)?;
        let others = self.list(&args.others).map_err(failed)?;
        self.state.random.set(args.seed);
        let (of_client, given) = (args.protocol, (function, keys, others, is_function));
        self.state.is_running.set(true);
        let (ok, value) = self.run.call::<(bool, Value)>(given).map_err(failed)?;
        if !ok {
            return Err(self.error(&value, name));
        }
        let pause = || pause(self.yielder, self.state);
        let mut reply = Reply::new(of_client, self.state.protocol.get(), &pause);
        reply.add(&value, 0).map_err(failed)?;
        Ok(Outcome::Reply(reply.take()))
    }

    fn list(&self, texts: &[Vec<u8>]) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
        for (at, text) in texts.iter().enumerate() {
            table.raw_set(at + 1, self.lua.create_string(text)?)?;
        }
        Ok(table)
    }

    /// The reply for an error of a script.
    fn error(&self, value: &Value, name: &str) -> Wrong {
        if let Some(why) = self.state.killed.get() {
            return Wrong::new(why);
        }
        match value {
            Value::Table(table) => {
                let field = |field: &str| match table.raw_get::<Value>(field) {
                    Ok(Value::String(text)) => Some(text.to_string_lossy()),
                    Ok(Value::Integer(number)) => Some(number.to_string()),
                    _ => None,
                };
                let text = field("err").unwrap_or_else(|| "ERR unknown error".to_owned());
                match (field("source"), field("line")) {
                    (Some(source), Some(line)) => {
                        Wrong::new(format!("{text} script: {name}, on {source}:{line}."))
                    }
                    _ => Wrong::new(text),
                }
            }
            Value::String(text) => {
                let text: String = text.to_string_lossy().chars().take(100).collect();
                Wrong::err(format_args!("Error running script {name}, {text}"))
            }
            _ => Wrong::err(format_args!("Error running script {name}, execution failure")),
        }
    }

    /// Runs the code of a library. Returns the functions that it registers.
    fn register(&self, code: &[u8]) -> std::result::Result<Vec<(FunctionMeta, Function)>, Wrong> {
        let chunk = compile(self.lua, behind_first_line(code), "@user_function");
        let chunk = chunk.map_err(|text| Wrong::err(format_args!("Error compiling function: {text}")))?;
        chunk.set_environment(self.library_globals.clone()).map_err(failed)?;
        self.state.registered.replace(Some(Vec::new()));
        let done = self.load.call::<(bool, Value)>(&chunk);
        let registered = self.state.registered.take().unwrap_or_default();
        let (ok, value) = done.map_err(failed)?;
        if !ok {
            let why = self.error(&value, "");
            if self.state.killed.get().is_some() {
                return Err(why);
            }
            let text = error_of(&value).ok().flatten().map(|text| text.to_string_lossy());
            let text = text.unwrap_or_else(|| why.text().to_owned());
            return Err(Wrong::err(format_args!("Error registering functions: {text}")));
        }
        if registered.is_empty() {
            return Err(Wrong::err("No functions registered"));
        }
        Ok(registered)
    }
}

/// The reply for an error of the machine itself, such as that its memory is not enough.
fn failed(error: mlua::Error) -> Wrong {
    Wrong::new(String::from_utf8_lossy(&super::errors::reply_of(&error)).into_owned())
}
