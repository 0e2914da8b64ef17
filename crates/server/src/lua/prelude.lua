-- The sandbox of scripts, around functions of the virtual machine. It runs once in each machine.
--
-- In: functions of the host. Out: functions by which the host runs scripts.
--
-- Lua 5.1 has no read-only tables. A table that scripts must not change is therefore seen through a
-- proxy, an empty table whose metatable finds what is asked for in the real one. Functions that
-- would go around metatables are replaced by some that know the proxies.

local host = ...
local error, type, tostring = error, type, tostring
local rawpcall, rawxpcall = pcall, xpcall
local rawnext, rawpairs, rawrawset, rawrawget = next, pairs, rawset, rawget
local rawgetmetatable, rawsetmetatable = getmetatable, setmetatable
local rawgetfenv, rawsetfenv = getfenv, setfenv
local rawcollect = collectgarbage
local rawcreate, rawresume = coroutine.create, coroutine.resume
local concat = table.concat

-- Maximum number of bytes of a pattern: the matcher's recursion on the C stack grows with it.
local PATTERN_AT_MOST = 16384
-- Maximum number of coroutines that resume each other, for the same reason.
local COROUTINES_AT_MOST = 4

local READONLY = "Attempt to modify a readonly table"
local NONEXISTENT = "Script attempted to access nonexistent global variable '"

-- The real table of each proxy, and what getmetatable shows of some.
local real_of, views = {}, {}

local function refuse()
  error(READONLY, 2)
end

local function missing(_, name)
  error(NONEXISTENT .. tostring(name) .. "'", 2)
end

local function protect(real)
  local proxy = {}
  rawsetmetatable(proxy, { __index = real, __newindex = refuse })
  real_of[proxy] = real
  return proxy
end

-- Has a function that changes its first argument refuse proxies.
local function guarded(f)
  return function(t, ...)
    if real_of[t] then
      error(READONLY, 0)
    end
    return f(t, ...)
  end
end

local function proxied_next(proxy, key)
  return rawnext(real_of[proxy], key)
end

-- Functions for the globals.
local global = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  gcinfo = gcinfo,
  ipairs = ipairs,
  rawequal = rawequal,
  rawset = guarded(rawrawset),
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
}

function global.next(t, key)
  return rawnext(real_of[t] or t, key)
end

function global.pairs(t)
  if real_of[t] then
    return proxied_next, t, nil
  end
  return rawpairs(t)
end

function global.rawget(t, key)
  return rawrawget(real_of[t] or t, key)
end

function global.getmetatable(of)
  if real_of[of] then
    return views[of]
  end
  if type(of) == "string" then
    return views.string
  end
  return rawgetmetatable(of)
end

function global.setmetatable(t, metatable)
  if real_of[t] then
    error(READONLY, 0)
  end
  return rawsetmetatable(t, metatable)
end

function global.getfenv(of)
  if of == nil then
    of = 1
  end
  if type(of) == "number" and of > 0 then
    of = of + 1
  end
  local environment = rawgetfenv(of)
  return environment
end

function global.setfenv(of, environment)
  if of == 0 then
    error(READONLY, 2)
  end
  if type(of) == "number" then
    of = of + 1
  end
  local changed = rawsetfenv(of, environment)
  return changed
end

function global.collectgarbage(option)
  if option == "count" then
    return rawcollect("count")
  end
  if option == nil or option == "collect" or option == "step" then
    rawcollect("step", 1000)
  end
  return 0
end

-- Errors of the host's functions are no values of scripts: they become texts or tables.
local function settle(ok, ...)
  if ok then
    return true, ...
  end
  return false, host.text((...))
end

function global.pcall(...)
  return settle(rawpcall(...))
end

function global.xpcall(f, handler)
  return rawxpcall(f, function(of)
    return handler(host.table(of))
  end)
end

function global.loadstring(text, name)
  return host.load(text, name)
end

function global.load(reader, name)
  local parts = {}
  while true do
    local part = reader()
    if part == nil or part == "" then
      return host.load(concat(parts), name or "=(load)")
    end
    if type(part) ~= "string" then
      error("reader function must return a string", 2)
    end
    parts[#parts + 1] = part
  end
end

local resumed = 0

local function resume_ended(ok, ...)
  resumed = resumed - 1
  if ok then
    return true, ...
  end
  return false, host.table((...))
end

local function resume(routine, ...)
  if type(routine) ~= "thread" then
    error("bad argument #1 to 'resume' (coroutine expected)", 2)
  end
  if resumed >= COROUTINES_AT_MOST then
    return false, "C stack overflow"
  end
  resumed = resumed + 1
  return resume_ended(rawresume(routine, ...))
end

local function unwrap(ok, ...)
  if ok then
    return ...
  end
  error((...), 0)
end

local of_coroutine = {
  create = rawcreate,
  resume = resume,
  running = coroutine.running,
  status = coroutine.status,
  yield = coroutine.yield,
}

function of_coroutine.wrap(f)
  local routine = rawcreate(f)
  return function(...)
    return unwrap(resume(routine, ...))
  end
end

local function bounded(f)
  return function(text, pattern, ...)
    if type(pattern) == "string" and #pattern > PATTERN_AT_MOST then
      error("pattern too complex", 2)
    end
    return f(text, pattern, ...)
  end
end

local rawfind, rawrep = string.find, string.rep

function string.find(text, pattern, init, plain)
  if not plain and type(pattern) == "string" and #pattern > PATTERN_AT_MOST then
    error("pattern too complex", 2)
  end
  return rawfind(text, pattern, init, plain)
end

function string.rep(text, count)
  if type(text) == "string" and type(count) == "number" and count > 0 then
    if #text == 0 then
      return ""
    end
    if #text * count > host.memory then
      error("resulting string too large", 2)
    end
  end
  return rawrep(text, count)
end

for _, name in rawpairs({ "gmatch", "gfind", "gsub", "match" }) do
  string[name] = bounded(string[name])
end
for _, name in rawpairs({ "insert", "remove", "sort", "setn" }) do
  table[name] = guarded(table[name])
end
math.random, math.randomseed = host.random, host.randomseed

local libraries = {
  bit = host.bit,
  cjson = host.cjson,
  cmsgpack = host.cmsgpack,
  coroutine = of_coroutine,
  math = math,
  os = { clock = host.clock },
  string = string,
  struct = host.struct,
  table = table,
}
for name, real in rawpairs(libraries) do
  global[name] = protect(real)
end
views.string = protect({ __index = global.string })
global.redis = protect(host.redis)

rawsetmetatable(global, { __index = missing })
local globals = protect(global)
views[globals] = protect({ __index = missing })
global._G = globals

-- The functions of libraries have globals of their own, in which redis is the interface of the
-- moment: to register functions, or to call commands. As in Redis there is nothing else while a
-- library is loaded.
local of_library = {}
local library_global = { redis = protect(of_library) }
local library_globals = protect(library_global)
library_global._G = library_globals
views[library_globals] = views[globals]

-- The interface of a library is that of loading.
local is_loading_now

local function set_interface(is_loading)
  if is_loading_now == is_loading then
    return
  end
  is_loading_now = is_loading
  for name in rawpairs(of_library) do
    of_library[name] = nil
  end
  for name, f in rawpairs(is_loading and host.redis_of_load or host.redis) do
    of_library[name] = f
  end
  of_library.register_function = host.register
  rawsetmetatable(of_library, is_loading and { __index = missing } or nil)
  rawsetmetatable(library_global, { __index = is_loading and missing or global })
end

local machine = { globals = globals, library_globals = library_globals }

-- Runs a script or a function, whose globals are set. Returns whether it ended without an error,
-- and its result or the error as a table.
function machine.run(f, keys, args, is_function)
  resumed = 0
  if is_function then
    rawrawset(global, "KEYS", nil)
    rawrawset(global, "ARGV", nil)
    set_interface(false)
    return rawxpcall(function()
      return f(keys, args)
    end, host.handler)
  end
  rawrawset(global, "KEYS", keys)
  rawrawset(global, "ARGV", args)
  return rawxpcall(f, host.handler)
end

-- Runs the code of a library.
function machine.load(f)
  resumed = 0
  rawrawset(global, "KEYS", nil)
  rawrawset(global, "ARGV", nil)
  set_interface(true)
  return rawxpcall(f, host.handler)
end

-- Forgets the arguments of a script.
function machine.finish()
  rawrawset(global, "KEYS", nil)
  rawrawset(global, "ARGV", nil)
end

-- Functions of this chunk have its globals, which scripts may get by getfenv: nothing is left there.
local own = rawgetfenv(1)
for name in rawpairs(own) do
  own[name] = nil
end
rawsetmetatable(own, { __newindex = refuse })
real_of[own] = {}

return machine
