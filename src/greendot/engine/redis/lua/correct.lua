-- Move a partition's time, unless another node did so already. Answers 1 if it was moved.
-- KEYS: nodes
-- ARGV: the correction so far, the new one
if (redis.call('HGET', KEYS[1], '~clock') or '0') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], '~clock', ARGV[2])
return 1
