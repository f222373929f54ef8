-- List the live nodes with sessions in a room. In a large room other nodes may be listed too: nodes that had sessions in the
-- room, and all nodes if the room has no index.
-- KEYS: present hash, nodes, index
-- ARGV: time, channel, publish command, bus key; not used
local found, answers = {}, {}

local function add(node)
  if not found[node] then
    found[node] = true
    if life_of(KEYS[2], node).alive then answers[#answers + 1] = node end
  end
end

if redis.call('HLEN', KEYS[1]) > 2 * FEW then
  local marks = index_marks(KEYS[3])
  local known = marks and {} or redis.call('HGETALL', KEYS[2])
  for at = 1, #known, 2 do add(known[at]) end
  for _, mark in ipairs(marks or {}) do add(string.sub(mark, 2)) end
  for _, node in ipairs(unindexed(KEYS[2])) do add(node) end
  return answers
end
for _, text in ipairs(redis.call('HVALS', KEYS[1])) do
  for entry in string.gmatch(text, '[^;]+') do
    local session, node = string.match(entry, '^([^,]*),?(.*)$')
    add(node == '' and string.match(session, '^[^-]*') or node)
  end
end
return answers
