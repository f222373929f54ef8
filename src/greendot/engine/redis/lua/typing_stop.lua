-- Stop typing on any device of the user. Returns 1 if the user was typing.
-- KEYS: typing set, nodes
-- ARGV: time, channel, publish command, bus key, user, held
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local user, held = ARGV[5], tonumber(ARGV[6])
local was_typing = false
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now - held), '+inf')) do
  if string.match(member, '^[^|]*') == user then  -- devices may have different names
    local score = tonumber(redis.call('ZSCORE', KEYS[1], member))
    redis.call('ZADD', KEYS[1], string.format('%.0f', -score), member)
    was_typing = true
  end
end
if not was_typing then return 0 end
local body = user .. '||0'
redis.call(ARGV[3], ARGV[2], 't' .. redis.sha1hex(ARGV[4] .. ARGV[2] .. '|' .. body) .. body)
return 1
