-- An incarnation is dead: its sessions count for the grace from now on. Answers from when on they do not. A dead one
-- stays as it is: it dies once.
-- KEYS: nodes
-- ARGV: incarnation, its last renewal (ms; empty: now), grace, time (as the node has it: if it is quite another here, the
--   clock has jumped and the node's stands)
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and known ~= 'live' then return tonumber(split(known, ',')[2], 16) end
local now = clock(KEYS[1], ARGV[4]) or tonumber(ARGV[4])
local ends = now + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], hex(tonumber(ARGV[2]) or now) .. ',' .. hex(ends))
return ends
