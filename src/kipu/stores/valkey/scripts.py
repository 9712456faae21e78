"""The scripts: what has to happen together at the server. What they decide is only whether things are as they were.

Keys are made of what is given, all with the store's one hash tag. No script walks over more than it is told to.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple


class Script(NamedTuple):
    """A script and the name the server knows it by."""

    text: str
    digest: str


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_WORDS = """
local at = 0
local function word() at = at + 1; return ARGV[at] end
local function number() return tonumber(word()) end
"""
_ROW = """
local function row(head)
  local r = redis.call('HMGET', head, 'v', 'd', 'au', 'ru')
  return r[1] or '0', r[2] or '', r[3] or '0', r[4] or '0'
end
"""

# mark key, mark, head key, version, checks (key, value)…, counter key, changed key, session, events key, first, events (seq, value)…,
# channel, notice, commands (count, words…)…
WRITE: Final = _script(
    _WORDS
    + _ROW
    + """
local mark_key, mark = word(), word()
if mark ~= '*' then
  local found = redis.call('GET', mark_key) or ''
  if found ~= mark then return {'mark', found} end
end
local head, version = word(), word()
for i = 1, number() do
  local key, expected = word(), word()
  local found = redis.call('GET', key) or ''
  if found ~= expected then return {'check', i, found} end
end
if version == '-' then
  if redis.call('HEXISTS', head, 'd') == 0 then return {'version', row(head)} end
elseif version ~= '' and (redis.call('HGET', head, 'v') or '0') ~= version then
  return {'version', row(head)}
end
local counter, changed, session, events, first = word(), word(), word(), word(), word()
local count = number()
if count > 0 then
  local stamp = string.format('%.0f', redis.call('INCR', counter))
  for i = 1, count do
    local seq = word()
    redis.call('HSET', events, seq, stamp .. ' ' .. word())
  end
  redis.call('HSET', head, 'pn', redis.call('HGET', head, 'n') or '0', 'n', stamp, 'f', first)
  redis.call('ZADD', changed, stamp, session)
end
local channel, notice, last = word(), word(), #ARGV
while at < last do
  local words = {}
  for i = 1, number() do words[i] = word() end
  redis.call(unpack(words))
end
if channel ~= '' then redis.pcall('PUBLISH', channel, notice) end
return {'done'}
"""
)

# head key, version, events key, seq: give the head a version of its own, so that what was on its way to the old one comes to nothing
FENCE: Final = _script(
    _WORDS
    + _ROW
    + """
local head, version = word(), word()
if redis.call('HEXISTS', head, 'v') == 1 then redis.call('HSET', head, 'v', version) end
local v, d, au, ru = row(head)
return {v, d, au, ru}
"""
)

# head key, after, until, limit, backwards, most events, most bytes, adopted key, returned key, events key
READ: Final = _script(
    _WORDS
    + """
local head = word()
local after, till, limit, backwards, most, bytes = number(), number(), number(), word() == '1', number(), number()
local adopted, returned, events = word(), word(), word()
local r = redis.call('HMGET', head, 's', 'b', 'o', 'au', 'ru')
if not r[1] then return {'gone'} end
local last, base, gone = tonumber(r[1]), tonumber(r[2]), tonumber(r[3])
local own, back = tonumber(r[4]), tonumber(r[5])
local high, low = math.min(till, last), math.max(after, base)
if backwards then low = math.max(low, high - limit) end
if low < math.min(high, gone) then return {'archived', gone} end
local count = math.min(high - low, limit, most)
if count <= 0 then return {'page', 0, '', ''} end
local from, step = low + 1, 1
if backwards then from, step = high, -1 end
local sizes, found, total, done = {}, {}, 0, 0
while done < count and total < bytes do
  local parts = {{adopted}, {returned}, {events}}
  local where = {}
  for i = 1, math.min(32, count - done) do
    local seq = from + step * (done + i - 1)
    local part = 3
    if seq <= own then part = 1 elseif seq <= back then part = 2 end
    table.insert(parts[part], string.format('%.0f', seq))
    where[i] = {part, #parts[part] - 1}
  end
  local values = {}
  for i = 1, 3 do
    if #parts[i] > 1 then values[i] = redis.call('HMGET', unpack(parts[i])) end
  end
  for i = 1, #where do
    local value = values[where[i][1]][where[i][2]]
    if value then
      sizes[done + i] = #value
      found[#found + 1] = value
      total = total + #value
    else
      sizes[done + i] = -1
    end
  end
  done = done + #where
end
return {'page', from, table.concat(sizes, ','), table.concat(found)}
"""
)

_MATCHING = """
local function matches(head, conditions)
  if #conditions == 0 then return true end
  local r = redis.call('HMGET', head, 't', 'c', 'a')
  if not r[1] then return false end
  for _, c in ipairs(conditions) do
    local kind, holds = c[1], nil
    if kind == 'has' then holds = string.find(r[1], c[2], 1, true) ~= nil
    elseif kind == 'not' then holds = string.find(r[1], c[2], 1, true) == nil
    elseif kind == 'any' then
      holds = false
      for i = 2, #c do holds = holds or string.find(r[1], c[i], 1, true) ~= nil end
    elseif kind == 'c>' then holds = r[2] > c[2]
    elseif kind == 'c<' then holds = r[2] < c[2]
    elseif kind == 'a>' then holds = r[3] > c[2]
    elseif kind == 'a<' then holds = r[3] < c[2]
    end
    if not holds then return false end
  end
  return true
end
"""

# heads prefix, descending, low, high, wanted, most looked at, sets…, conditions (count, kind, texts…)…
LIST: Final = _script(
    _WORDS
    + _MATCHING
    + """
local heads, descending, low, high, wanted, most = word(), word() == '1', word(), word(), number(), number()
local walked, size = nil, nil
for i = 1, number() do
  local set = word()
  local count = redis.call('ZCARD', set)
  if not size or count < size then walked, size = set, count end
end
local conditions = {}
for i = 1, number() do
  local condition = {}
  for j = 1, number() do condition[j] = word() end
  conditions[i] = condition
end
local sizes, found, looked, place, done = {}, {}, 0, '', '0'
while #sizes < 2 * wanted and looked < most do
  local batch = math.min(100, most - looked)
  local members
  if descending then members = redis.call('ZREVRANGEBYLEX', walked, high, low, 'LIMIT', 0, batch)
  else members = redis.call('ZRANGEBYLEX', walked, low, high, 'LIMIT', 0, batch) end
  for _, member in ipairs(members) do
    looked, place = looked + 1, member
    local head = heads .. string.match(member, '[^%z]*$')
    if matches(head, conditions) then
      local data = redis.call('HGET', head, 'd') or ''
      sizes[#sizes + 1], sizes[#sizes + 2] = #member, #data
      found[#found + 1], found[#found + 2] = member, data
      if #sizes >= 2 * wanted then break end
    end
  end
  if #members < batch and #sizes < 2 * wanted then done = '1' break end
  if place ~= '' then
    if descending then high = '(' .. place else low = '(' .. place end
  end
end
return {place, done, table.concat(sizes, ','), table.concat(found)}
"""
)

# set, low, high, most, heads prefix: members in their order, with the head's lease owner and JSON
WORK: Final = _script(
    _WORDS
    + """
local set, low, high, most, heads = word(), word(), word(), number(), word()
local found = {}
for _, member in ipairs(redis.call('ZRANGEBYLEX', set, low, high, 'LIMIT', 0, most)) do
  local r = redis.call('HMGET', heads .. string.match(member, '[^%z]*$'), 'lo', 'd')
  found[#found + 1], found[#found + 2], found[#found + 3] = member, r[1] or '', r[2] or ''
end
return found
"""
)

# counter key, changed key, after, most, heads prefix
NEWS: Final = _script(
    _WORDS
    + """
local counter, changed, after, most, heads = word(), word(), word(), word(), word()
local found = {redis.call('GET', counter) or '0'}
local rows = redis.call('ZRANGEBYSCORE', changed, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #rows, 2 do
  local r = redis.call('HMGET', heads .. rows[i], 's', 'f', 'pn')
  for _, value in ipairs({rows[i], rows[i + 1], r[1] or '0', r[2] or '0', r[3] or '0'}) do found[#found + 1] = value end
end
return found
"""
)

# session, outcomes set, keys…: forget the retries of a session that was erased, but for those that another one has taken meanwhile
FORGET: Final = _script(
    _WORDS
    + """
local session, outcomes, root = word(), word(), word()
while at < #ARGV do
  local key = word()
  local value = redis.call('GET', root .. key)
  if value and string.match(value, '^%S+') == session then redis.call('UNLINK', root .. key) end
  redis.call('ZREM', outcomes, key)
end
return 1
"""
)

# probe key: whether every kind of command is allowed, before one of them could fail in the middle of a script
PROBE: Final = _script(
    _WORDS
    + """
local probe = word()
local tries = {
  {'HSET', probe .. ':h', 'a', '1'}, {'HDEL', probe .. ':h', 'a'}, {'HGET', probe .. ':h', 'a'}, {'HMGET', probe .. ':h', 'a'},
  {'HEXISTS', probe .. ':h', 'a'}, {'HLEN', probe .. ':h'}, {'SET', probe .. ':s', '1'}, {'GET', probe .. ':s'},
  {'INCR', probe .. ':n'}, {'SADD', probe .. ':m', 'a'}, {'SREM', probe .. ':m', 'a'}, {'ZADD', probe .. ':z', '1', 'a'},
  {'ZREM', probe .. ':z', 'a'}, {'ZCARD', probe .. ':z'}, {'ZREMRANGEBYSCORE', probe .. ':z', '-inf', '0'},
  {'UNLINK', probe .. ':h', probe .. ':s', probe .. ':n', probe .. ':m', probe .. ':z'},
}
for _, words in ipairs(tries) do
  local answer = redis.pcall(unpack(words))
  local err = type(answer) == 'table' and answer.err or ''
  for _, sign in ipairs({'NOPERM', 'ACL failure', 'user executing the script'}) do  -- as the servers have it, old and new
    if string.find(err, sign, 1, true) then return {words[1], err} end
  end
end
return {}
"""
)

# nothing new: a connection that writes it waits for replicas to have all that was written before it, by whomever
TOUCH: Final = _script("redis.call('HSET', KEYS[1], 'kind', 'kipu')")
