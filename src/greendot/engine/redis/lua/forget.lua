-- Remove dead incarnations without sessions from a partition's list. Returns the number removed.
-- KEYS: nodes
-- ARGV: incarnations
local struck = 0
for _, node in ipairs(ARGV) do
  if redis.call('HGET', KEYS[1], node) ~= 'live' then
    redis.call('HDEL', KEYS[1], '~' .. node)
    struck = struck + redis.call('HDEL', KEYS[1], node)
  end
end
return struck
