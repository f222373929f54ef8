-- List some of the users in a room from the hash, while nodes of version 0.1.0-rc.1 are live. The index ends: it lacks their users.
-- Returns {cursor of the next call (0: none), user…}. A user may be listed twice.
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key, cursor, approximate number of users
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
redis.call('DEL', KEYS[3])
local step = redis.call('HSCAN', KEYS[1], ARGV[5], 'COUNT', ARGV[6])
local users = users_there(step[2], now)
table.insert(users, 1, step[1])
return answer(users)
