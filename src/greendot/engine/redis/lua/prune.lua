-- Remove users without sessions that count from some users of a room's index, without a message. Returns the user to continue
-- after; empty at the end. Then the given marks are removed: the nodes were dead before the first call, and cannot enter again.
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key, user to begin after (empty: from the first), maximum number of users, marks
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local users = indexed_users(KEYS[3], ARGV[5], ARGV[6])
for _, user in ipairs(users) do
  local text = redis.call('HGET', KEYS[1], user) or ''
  local entries, over = entries_in_room(text, KEYS[2], now)
  if #entries == 0 and over then
    clear_user(user)
  elseif #entries == 0 then
    redis.call('ZREM', KEYS[3], user)  -- an unknown node may return, and then enters its users again
  end
end
if #users == tonumber(ARGV[6]) then return answer(users[#users]) end
redis.call('ZREM', KEYS[3], unpack(ARGV, 7))
return answer('')
