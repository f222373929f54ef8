-- List the sessions of one node in some buckets. Returns field, session, connection, field, …
-- KEYS: nodes, presence buckets
-- ARGV: incarnation, number of buckets that the node knows
local refused = misplaced(KEYS[1], ARGV[2])
if refused then return refused end
local answers = {}
for at = 2, #KEYS do
  local found = redis.call('HGETALL', KEYS[at])
  for index = 1, #found, 2 do
    if string.find(found[index + 1], ARGV[1], 1, true) then
      for _, entry in ipairs(read_record(found[index + 1]).entries) do
        if entry.node == ARGV[1] then
          answers[#answers + 1] = found[index]
          answers[#answers + 1] = entry.session
          answers[#answers + 1] = entry.conn
        end
      end
    end
  end
end
return answers
