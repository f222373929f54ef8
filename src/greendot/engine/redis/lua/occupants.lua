-- Return a page of the users in a room by id, and the number of all. In a large room they come from the index, so that the cost
-- depends on the page only.
-- Returns {number of users, 1 if the user looked for is in the room, user…}. Returns instead, as the first element:
--   all, user…   a small room: all users, in any order
--   dead, mark…  nodes have died, and their users are still in the index: `prune` has to remove them
--   old          there are nodes of version 0.1.0-rc.1, whose users are not in the index
--   build        the index has to be built
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key, user to begin after (empty: from the first), maximum number of users, user to
--   look for (empty: none)
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local marks = index_marks(KEYS[3])
if not marks and redis.call('HLEN', KEYS[1]) <= 2 * FEW then
  local users = users_there(redis.call('HGETALL', KEYS[1]), now)
  table.insert(users, 1, 'all')
  return answer(users)
end
for _, node in ipairs(unindexed(KEYS[2])) do
  local life = life_of(KEYS[2], node)
  if life.alive or life.ends > now then return { 'old' } end
end
if not marks then return { 'build' } end
local dead = { 'dead' }
for _, mark in ipairs(marks) do
  local life = life_of(KEYS[2], string.sub(mark, 2))
  if not life.alive and life.ends <= now then dead[#dead + 1] = mark end
end
if #dead > 1 then return dead end
local there = ARGV[7] ~= '' and redis.call('ZSCORE', KEYS[3], ARGV[7])
local answers = { redis.call('ZCARD', KEYS[3]) - #marks, there and 1 or 0 }
if ARGV[6] ~= '0' then
  for _, user in ipairs(indexed_users(KEYS[3], ARGV[5], ARGV[6])) do answers[#answers + 1] = user end
end
return answers
