-- Check whether a node is known in a partition, and count the partition's users and sessions.
-- Returns {state of the node or false, number of buckets, buckets read, users in them, their sessions}. Reading stops after
-- enough users.
-- KEYS: nodes, presence buckets
-- ARGV: incarnation, number of users after which no further bucket is read
local most = tonumber(ARGV[2])
local read, users, sessions = 0, 0, 0
local gsub = string.gsub
for index = 2, #KEYS do
  if users >= most then break end
  for _, text in ipairs(redis.call('HVALS', KEYS[index])) do
    local _, more = gsub(text, ';', ';')
    users, sessions = users + 1, sessions + 1 + more
  end
  read = read + 1
end
return { redis.call('HGET', KEYS[1], ARGV[1]), tonumber(bucket_count(KEYS[1])), read, users, sessions }
