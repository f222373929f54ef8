-- What is kept of some users, as it is: the node sees itself whether something has run out, and has that settled.
-- Answers a record for each user, then the epoch: if it is another one than before, absence means nothing.
-- KEYS: for each user: presence bucket, seen bucket; then nodes of one partition of this server
-- ARGV: for each user: field
local answers, call = {}, redis.call
for index = 1, #ARGV do
  answers[index] = call('HGET', KEYS[2 * index - 1], ARGV[index]) or call('HGET', KEYS[2 * index], ARGV[index]) or ''
end
answers[#ARGV + 1] = call('HGET', KEYS[#KEYS], '~epoch') or ''
return answers
