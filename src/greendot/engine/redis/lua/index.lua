-- Build the index of a large room, some users in each call. Users who enter or leave meanwhile are indexed by their own verbs.
-- Returns the cursor of the next call; 0 at the end. Then the index is complete, unless it has ended meanwhile, because the room
-- was small or a node of version 0.1.0-rc.1 was there.
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key, cursor, approximate number of users, token of this build
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local mark = '~!' .. ARGV[7]
if ARGV[5] == '0' then
  redis.call('ZADD', KEYS[3], 0, mark)
  redis.call('PEXPIRE', KEYS[3], DAY_MS)
end
local step, nodes, values = redis.call('HSCAN', KEYS[1], ARGV[5], 'COUNT', ARGV[6]), {}, {}
local users = users_there(step[2], now, function(node) nodes[node] = true end)
if not redis.call('ZSCORE', KEYS[3], mark) then return answer('0') end
for _, user in ipairs(users) do
  values[#values + 1] = 0
  values[#values + 1] = user
end
for node in pairs(nodes) do
  values[#values + 1] = 0
  values[#values + 1] = '~' .. node
end
for at = 1, #values, 1000 do  -- the number of values for unpack is limited
  redis.call('ZADD', KEYS[3], unpack(values, at, math.min(at + 999, #values)))
end
if step[1] == '0' then
  redis.call('ZREM', KEYS[3], unpack(redis.call('ZRANGEBYLEX', KEYS[3], '[~!', '(~"')))
  if redis.call('HLEN', KEYS[1]) < FEW then redis.call('DEL', KEYS[3]) end
end
return answer(step[1])
