-- List the users who type, earliest start first. Returns member, remaining milliseconds, member, …
-- KEYS: typing set, nodes
-- ARGV: time, held
local now, held = clock(KEYS[2], ARGV[1]), tonumber(ARGV[2])
if not now then return other_time() end
local answers = {}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now - held), '+inf', 'WITHSCORES')
for index = 1, #found, 2 do
  answers[index] = found[index]
  -- A clock that went back since the start must not make the start last longer.
  answers[index + 1] = math.min(held, tonumber(found[index + 1]) + held - now)
end
return answers
