-- Set the time correction of a partition, unless another node has changed it. Returns 1 if it was set.
-- KEYS: nodes
-- ARGV: previous correction, new correction
if (redis.call('HGET', KEYS[1], '~clock') or '0') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], '~clock', ARGV[2])
return 1
