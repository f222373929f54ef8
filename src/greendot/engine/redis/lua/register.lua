-- An incarnation comes to life in a partition. Answers {the partition's epoch, the engine's time, its correction}, or
-- refuses (FENCED) one that is dead; with `new`, also one that was there before.
-- KEYS: nodes
-- ARGV: incarnation, an epoch if the partition has none, new (1 or empty)
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and (known ~= 'live' or ARGV[3] == '1') then return redis.error_reply('FENCED ' .. ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], 'live')
redis.call('HSETNX', KEYS[1], '~epoch', ARGV[2])
local now = clock(KEYS[1], '')
return { redis.call('HGET', KEYS[1], '~epoch'), now, redis.call('HGET', KEYS[1], '~clock') or '0' }
