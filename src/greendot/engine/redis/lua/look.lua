-- Renew this node's lease, if it is time, and see everybody's. Answers {time, leases, nodes}, both as field, value, …
-- A lease is a counter, when it was renewed, how loaded the node is, and a digest of what it has restored; only the
-- counter tells life, so a clock that jumps kills nobody.
-- KEYS: nodes, leases
-- ARGV: incarnation (empty: only look), renew (1 or empty), level, digest
local now = clock(KEYS[1], '')
if ARGV[2] == '1' and redis.call('HGET', KEYS[1], ARGV[1]) == 'live' then
  local count = tonumber(string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '0', '^%d+')) + 1
  redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f,%.0f,%d,%s', count, now, ARGV[3], ARGV[4]))
end
return { now, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[1]) }
