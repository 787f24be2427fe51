"""What Redis does by itself, so that a read or a step costs one round trip.

Each script works on one key, a thread's hash, and looks at nothing of a value but its head
(see `records`): its second byte tells the kind, its third the length of the parent's id.
"""

from __future__ import annotations

__all__ = ["LOOK", "STORE"]

LOOK = r"""
local key, ttl, generation, fresh = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local limit, ns, start, channels = tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[7])
local epoch = redis.call('HGET', key, 'e')
if not epoch and generation ~= '' then
  epoch = generation .. '.' .. fresh
  local made = redis.pcall('HSET', key, 'e', epoch)
  if type(made) == 'table' and made.err then return {false} end
end
if not epoch then return {false} end
if ttl > 0 then redis.call('EXPIRE', key, ttl) end
local anchors = {}
for i = 8 + channels, #ARGV do anchors[ARGV[i]] = true end
local function bin(text) return struct.pack('>BI4', 0xc6, #text) .. text end
local answer = {epoch}
for i = 8, 7 + channels do
  local channel, cid, path, known = ARGV[i], start, {}, false
  for _ = 1, limit do
    local value = redis.call('HGET', key, 'r' .. ns .. '\0' .. cid .. '\0' .. channel)
    if not value and cid == start then
      value = redis.call('HGET', key, 'l' .. ns .. '\0' .. cid)
    end
    if not value then break end
    path[#path + 1] = bin(cid) .. bin(value)
    local kind, length = string.sub(value, 2, 2), string.byte(value, 3) or 0
    if cid ~= start and (kind == 'K' or kind == 'H') then
      known = kind == 'K'
      break
    end
    if length == 0 then break end
    cid = string.sub(value, 4, 3 + length)
    if anchors[cid] then break end
  end
  answer[#answer + 1] = struct.pack('>BI4', 0xdd, 2 * #path) .. table.concat(path)
  answer[#answer + 1] = known and redis.call('HGET', key, 's' .. ns .. '\0' .. channel) or false
end
return answer
"""
"""Arguments: ttl in seconds (0: none), generation to make an epoch in ('' for none), its rest,
limit, namespace, start, number of channels, channels, anchors. Answer: the epoch, and per
channel a path of ids and values (one msgpack array, which is read faster than many replies) and
a seed."""

STORE = r"""
local key, ttl, gone = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('HGET', key, 'e') ~= ARGV[1] then return 0 end
for i = 4 + gone, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  local kind = string.sub(field, 1, 1)
  local old = kind ~= 's' and redis.call('HGET', key, field)
  if old and (kind == 'l' or old ~= value) then
    redis.call('UNLINK', key)
    return 0
  end
end
for i = 4, 3 + gone do redis.call('HDEL', key, ARGV[i]) end
for i = 4 + gone, #ARGV, 2 do redis.call('HSET', key, ARGV[i], ARGV[i + 1]) end
if ttl > 0 then redis.call('EXPIRE', key, ttl) end
return 1
"""
"""Arguments: epoch, ttl, number of fields to remove, those, fields and values. A checkpoint that
is put again, or a record that would change, proves that a rule was broken: the thread goes."""
