-- Mark an incarnation as dead: its sessions count for the grace from now on. Returns the time at which they stop counting.
-- An incarnation that is dead already does not change.
-- KEYS: nodes
-- ARGV: incarnation, its last renewal (ms; empty: now), grace, time of the node (used instead of the engine's time if they
--   differ too much, because the engine's clock has jumped)
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and known ~= 'live' then return tonumber(split(known, ',')[2], 16) end
local now = clock(KEYS[1], ARGV[4]) or tonumber(ARGV[4])
local ends = now + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], hex(tonumber(ARGV[2]) or now) .. ',' .. hex(ends))
return ends
