-- Remove a session from a room. The last session of a user is published. Returns 1 for the last session, else 0.
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key, session, incarnation, connection, user
local session, user = ARGV[5], ARGV[8]
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local known = redis.call('HGET', KEYS[1], user)
if not known then return 0 end
local entries, was_there, indexed = {}, false, false
for _, entry in ipairs(entries_in_room(known, KEYS[2], now)) do
  if entry.session == session then
    was_there = true
  else
    entries[#entries + 1] = entry.text
    indexed = indexed or indexes(KEYS[2], entry.node)
  end
end
if #entries > 0 then
  if not indexed then redis.call('ZREM', KEYS[3], user) end
  redis.call('HSET', KEYS[1], user, table.concat(entries, ';'))
  return 0
end
clear_user(user)
-- A missing session may have been lost with others that are being restored. Then it is unknown whether the user left.
if was_there then tell_room(user, '') end
return answer(was_there and 1 or 0)
