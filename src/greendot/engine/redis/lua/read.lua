-- What is kept of some users, as it is: the node sees itself whether something has run out, and has that settled.
-- KEYS: for each user: presence bucket, seen bucket
-- ARGV: for each user: field
local answers, call = {}, redis.call
for index = 1, #ARGV do
  answers[index] = call('HGET', KEYS[2 * index - 1], ARGV[index]) or call('HGET', KEYS[2 * index], ARGV[index]) or ''
end
return answers
