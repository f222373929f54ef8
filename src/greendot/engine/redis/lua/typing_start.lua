-- Start or continue typing: remove expired starts, throttle, store, publish. Returns 1 if the start was accepted.
-- KEYS: typing set, nodes
-- ARGV: time, channel, publish command, bus key, user, name, held, throttle
-- Members are user|name. The score is the time of the start, negated after a stop, so that start, stop, start cannot
-- bypass the throttle.
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local user, name, held, throttle = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local member = user .. '|' .. name
local keep = math.max(held, throttle)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - keep)
redis.call('ZREMRANGEBYSCORE', KEYS[1], -(now - keep), -1)
local last = redis.call('ZSCORE', KEYS[1], member)
if last and now - math.abs(tonumber(last)) < throttle then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), member)
redis.call('PEXPIRE', KEYS[1], keep + 1000)
local body = table.concat({ user, name, held }, '|')
redis.call(ARGV[3], ARGV[2], 't' .. redis.sha1hex(ARGV[4] .. ARGV[2] .. '|' .. body) .. body)
return 1
