-- Renew this node's lease if due, and read all leases. Returns {time, leases, nodes}, both as field, value, …
-- A lease has a counter, the time of renewal, the overload level, and a report of restored partitions. Only the counter
-- proves that a node lives, so a clock that jumps ends no node.
-- KEYS: nodes, leases
-- ARGV: incarnation (empty: read only), renew (1 or empty), level, report
local now = clock(KEYS[1], '')
if ARGV[2] == '1' and redis.call('HGET', KEYS[1], ARGV[1]) == 'live' then
  local count = tonumber(string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '0', '^%d+')) + 1
  redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f,%.0f,%d,%s', count, now, ARGV[3], ARGV[4]))
end
return { now, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[1]) }
