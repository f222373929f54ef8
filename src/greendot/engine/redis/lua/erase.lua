-- Delete the last-seen time and the name of a user without sessions.
-- ARGV from 7: none
local v, refused = verb()
if refused then return refused end
redis.call('HDEL', v.seen, v.field)
return 1
