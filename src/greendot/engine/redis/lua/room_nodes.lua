-- List the live nodes with sessions in a room.
-- KEYS: present hash, nodes
-- ARGV: time, channel, publish command, bus key; not used
local found, answers = {}, {}
for _, text in ipairs(redis.call('HVALS', KEYS[1])) do
  for entry in string.gmatch(text, '[^;]+') do
    local session, node = string.match(entry, '^([^,]*),?(.*)$')
    if node == '' then node = string.match(session, '^[^-]*') end
    if not found[node] then
      found[node] = true
      if life_of(KEYS[2], node).alive then answers[#answers + 1] = node end
    end
  end
end
return answers
