-- Strike dead incarnations whose sessions are all gone off a partition's list.
-- KEYS: nodes
-- ARGV: incarnations
local struck = 0
for _, node in ipairs(ARGV) do
  if redis.call('HGET', KEYS[1], node) ~= 'live' then struck = struck + redis.call('HDEL', KEYS[1], node) end
end
return struck
