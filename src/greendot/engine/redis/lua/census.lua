-- Whether a node is known in a partition, and how many users with how many sessions are in it.
-- Answers {its life or false, buckets read, users in these, their sessions}: all buckets, unless they are very full.
-- KEYS: nodes, presence buckets
-- ARGV: incarnation, users after which no further bucket is read
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
return { redis.call('HGET', KEYS[1], ARGV[1]), read, users, sessions }
