-- Read the stored records of some users. The calling node checks expiry and calls `settle` if needed.
-- Returns a record for each user, then the epoch. If the epoch has changed, a missing record does not mean offline.
-- KEYS: for each user: presence bucket, seen bucket; then nodes of one partition of this server
-- ARGV: for each user: field
local answers, call = {}, redis.call
for index = 1, #ARGV do
  answers[index] = call('HGET', KEYS[2 * index - 1], ARGV[index]) or call('HGET', KEYS[2 * index], ARGV[index]) or ''
end
answers[#ARGV + 1] = call('HGET', KEYS[#KEYS], '~epoch') or ''
return answers
