-- Read the stored records of some users. The calling node checks expiry and calls `settle` if needed.
-- Returns for each user the record, or the number of buckets if the keys may be those of other buckets; then the epoch. If the
-- epoch has changed, a missing record does not mean offline. A record that was found is in the right bucket.
-- KEYS: for each user: presence bucket, seen bucket; then nodes of one partition of this server
-- ARGV: for each user: field, number of buckets that the node knows
local answers, call = {}, redis.call
for index = 1, #ARGV / 2 do
  local field = ARGV[2 * index - 1]
  local text = call('HGET', KEYS[2 * index - 1], field) or call('HGET', KEYS[2 * index], field)
  if not text then
    local nodes = string.gsub(KEYS[2 * index - 1], '^(.*)presence(:{[^}]*}):..$', '%1nodes%2')
    local count = call('HGET', nodes, '~buckets') or '128'
    text = count == ARGV[2 * index] and '' or tonumber(count)
  end
  answers[index] = text
end
answers[#answers + 1] = call('HGET', KEYS[#KEYS], '~epoch') or ''
return answers
