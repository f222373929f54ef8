-- Register an incarnation as live in a partition. Returns {epoch of the partition, time of the engine, correction, number of
-- buckets}. Refuses (FENCED) a dead incarnation, and with `new` also a live one.
-- KEYS: nodes
-- ARGV: incarnation, epoch for a partition that has none, new (1 or empty), number of buckets of a partition without epoch
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and (known ~= 'live' or ARGV[3] == '1') then return redis.error_reply('FENCED ' .. ARGV[1]) end
-- The mark shows a node that knows `~buckets` and writes the index of large rooms.
redis.call('HSET', KEYS[1], ARGV[1], 'live', '~' .. ARGV[1], '1')
if redis.call('HSETNX', KEYS[1], '~epoch', ARGV[2]) == 1 and ARGV[4] ~= '128' then
  redis.call('HSET', KEYS[1], '~buckets', ARGV[4])
end
local now = clock(KEYS[1], '')
return { redis.call('HGET', KEYS[1], '~epoch'), now, redis.call('HGET', KEYS[1], '~clock') or '0',
         tonumber(bucket_count(KEYS[1])) }
