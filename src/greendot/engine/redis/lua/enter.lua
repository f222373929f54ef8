-- Add a session to a room. The first session of a user is published. Returns 1 for the first session, else 0. Refuses a
-- node that is not live (FENCED) or not known (UNKNOWN).
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key, session, incarnation, connection, user, mode (1: entered,
-- r: restored), name
local session, node, user = ARGV[5], ARGV[6], ARGV[8]
local refused = fenced(KEYS[2], node)
if refused then return refused end
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local entries, was_there = {}, false
for _, entry in ipairs(entries_in_room(redis.call('HGET', KEYS[1], user) or '', KEYS[2], now)) do
  was_there = true
  if entry.session ~= session then entries[#entries + 1] = entry.text end
end
if ARGV[9] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then turned = 1 end
entries[#entries + 1] = node == string.match(session, '^[^-]*') and session or session .. ',' .. node
redis.call('HSET', KEYS[1], user, table.concat(entries, ';'))
redis.call('PEXPIRE', KEYS[1], DAY_MS)
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('ZADD', KEYS[3], 0, user, 0, '~' .. node)
  redis.call('PEXPIRE', KEYS[3], DAY_MS)
end
if not was_there then tell_room(user, ARGV[9] .. ARGV[10]) end
return answer(was_there and 0 or 1)
