-- List the users in a room. Users whose nodes are dead are removed without a message, because every node reads the list.
-- KEYS: present hash, nodes
-- ARGV: time, channel, publish command, bus key
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local match = string.match
local answers = {}
local found = redis.call('HGETALL', KEYS[1])
for index = 1, #found, 2 do
  local user, text = found[index], found[index + 1]
  -- The common case: one session, on the node that its id names.
  local node = match(text, '^([^-,;]*)%-[^,;]*$')
  if node and life_of(KEYS[2], node).alive then
    answers[#answers + 1] = user
  else
    local entries, over = entries_in_room(text, KEYS[2], now)
    if #entries > 0 then
      answers[#answers + 1] = user
    elseif over then
      redis.call('HDEL', KEYS[1], user)
    end
  end
end
if #found > 0 and redis.call('EXISTS', KEYS[1]) == 0 then turned = 0 end
return answer(answers)
